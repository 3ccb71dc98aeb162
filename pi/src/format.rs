//! The format of protected blocks: which guard, how large block and metadata are, where the tuple lies, and how its
//! last field splits into storage tag and reference tag.
//!
//! Owns the rules that make a format valid and the arithmetic of tag widths. Never touches data. Formats that only
//! the library may use (odd block sizes, protection information in the first bytes) are valid here; whether a format
//! may be offered by a controller is [`Format::is_nvme_legal`]. (NVM Command Set, "Protection Information Formats".)

use std::ops::RangeInclusive;

use crate::error::FormatError;

/// The guard field's checksum. It also decides the size and layout of the tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// CRC-16/T10-DIF: 8-byte tuple, 2-byte guard. The only guard SCSI knows.
    Crc16,
    /// CRC-32C: 16-byte tuple, 4-byte guard.
    Crc32c,
    /// CRC-64/NVME: 16-byte tuple, 8-byte guard.
    Crc64,
    /// Internet checksum: 8-byte tuple, 2-byte guard. A memory-side (DIX) format, never on a wire or a medium.
    Ip,
}

impl Guard {
    /// What configurations and command lines call it: `crc16`, `crc32c`, `crc64` or `ip`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc16 => "crc16",
            Self::Crc32c => "crc32c",
            Self::Crc64 => "crc64",
            Self::Ip => "ip",
        }
    }

    /// Bytes of the guard field: 2, 4 or 8.
    pub const fn size(self) -> usize {
        match self {
            Self::Crc16 | Self::Ip => 2,
            Self::Crc32c => 4,
            Self::Crc64 => 8,
        }
    }

    /// State of its checksum before the first byte, as it stands in a register: what every standard says.
    pub const fn seed(self) -> u64 {
        match self {
            Self::Crc16 | Self::Ip => 0,
            Self::Crc32c => u32::MAX as u64,
            Self::Crc64 => u64::MAX,
        }
    }

    /// Bytes of the whole tuple: 8 or 16.
    pub const fn tuple_size(self) -> usize {
        match self {
            Self::Crc16 | Self::Ip => 8,
            Self::Crc32c | Self::Crc64 => 16,
        }
    }

    /// Width in bits of the space that storage tag and reference tag share: 32, 80 or 48.
    pub const fn space_bits(self) -> u8 {
        match self {
            Self::Crc16 | Self::Ip => 32,
            Self::Crc32c => 80,
            Self::Crc64 => 48,
        }
    }

    /// Storage tag sizes in bits that this guard allows.
    pub const fn storage_tag_range(self) -> RangeInclusive<u8> {
        match self {
            Self::Crc16 | Self::Ip => 0..=32,
            Self::Crc32c => 16..=64,
            Self::Crc64 => 0..=48,
        }
    }
}

/// Where the tuple lies in a block's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Position {
    /// In the first bytes: the guard covers the user data alone.
    First,
    /// In the last bytes: the guard covers the user data and the metadata before the tuple.
    #[default]
    Last,
}

/// A validated protection format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    guard: Guard,
    block_size: u32,
    metadata_size: u16,
    position: Position,
    storage_tag_bits: u8,
    storage_tag_mask: u64,
}

impl Format {
    /// Returns the format with the tuple in the last bytes and the smallest storage tag that the guard allows
    /// (none; 16 bits, all compared, for [`Guard::Crc32c`]).
    ///
    /// `block_size` is the user data that one tuple covers, in bytes; `metadata_size` the metadata of one block,
    /// tuple included, in bytes.
    ///
    /// # Errors
    /// [`FormatError::BlockSize`] for a block of no bytes, [`FormatError::MetadataSize`] when the metadata is
    /// smaller than the tuple.
    pub const fn new(guard: Guard, block_size: u32, metadata_size: u16) -> Result<Self, FormatError> {
        if block_size == 0 {
            return Err(FormatError::BlockSize);
        }
        let tuple_size = guard.tuple_size();
        if (metadata_size as usize) < tuple_size {
            return Err(FormatError::MetadataSize { metadata_size, tuple_size });
        }
        let storage_tag_bits = *guard.storage_tag_range().start();
        let storage_tag_mask = low_bits(storage_tag_bits);
        let position = Position::Last;
        Ok(Self { guard, block_size, metadata_size, position, storage_tag_bits, storage_tag_mask })
    }

    /// Returns this format with the tuple at `position` of the metadata.
    #[must_use]
    pub const fn with_position(mut self, position: Position) -> Self {
        self.position = position;
        self
    }

    /// Returns this format with a storage tag of `bits` bits, of which those set in `mask` are compared (bit 0 is
    /// the least significant bit of the storage tag).
    ///
    /// # Errors
    /// [`FormatError::StorageTagBits`] when the guard does not allow the size, [`FormatError::StorageTagMask`] when
    /// the mask has bits that the tag has not.
    pub const fn with_storage_tag(mut self, bits: u8, mask: u64) -> Result<Self, FormatError> {
        let (min, max) = (*self.guard.storage_tag_range().start(), *self.guard.storage_tag_range().end());
        if bits < min || bits > max {
            return Err(FormatError::StorageTagBits { bits, min, max });
        }
        if mask & !low_bits(bits) != 0 {
            return Err(FormatError::StorageTagMask { mask, bits });
        }
        self.storage_tag_bits = bits;
        self.storage_tag_mask = mask;
        Ok(self)
    }

    /// Returns this format with a storage tag of `bits` bits, all of which are compared.
    ///
    /// # Errors
    /// [`FormatError::StorageTagBits`] when the guard does not allow the size.
    pub const fn with_whole_storage_tag(self, bits: u8) -> Result<Self, FormatError> {
        // A size that no guard allows has no mask, and is refused with any.
        self.with_storage_tag(bits, if bits > 64 { 0 } else { low_bits(bits) })
    }

    /// The guard.
    pub const fn guard(&self) -> Guard {
        self.guard
    }

    /// User data of one block, in bytes; at least 1.
    pub const fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Metadata of one block with its tuple, in bytes; at least [`tuple_size`](Self::tuple_size).
    pub const fn metadata_size(&self) -> u16 {
        self.metadata_size
    }

    /// Where the tuple lies in the metadata.
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Width of the storage tag in bits (STS); 0 = none.
    pub const fn storage_tag_bits(&self) -> u8 {
        self.storage_tag_bits
    }

    /// Which bits of the storage tag are compared (LBSTM).
    pub const fn storage_tag_mask(&self) -> u64 {
        self.storage_tag_mask
    }

    /// Bytes of the tuple: 8 or 16.
    pub const fn tuple_size(&self) -> usize {
        self.guard.tuple_size()
    }

    /// Width of the reference tag in bits (R), 0 to 64; 0 = there is no reference tag.
    pub const fn ref_tag_bits(&self) -> u8 {
        self.guard.space_bits() - self.storage_tag_bits
    }

    /// Offset of the tuple in a block's metadata, in bytes.
    pub const fn tuple_offset(&self) -> usize {
        match self.position {
            Position::First => 0,
            Position::Last => self.metadata_size as usize - self.tuple_size(),
        }
    }

    /// Bytes of one block in an interleaved stream: user data and metadata.
    pub const fn interleaved_block_size(&self) -> usize {
        self.block_size as usize + self.metadata_size as usize
    }

    /// The reference tag that type 1 gives to the block at `lba`: the low bits of the address.
    pub const fn ref_tag_of(&self, lba: u64) -> u64 {
        lba & low_bits(self.ref_tag_bits())
    }

    /// Whether an NVMe namespace may have this format: a power of two of at least 512 bytes (4096 for the 16-byte
    /// tuples), the tuple in the last bytes, and no guard of the memory side.
    pub const fn is_nvme_legal(&self) -> bool {
        let min = match self.guard {
            Guard::Crc16 => 512,
            Guard::Crc32c | Guard::Crc64 => 4096,
            Guard::Ip => return false,
        };
        self.block_size >= min && self.block_size.is_power_of_two() && matches!(self.position, Position::Last)
    }

    /// Whether this is an extended format, which a host must declare to understand (LBAFEE).
    pub const fn is_extended(&self) -> bool {
        !matches!(self.guard, Guard::Crc16) || self.storage_tag_bits != 0
    }

    /// Splits the 80-bit tag field of a command into storage tag and reference tag; bits that the format does not
    /// use are ignored. (NVM Command Set, "Logical Block Storage Tag and Logical Block Reference Tag".)
    pub const fn unpack_tags(&self, field: CommandTags) -> (u64, u64) {
        let space =
            (((field.cdw2 & 0xFFFF) as u128) << 64 | (field.cdw3 as u128) << 32 | field.cdw14 as u128)
                & low_bits_wide(self.guard.space_bits());
        self.split_space(space)
    }

    /// Joins a storage tag and a reference tag into the 80-bit tag field of a command; excess bits are dropped and
    /// unused dwords are zero.
    pub const fn pack_tags(&self, storage_tag: u64, ref_tag: u64) -> CommandTags {
        let space = self.join_space(storage_tag, ref_tag).to_be_bytes();
        CommandTags {
            cdw2: u32::from_be_bytes([0, 0, space[6], space[7]]),
            cdw3: u32::from_be_bytes([space[8], space[9], space[10], space[11]]),
            cdw14: u32::from_be_bytes([space[12], space[13], space[14], space[15]]),
        }
    }

    /// Splits a tuple's last field into storage tag and reference tag.
    pub(crate) const fn split_space(&self, space: u128) -> (u64, u64) {
        let ref_bits = self.ref_tag_bits();
        let storage = (space >> ref_bits) & low_bits_wide(self.storage_tag_bits);
        (truncate(storage), truncate(space) & low_bits(ref_bits))
    }

    /// Joins storage tag and reference tag into a tuple's last field.
    pub(crate) const fn join_space(&self, storage_tag: u64, ref_tag: u64) -> u128 {
        let ref_bits = self.ref_tag_bits();
        let storage = (storage_tag & low_bits(self.storage_tag_bits)) as u128;
        storage << ref_bits | (ref_tag & low_bits(ref_bits)) as u128
    }
}

/// The tag field of a submission queue entry, as native integers. Bits beyond the format's width are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommandTags {
    /// Tag bits 79:64, in the low 16 bits.
    pub cdw2: u32,
    /// Tag bits 63:32.
    pub cdw3: u32,
    /// Tag bits 31:0.
    pub cdw14: u32,
}

/// A word whose low `bits` bits are set; `bits` up to 64.
pub(crate) const fn low_bits(bits: u8) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (64 - bits) }
}

/// A double word whose low `bits` bits are set; `bits` up to 127.
pub(crate) const fn low_bits_wide(bits: u8) -> u128 {
    (1 << bits) - 1
}

/// The low 64 bits.
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
pub(crate) const fn truncate(wide: u128) -> u64 {
    wide as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_without_room_for_its_tuple_is_refused() {
        assert_eq!(Format::new(Guard::Crc16, 0, 8), Err(FormatError::BlockSize));
        let small = Format::new(Guard::Crc64, 4096, 8);
        assert_eq!(small, Err(FormatError::MetadataSize { metadata_size: 8, tuple_size: 16 }));
    }

    #[test]
    fn storage_tags_keep_to_the_range_of_their_guard() {
        let format = Format::new(Guard::Crc32c, 4096, 16).unwrap();
        assert_eq!((format.storage_tag_bits(), format.storage_tag_mask()), (16, 0xFFFF));
        let error = format.with_storage_tag(15, 0);
        assert_eq!(error, Err(FormatError::StorageTagBits { bits: 15, min: 16, max: 64 }));
        let error = format.with_storage_tag(16, 0x1_0000);
        assert_eq!(error, Err(FormatError::StorageTagMask { mask: 0x1_0000, bits: 16 }));
        assert_eq!(format.with_storage_tag(64, u64::MAX).unwrap().ref_tag_bits(), 16);
        let none = Format::new(Guard::Crc16, 512, 8).unwrap().with_storage_tag(32, 0).unwrap();
        assert_eq!((none.ref_tag_bits(), none.ref_tag_of(u64::MAX)), (0, 0));
    }

    #[test]
    fn command_tags_are_right_aligned_in_the_eighty_bit_field() {
        let format = Format::new(Guard::Crc64, 4096, 16).unwrap().with_storage_tag(18, 0).unwrap();
        let field = format.pack_tags(0x2_AAAB, 5);
        assert_eq!(field, CommandTags { cdw2: 0, cdw3: 0xAAAA, cdw14: 0xC000_0005 });
        let junk = CommandTags { cdw2: 0xDEAD_BEEF, cdw3: 0x1234_AAAA, ..field };
        assert_eq!(format.unpack_tags(junk), (0x2_AAAB, 5));
    }
}
