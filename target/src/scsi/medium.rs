//! What a logical unit needs to know of its volume: a snapshot, and which volumes SCSI can present at all. (SBC-4
//! "Protection information model".)

use t10pi::{Format, Guard, PiType};
use thiserror::Error;

use super::opcodes::Profile;
use crate::block::Volume;

/// A volume, as a logical unit sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Medium {
    blocks: u64,
    block_size: u32,
    protection: Option<(Format, PiType)>,
    read_only: bool,
    write_cache: bool,
}

/// A volume that SCSI can't present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a logical unit has tuples of 8 bytes with a CRC of 16 bits and no storage tag; the volume has others"
)]
pub struct MediumError;

/// Bytes of a tuple.
pub const TUPLE_LEN: u16 = 8;

impl Medium {
    /// What a volume is now.
    ///
    /// # Errors
    /// Its protection information has a form that SCSI doesn't know.
    pub fn of(volume: &Volume) -> Result<Self, MediumError> {
        let protection = volume.protection().map(|protection| (protection.format, protection.pi_type));
        let medium = Self::new(volume.blocks(), volume.block_size(), protection)?;
        Ok(Self { read_only: volume.read_only(), write_cache: volume.has_write_cache(), ..medium })
    }

    /// A medium of `blocks` (at least 1) blocks of `block_size` bytes, which can be written and has no cache.
    ///
    /// # Errors
    /// Protection information of a form that SCSI doesn't know.
    pub fn new(
        blocks: u64,
        block_size: u32,
        protection: Option<(Format, PiType)>,
    ) -> Result<Self, MediumError> {
        let fits = protection.is_none_or(|(format, _)| {
            format.guard() == Guard::Crc16
                && format.metadata_size() == TUPLE_LEN
                && format.storage_tag_bits() == 0
        });
        let (read_only, write_cache) = (false, false);
        fits.then_some(Self { blocks, block_size, protection, read_only, write_cache }).ok_or(MediumError)
    }

    /// The same, of `blocks` blocks.
    #[must_use]
    pub const fn with_blocks(mut self, blocks: u64) -> Self {
        self.blocks = blocks;
        self
    }

    /// The same, which can't be written.
    #[must_use]
    pub const fn with_read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// The same, with a cache that a loss of power empties.
    #[must_use]
    pub const fn with_write_cache(mut self) -> Self {
        self.write_cache = true;
        self
    }

    /// Its size in blocks.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Address of the last block.
    #[must_use]
    pub const fn last_lba(&self) -> u64 {
        self.blocks.saturating_sub(1)
    }

    /// Bytes of user data in a block.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Format and type of its protection information.
    #[must_use]
    pub const fn protection(&self) -> Option<&(Format, PiType)> {
        self.protection.as_ref()
    }

    /// Its type of protection; `None` is type 0.
    #[must_use]
    pub fn pi_type(&self) -> Option<PiType> {
        self.protection.map(|(_, pi_type)| pi_type)
    }

    /// Whether it can't be written.
    #[must_use]
    pub const fn read_only(&self) -> bool {
        self.read_only
    }

    /// Whether completed writes may be lost by a power failure until they are flushed.
    #[must_use]
    pub const fn has_write_cache(&self) -> bool {
        self.write_cache
    }

    /// Which commands it has.
    #[must_use]
    pub fn profile(&self) -> Profile {
        match self.pi_type() {
            Some(PiType::Type2) => Profile::Type2Disk,
            _ => Profile::Disk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tuples_that_scsi_knows_are_presented() {
        let medium = |format| Medium::new(8, 4096, Some((format, PiType::Type2)));
        let format = Format::new(Guard::Crc16, 4096, 8).unwrap();
        assert_eq!(medium(format).unwrap().profile(), Profile::Type2Disk);
        let others = [
            Format::new(Guard::Crc16, 4096, 16).unwrap(),
            Format::new(Guard::Crc64, 4096, 16).unwrap(),
            format.with_whole_storage_tag(8).unwrap(),
        ];
        for other in others {
            assert_eq!(medium(other), Err(MediumError));
        }
        let plain = Medium::new(8, 512, None).unwrap();
        assert_eq!((plain.profile(), plain.last_lba(), plain.pi_type()), (Profile::Disk, 7, None));
    }
}
