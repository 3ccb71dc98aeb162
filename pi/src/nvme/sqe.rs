//! The protection fields of a submission queue entry. (NVM Command Set 3.2, command dwords 2, 3 and 10 to 15.)

use crate::checks::{Checks, Tags};
use crate::format::{CommandTags, Format};

/// An I/O command that reads, writes or checks a range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// 01h
    Write,
    /// 02h
    Read,
    /// 05h
    Compare,
    /// 08h
    WriteZeroes,
    /// 0Ch
    Verify,
    /// Another command, to which [`RwFields`] may not apply.
    Other(u8),
}

impl From<u8> for Opcode {
    fn from(code: u8) -> Self {
        match code {
            0x01 => Self::Write,
            0x02 => Self::Read,
            0x05 => Self::Compare,
            0x08 => Self::WriteZeroes,
            0x0C => Self::Verify,
            other => Self::Other(other),
        }
    }
}

/// The fields of an entry, for any format; tags are not split yet ([`RwFields::tags`] does).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RwFields {
    /// The command.
    pub opcode: Opcode,
    /// Command identifier.
    pub cid: u16,
    /// Namespace identifier.
    pub nsid: u32,
    /// Starting LBA.
    pub slba: u64,
    /// Blocks, 1 to 65536 (the entry's NLB is 0's based).
    pub blocks: u32,
    /// Force Unit Access.
    pub fua: bool,
    /// Limited Retry.
    pub lr: bool,
    /// Deallocate (Write Zeroes).
    pub deac: bool,
    /// Protection Information Action: the controller inserts or strips.
    pub pract: bool,
    /// PRCHK and STC.
    pub checks: Checks,
    /// Logical Block Application Tag (expected, on the read side).
    pub app_tag: u16,
    /// Its mask.
    pub app_tag_mask: u16,
    /// Storage tag and initial reference tag.
    pub command_tags: CommandTags,
}

impl RwFields {
    /// Reads an entry of 64 bytes.
    pub fn parse(sqe: &[u8; 64]) -> Self {
        let dword =
            |n: usize| u32::from_le_bytes([sqe[n * 4], sqe[n * 4 + 1], sqe[n * 4 + 2], sqe[n * 4 + 3]]);
        let cdw12 = dword(12);
        let bit = |n: u32| cdw12 >> n & 1 == 1;
        Self {
            opcode: Opcode::from(sqe[0]),
            cid: u16::from_le_bytes([sqe[2], sqe[3]]),
            nsid: dword(1),
            slba: u64::from(dword(11)) << 32 | u64::from(dword(10)),
            blocks: (cdw12 & 0xFFFF) + 1,
            fua: bit(30),
            lr: bit(31),
            deac: bit(25),
            pract: bit(29),
            checks: Checks { guard: bit(28), app_tag: bit(27), storage_tag: bit(24), ref_tag: bit(26) },
            app_tag: u16::from_le_bytes([sqe[60], sqe[61]]),
            app_tag_mask: u16::from_le_bytes([sqe[62], sqe[63]]),
            command_tags: CommandTags { cdw2: dword(2) & 0xFFFF, cdw3: dword(3), cdw14: dword(14) },
        }
    }

    /// The tags that a namespace of `format` takes from the command.
    pub const fn tags(&self, format: &Format) -> Tags {
        let (storage_tag, ref_tag) = format.unpack_tags(self.command_tags);
        Tags { app_tag: self.app_tag, app_tag_mask: self.app_tag_mask, storage_tag, ref_tag }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Guard;

    #[test]
    fn every_field_is_read_from_its_place() {
        let mut sqe = [0; 64];
        sqe[0] = 0x05;
        sqe[2..8].copy_from_slice(&[0x34, 0x12, 1, 0, 0, 0]);
        sqe[8..16].copy_from_slice(&[0xEF, 0xBE, 0xFF, 0xFF, 0x67, 0x45, 0x23, 0x01]);
        sqe[40..48].copy_from_slice(&0x0123_4567_89AB_CDEF_u64.to_le_bytes());
        sqe[48..52].copy_from_slice(&0x5500_FFFF_u32.to_le_bytes());
        sqe[56..60].copy_from_slice(&0x89AB_CDEF_u32.to_le_bytes());
        sqe[60..64].copy_from_slice(&[0xCD, 0xAB, 0x0F, 0xF0]);
        let fields = RwFields::parse(&sqe);
        assert_eq!((fields.opcode, fields.cid, fields.nsid), (Opcode::Compare, 0x1234, 1));
        assert_eq!((fields.slba, fields.blocks), (0x0123_4567_89AB_CDEF, 65536));
        assert_eq!((fields.lr, fields.fua, fields.pract, fields.deac), (false, true, false, false));
        let checks = Checks { guard: true, app_tag: false, storage_tag: true, ref_tag: true };
        assert_eq!(fields.checks, checks);
        let format = Format::new(Guard::Crc32c, 4096, 16).unwrap();
        let tags = fields.tags(&format);
        assert_eq!((tags.storage_tag, tags.ref_tag), (0xBEEF, 0x0123_4567_89AB_CDEF));
        assert_eq!((tags.app_tag, tags.app_tag_mask), (0xABCD, 0xF00F));
    }
}
