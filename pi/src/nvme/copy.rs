//! The Copy command: its fields, its source ranges, and what it does to protection information.
//! (NVM Command Set 3.3.2; 3.3.2.4.2 "Handling of Protection Information".)

use super::namespace::Namespace;
use super::status::Status;
use crate::checks::{Checks, Tags};
use crate::format::{CommandTags, Format, Guard};

/// One side's PRINFO and storage tag check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrInfo {
    /// Protection Information Action.
    pub pract: bool,
    /// What is checked.
    pub checks: Checks,
}

/// How the source ranges of a command are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorFormat {
    /// 0h: 32 bytes, 16-bit guards.
    Format0,
    /// 1h: 40 bytes, 32- and 64-bit guards.
    Format1,
    /// 2h: as 0h, with the source's namespace.
    Format2,
    /// 3h: as 1h, with the source's namespace.
    Format3,
}

impl DescriptorFormat {
    /// The format of this number, if there is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Format0),
            1 => Some(Self::Format1),
            2 => Some(Self::Format2),
            3 => Some(Self::Format3),
            _ => None,
        }
    }

    /// Bytes of one source range: 32 or 40.
    pub const fn size(self) -> usize {
        match self {
            Self::Format0 | Self::Format2 => 32,
            Self::Format1 | Self::Format3 => 40,
        }
    }

    /// Whether the destination may have this guard.
    const fn allows(self, guard: Guard) -> bool {
        match self {
            Self::Format0 | Self::Format2 => matches!(guard, Guard::Crc16),
            Self::Format1 | Self::Format3 => matches!(guard, Guard::Crc32c | Guard::Crc64),
        }
    }
}

/// The fields of a Copy command's submission queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFields {
    /// Starting destination LBA.
    pub sdlba: u64,
    /// Source ranges, 1 to 256 (the entry's NR is 0's based).
    pub ranges: u16,
    /// Number of the descriptor format; [`DescriptorFormat::from_code`] knows those that exist.
    pub descriptor_format: u8,
    /// For the sources (PRINFOR, STCR).
    pub read: PrInfo,
    /// For the destination (PRINFOW, STCW).
    pub write: PrInfo,
    /// Application tag of the destination.
    pub app_tag: u16,
    /// Its mask.
    pub app_tag_mask: u16,
    /// Storage tag and initial reference tag of the destination.
    pub command_tags: CommandTags,
}

impl CopyFields {
    /// Reads an entry of 64 bytes.
    pub fn parse(sqe: &[u8; 64]) -> Self {
        let dword =
            |n: usize| u32::from_le_bytes([sqe[n * 4], sqe[n * 4 + 1], sqe[n * 4 + 2], sqe[n * 4 + 3]]);
        let cdw12 = dword(12);
        let bit = |n: u32| cdw12 >> n & 1 == 1;
        let info = |first: u32, storage_tag: u32| PrInfo {
            pract: bit(first + 3),
            checks: Checks {
                guard: bit(first + 2),
                app_tag: bit(first + 1),
                storage_tag: bit(storage_tag),
                ref_tag: bit(first),
            },
        };
        Self {
            sdlba: u64::from(dword(11)) << 32 | u64::from(dword(10)),
            ranges: u16::from(sqe[48]) + 1,
            descriptor_format: sqe[49] & 0xF,
            read: info(12, 25),
            write: info(26, 24),
            app_tag: u16::from_le_bytes([sqe[60], sqe[61]]),
            app_tag_mask: u16::from_le_bytes([sqe[62], sqe[63]]),
            command_tags: CommandTags { cdw2: dword(2) & 0xFFFF, cdw3: dword(3), cdw14: dword(14) },
        }
    }
}

/// One source range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRange {
    /// Namespace of the source, where the descriptor format names one.
    pub nsid: Option<u32>,
    /// Starting LBA.
    pub slba: u64,
    /// Blocks, 1 to 65536.
    pub blocks: u32,
    /// Expected application tag.
    pub app_tag: u16,
    /// Its mask.
    pub app_tag_mask: u16,
    /// Expected storage tag and initial reference tag.
    pub command_tags: CommandTags,
}

impl SourceRange {
    /// Reads one descriptor; `None` when `bytes` is not [`DescriptorFormat::size`] bytes.
    pub fn parse(format: DescriptorFormat, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != format.size() {
            return None;
        }
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(half(at + 2)) << 16 | u32::from(half(at));
        let (nsid, tags_at) = match format {
            DescriptorFormat::Format0 => (None, 24),
            DescriptorFormat::Format1 => (None, 26),
            DescriptorFormat::Format2 => (Some(word(0)), 24),
            DescriptorFormat::Format3 => (Some(word(0)), 26),
        };
        let wide = tags_at == 26;
        let command_tags = CommandTags {
            cdw2: if wide { u32::from(half(tags_at + 8)) } else { 0 },
            cdw3: if wide { word(tags_at + 4) } else { 0 },
            cdw14: word(tags_at),
        };
        let app_at = if wide { 36 } else { 28 };
        Some(Self {
            nsid,
            slba: u64::from(word(12)) << 32 | u64::from(word(8)),
            blocks: u32::from(half(16)) + 1,
            app_tag: half(app_at),
            app_tag_mask: half(app_at + 2),
            command_tags,
        })
    }

    /// The tags that are expected of a source of `format`.
    pub const fn tags(&self, format: &Format) -> Tags {
        let (storage_tag, ref_tag) = format.unpack_tags(self.command_tags);
        Tags { app_tag: self.app_tag, app_tag_mask: self.app_tag_mask, storage_tag, ref_tag }
    }
}

/// What a Copy does to protection information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyAction {
    /// There is none: blocks are copied as they are.
    Copy,
    /// The source's is checked, against both sides' expectations, and stored as it is.
    Pass,
    /// The source's is checked, and the destination's generated.
    Replace,
    /// The destination's is generated.
    Insert,
    /// The source's is checked and left out.
    Strip,
}

/// Decides what a Copy from `sources` (one for each source range, at least one) to `destination` does.
///
/// # Errors
/// The status to complete the command with, before anything has moved.
///
/// # Panics
/// When there is no source: a command has at least one.
pub fn decide_copy(
    destination: &Namespace,
    sources: &[Namespace],
    format: DescriptorFormat,
    read_pract: bool,
    write_pract: bool,
) -> Result<CopyAction, Status> {
    let first = sources.first().expect("a Copy has at least one source range");
    if destination.protection().is_some_and(|(pi, _)| !format.allows(pi.guard())) {
        return Err(Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    let incompatible = Err(Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT);
    // The first source says what the command is; all others must be of its kind.
    let (action, fits): (_, fn(&Namespace, &Namespace) -> bool) =
        match (first.protection().is_some(), destination.protection().is_some()) {
            (false, false) => (CopyAction::Copy, matches),
            (true, true) if read_pract => (CopyAction::Replace, matches),
            (true, true) => (CopyAction::Pass, matches),
            (false, true) if write_pract => (CopyAction::Insert, corresponds),
            (true, false) if read_pract => (CopyAction::Strip, |source, to| corresponds(to, source)),
            _ => return incompatible,
        };
    if !sources.iter().all(|source| fits(source, destination)) {
        return incompatible;
    }
    let passes = matches!(action, CopyAction::Pass | CopyAction::Replace);
    if passes && read_pract != write_pract { Err(Status::INVALID_FIELD) } else { Ok(action) }
}

/// Matching namespace formats for copy.
fn matches(a: &Namespace, b: &Namespace) -> bool {
    (a.block_size(), a.metadata_size(), a.protection()) == (b.block_size(), b.metadata_size(), b.protection())
}

/// Corresponding formats: they differ by the presence of protection information alone.
fn corresponds(plain: &Namespace, protected: &Namespace) -> bool {
    plain.protection().is_none()
        && plain.metadata_size() == 0
        && protected.is_tuple_only()
        && plain.block_size() == protected.block_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_fields_of_their_own() {
        let mut sqe = [0; 64];
        sqe[0] = 0x19;
        sqe[40..48].copy_from_slice(&0x1_0000_0002_u64.to_le_bytes());
        // PRINFOW: action, guard; STCR; PRINFOR: application tag; format 3; 256 ranges.
        sqe[48..52].copy_from_slice(&0x3200_23FF_u32.to_le_bytes());
        let fields = CopyFields::parse(&sqe);
        assert_eq!((fields.sdlba, fields.ranges, fields.descriptor_format), (0x1_0000_0002, 256, 3));
        assert!(fields.write.pract && fields.write.checks == Checks { guard: true, ..Checks::NONE });
        let read = Checks { app_tag: true, storage_tag: true, ..Checks::NONE };
        assert!(!fields.read.pract && fields.read.checks == read);
    }

    #[test]
    fn a_source_range_has_its_tags_where_its_format_puts_them() {
        let mut bytes = [0; 40];
        bytes[0] = 9;
        bytes[8..16].copy_from_slice(&77_u64.to_le_bytes());
        bytes[16] = 4;
        bytes[26..36].copy_from_slice(&[5, 0, 0, 0xC0, 0xAA, 0xAA, 0, 0, 0, 0]);
        bytes[36..40].copy_from_slice(&[0x34, 0x12, 0xFF, 0x0F]);
        let range = SourceRange::parse(DescriptorFormat::Format3, &bytes).unwrap();
        assert_eq!((range.nsid, range.slba, range.blocks), (Some(9), 77, 5));
        let format = Format::new(Guard::Crc64, 4096, 16).unwrap().with_storage_tag(18, 0).unwrap();
        let tags = range.tags(&format);
        assert_eq!((tags.storage_tag, tags.ref_tag), (0x2_AAAB, 5));
        assert_eq!((tags.app_tag, tags.app_tag_mask), (0x1234, 0x0FFF));
        assert_eq!(SourceRange::parse(DescriptorFormat::Format0, &bytes), None);

        let mut bytes = [0; 32];
        bytes[24..32].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let range = SourceRange::parse(DescriptorFormat::Format0, &bytes).unwrap();
        assert_eq!((range.nsid, range.command_tags.cdw14), (None, 0x0403_0201));
        assert_eq!((range.app_tag, range.app_tag_mask), (0x0605, 0x0807));
    }
}
