//! Formats and tags as flags.

use clap::{Args, ValueEnum};
use t10pi::{Checks, Format, Guard, PiContext, PiType, Position, Tags};

use super::error::PiError;
use crate::host::size::parse_integer;

/// Where the protection information of an image is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LayoutName {
    /// In FILE.pi, and FILE is a plain image
    #[default]
    Separate,
    /// Behind each block, in FILE itself
    Interleaved,
}

/// Guards that media have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GuardName {
    /// CRC-16 of T10 DIF, tuples of 8 bytes
    Crc16,
    /// CRC-32C, tuples of 16 bytes
    Crc32c,
    /// CRC-64 of NVMe, tuples of 16 bytes
    Crc64,
}

impl GuardName {
    /// As the library knows it.
    pub fn guard(self) -> Guard {
        match self {
            Self::Crc16 => Guard::Crc16,
            Self::Crc32c => Guard::Crc32c,
            Self::Crc64 => Guard::Crc64,
        }
    }
}

/// Where the tuple is in the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PositionName {
    /// In its last bytes
    Last,
    /// In its first bytes, which controllers no longer offer
    First,
}

/// The format of an image. `FILE.pi` says it by itself; flags that are given must agree with it.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Format")]
pub struct FormatArgs {
    /// Bytes of data in a block; needed where no FILE.pi says it
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub block_size: Option<u32>,
    /// Type of protection, 1 to 3; needed where no FILE.pi says it
    #[arg(long = "type", value_parser = parse_type)]
    pub pi_type: Option<u8>,
    /// Guard (default: crc16)
    #[arg(long, value_enum)]
    pub guard: Option<GuardName>,
    /// Bytes of metadata of a block (default: the guard's tuple alone: 8 or 16)
    #[arg(long)]
    pub metadata_size: Option<u16>,
    /// Where the tuple is in the metadata (default: last)
    #[arg(long, value_enum)]
    pub position: Option<PositionName>,
    /// Bits of the storage tag (default: as few as the guard allows: 0, with crc32c 16)
    #[arg(long)]
    pub storage_tag_bits: Option<u8>,
    /// Bits of the storage tag that are compared (default: all)
    #[arg(long, value_parser = parse_integer)]
    pub storage_tag_mask: Option<u64>,
}

impl FormatArgs {
    /// The format and type that the flags describe.
    pub(super) fn build(&self) -> Result<(Format, PiType), PiError> {
        let missing = |flag: &str| PiError::Flags(format!("{flag} is needed: no FILE.pi says it"));
        let block_size = self.block_size.ok_or_else(|| missing("--block-size"))?;
        let pi_type = pi_type(self.pi_type.ok_or_else(|| missing("--type"))?);
        let guard = self.guard.map_or(Guard::Crc16, GuardName::guard);
        let tuple = if guard.tuple_size() == 8 { 8 } else { 16 };
        let metadata_size = self.metadata_size.unwrap_or(tuple);
        let bits = self.storage_tag_bits.unwrap_or_else(|| *guard.storage_tag_range().start());
        let position = match self.position {
            Some(PositionName::First) => Position::First,
            _ => Position::Last,
        };
        let format = Format::new(guard, block_size, metadata_size)
            .and_then(|format| match self.storage_tag_mask {
                Some(mask) => format.with_storage_tag(bits, mask),
                None => format.with_whole_storage_tag(bits),
            })
            .map_err(|error| PiError::Format { block_size, metadata_size, why: error.to_string() })?;
        Ok((format.with_position(position), pi_type))
    }

    /// Refuses flags that contradict what `FILE.pi` says.
    pub(super) fn agree(&self, format: &Format, of: PiType) -> Result<(), PiError> {
        let differs = |flag: &str, given: String, found: String| {
            if given == found {
                return Ok(());
            }
            Err(PiError::Flags(format!("{flag} is {given}, and FILE.pi says {found}; leave the flag out")))
        };
        if let Some(size) = self.block_size {
            differs("--block-size", size.to_string(), format.block_size().to_string())?;
        }
        if let Some(given) = self.pi_type {
            differs("--type", given.to_string(), of.number().to_string())?;
        }
        if let Some(guard) = self.guard {
            differs("--guard", guard.guard().name().to_owned(), format.guard().name().to_owned())?;
        }
        if let Some(size) = self.metadata_size {
            differs("--metadata-size", size.to_string(), format.metadata_size().to_string())?;
        }
        if let Some(position) = self.position {
            let name = |first: bool| (if first { "first" } else { "last" }).to_owned();
            let found = name(format.position() == Position::First);
            differs("--position", name(position == PositionName::First), found)?;
        }
        if let Some(bits) = self.storage_tag_bits {
            differs("--storage-tag-bits", bits.to_string(), format.storage_tag_bits().to_string())?;
        }
        if let Some(mask) = self.storage_tag_mask {
            differs("--storage-tag-mask", format!("{mask:#x}"), format!("{:#x}", format.storage_tag_mask()))?;
        }
        Ok(())
    }
}

/// Refuses what no volume has: `FILE.pi` belongs to one.
pub(super) fn of_volume(format: &Format) -> Result<(), &'static str> {
    if format.position() == Position::First {
        return Err("volumes have the tuple in the last bytes of the metadata, and it is in the first");
    }
    if !matches!(format.block_size(), 512 | 4096) {
        return Err("blocks of a volume have 512 or 4096 bytes");
    }
    if !format.is_nvme_legal() {
        return Err("with tuples of 16 bytes (crc32c, crc64) blocks of a volume have 4096 bytes");
    }
    if !format.metadata_size().is_multiple_of(8) || format.metadata_size() > 128 {
        return Err("metadata of a volume is a multiple of 8 bytes up to 128");
    }
    Ok(())
}

fn pi_type(number: u8) -> PiType {
    PiType::from_number(number).expect("the flag takes 1 to 3")
}

/// The tags of an image's blocks.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Tags")]
pub struct TagArgs {
    /// Application tag of every block
    #[arg(long, value_parser = parse_tag)]
    pub app_tag: Option<u16>,
    /// Storage tag of every block
    #[arg(long, value_parser = parse_integer)]
    pub storage_tag: Option<u64>,
    /// Reference tag of block 0 (type 2), or of every block (type 3); that of type 1 is the address
    #[arg(long, value_parser = parse_integer)]
    pub ref_tag: Option<u64>,
}

impl TagArgs {
    /// The context of blocks from `lba` on.
    pub(super) fn context(
        &self,
        format: &Format,
        pi_type: PiType,
        checks: Checks,
        app_tag_mask: u16,
        lba: u64,
    ) -> Result<PiContext, PiError> {
        let start = self.ref_tag.unwrap_or(0);
        let ref_tag = match pi_type {
            PiType::Type1 if self.ref_tag.is_some() => {
                let why = "--ref-tag goes with types 2 and 3: that of type 1 is the block's address";
                return Err(PiError::Flags(why.to_owned()));
            }
            PiType::Type1 => lba,
            PiType::Type2 => start.wrapping_add(lba),
            PiType::Type3 => start,
        };
        if format.ref_tag_of(start) != start {
            let bits = format.ref_tag_bits();
            let why =
                format!("--ref-tag {start:#x} is wider than this format's reference tag of {bits} bits");
            return Err(PiError::Flags(why));
        }
        let storage_tag = self.storage_tag.unwrap_or(0);
        let tags = Tags { app_tag: self.app_tag.unwrap_or(0), app_tag_mask, storage_tag, ref_tag };
        PiContext::new(format, pi_type, checks, tags)
            .map_err(|error| PiError::Flags(format!("--storage-tag can't be: {error}")))
    }

    /// The context of blocks from `lba` on whose protection information is made.
    pub(super) fn generating(
        &self,
        format: &Format,
        pi_type: PiType,
        lba: u64,
    ) -> Result<PiContext, PiError> {
        self.context(format, pi_type, Checks::NONE, 0, lba)
    }

    /// Refuses to make tuples of which each has the escape value.
    pub(super) fn refuse_escapes(&self, format: &Format, pi_type: PiType) -> Result<(), PiError> {
        let pi = self.generating(format, pi_type, 0)?;
        let mut md = vec![0; usize::from(format.metadata_size())];
        pi.generate_zeroes(&mut md);
        if pi.escapes(&md[format.tuple_offset()..][..format.tuple_size()]) {
            let why = "these tags are the escape value (--app-tag 0xffff): nobody would ever check a block";
            return Err(PiError::Flags(why.to_owned()));
        }
        Ok(())
    }
}

/// Reads a type of protection.
fn parse_type(text: &str) -> Result<u8, String> {
    match text {
        "1" => Ok(1),
        "2" => Ok(2),
        "3" => Ok(3),
        "0" => {
            Err("type 0 is no protection: there is nothing to make or to check; types are 1 to 3".to_owned())
        }
        _ => Err(format!("{text:?} is not 1, 2 or 3")),
    }
}

/// Reads a tag of 16 bits.
pub(super) fn parse_tag(text: &str) -> Result<u16, String> {
    let value = parse_integer(text)?;
    u16::try_from(value).map_err(|_| format!("{text} has more than 16 bits"))
}
