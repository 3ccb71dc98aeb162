//! What signatures a device knows, and why it does not know the others. (rw-contexts 2.6.1; pi 8)
//!
//! Plain values: asks no device. What a device does not know is for software.

use t10pi::{Format, Guard, Position};
use thiserror::Error;

use super::ffi;

/// What a device's signatures can be of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SigCaps {
    block_sizes: u64,
    protections: u32,
    guards: u16,
    checksums: u16,
}

/// Bytes that a tuple of the device may cover, and the device's number for them.
const BLOCK_SIZES: [(u32, u32); 5] = [
    (512, ffi::BLOCK_SIZE_512),
    (520, ffi::BLOCK_SIZE_520),
    (4048, ffi::BLOCK_SIZE_4048),
    (4096, ffi::BLOCK_SIZE_4096),
    (4160, ffi::BLOCK_SIZE_4160),
];

/// A checksum that a device can put behind blocks, without tags: none of our formats is like that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// CRC-32.
    Crc32,
    /// CRC-32C.
    Crc32c,
    /// CRC-64/XP10.
    Crc64Xp10,
}

/// Why a device does not execute a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// The device has no signatures of this interface, or not with errors that tell what failed.
    #[error("the device has no T10-DIF signatures")]
    NoT10Dif,
    /// Tuples with 32-bit and 64-bit guards.
    #[error("the device has no tags beside guard {}, only a checksum", .0.name())]
    Guard(Guard),
    /// The device lacks this guard of 8-byte tuples.
    #[error("the device does not compute guard {}", .0.name())]
    GuardOfDevice(Guard),
    /// Tuples with a storage tag.
    #[error("the device has no storage tags, the format has {0} bits of it")]
    StorageTag(u8),
    /// The tuple covers a number of bytes that the device does not know.
    #[error("the device checks no blocks of {0} bytes")]
    BlockSize(u32),
    /// Metadata beside the tuple which the device would take for data.
    #[error("the device has no metadata beside tuples, the format has {0} bytes with its tuple")]
    Metadata(u16),
    /// The device starts guards with none or all bits set.
    #[error("the device does not start guards from {0:#06x}")]
    GuardSeed(u64),
    /// The device compares whole bytes of application tags.
    #[error("the device does not compare application tags under mask {0:#06x}, only whole bytes")]
    AppTagMask(u16),
    /// Blocks whose tuples say that nothing is checked would keep them in software, when only tags are new; nothing says that
    /// the device does the same.
    #[error("the device may give new tags to tuples that are not checked")]
    EscapedRewrite,
}

impl SigCaps {
    /// Those that the library tells of.
    #[must_use]
    pub fn new(raw: &ffi::SigCaps) -> Self {
        Self {
            block_sizes: raw.block_size,
            protections: raw.block_prot,
            guards: raw.t10dif_bg,
            checksums: raw.crc_type,
        }
    }

    /// Whether there are signatures with tuples at all.
    #[must_use]
    pub fn has_t10dif(&self) -> bool {
        self.protections & ffi::SIG_PROT_CAP_T10DIF != 0
    }

    /// Whether the device computes this guard.
    #[must_use]
    pub fn has_guard(&self, guard: Guard) -> bool {
        let number = match guard {
            Guard::Crc16 => ffi::T10DIF_CRC,
            Guard::Ip => ffi::T10DIF_CSUM,
            Guard::Crc32c | Guard::Crc64 => return false,
        };
        self.has_t10dif() && self.guards & (1 << number) != 0
    }

    /// Whether the device puts this checksum behind blocks.
    #[must_use]
    pub fn has_checksum(&self, checksum: Checksum) -> bool {
        let number = match checksum {
            Checksum::Crc32 => ffi::CRC_TYPE_CRC32,
            Checksum::Crc32c => ffi::CRC_TYPE_CRC32C,
            Checksum::Crc64Xp10 => ffi::CRC_TYPE_CRC64_XP10,
        };
        self.protections & ffi::SIG_PROT_CAP_CRC != 0 && self.checksums & (1 << number) != 0
    }

    /// The numbers of bytes that a tuple may cover, ascending.
    pub fn block_sizes(&self) -> impl Iterator<Item = u32> {
        let known = self.block_sizes;
        BLOCK_SIZES.into_iter().filter(move |(_, number)| known & (1 << number) != 0).map(|(bytes, _)| bytes)
    }

    /// Whether the device executes signatures of this format, whatever becomes of the tuples.
    ///
    /// # Errors
    /// What the device lacks.
    pub fn supports(&self, format: &Format) -> Result<(), Unsupported> {
        self.block_size_of(format, Sides::One).map(|_| ())
    }

    /// The device's number for the block of a format.
    pub(super) fn block_size_of(&self, format: &Format, sides: Sides) -> Result<u32, Unsupported> {
        let guard = format.guard();
        if !self.has_t10dif() {
            return Err(Unsupported::NoT10Dif);
        }
        if format.tuple_size() != 8 {
            return Err(Unsupported::Guard(guard));
        }
        if !self.has_guard(guard) {
            return Err(Unsupported::GuardOfDevice(guard));
        }
        if format.storage_tag_bits() != 0 {
            return Err(Unsupported::StorageTag(format.storage_tag_bits()));
        }
        let covered = format.block_size() + u32::from(format.metadata_size()) - 8;
        let alone = format.metadata_size() == 8;
        // Metadata before the tuple is covered by the guard, and so is data for the device; it can't be left out on one side.
        if !alone && (sides == Sides::One || format.position() != Position::Last) {
            return Err(Unsupported::Metadata(format.metadata_size()));
        }
        BLOCK_SIZES
            .into_iter()
            .find(|(bytes, number)| *bytes == covered && self.block_sizes & (1 << number) != 0)
            .map(|(_, number)| number)
            .ok_or(Unsupported::BlockSize(covered))
    }
}

/// How many domains of a signature have tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    /// They are inserted or stripped.
    One,
    /// They are passed.
    Both,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with all that the interface has.
    fn everything() -> SigCaps {
        SigCaps::new(&ffi::SigCaps { block_size: 0x1F, block_prot: 3, t10dif_bg: 3, crc_type: 7 })
    }

    #[test]
    fn bits_are_those_of_the_interface() {
        // rw-contexts 2.6.1: what a device always has, if it has any.
        let caps =
            SigCaps::new(&ffi::SigCaps { block_size: 0b11011, block_prot: 3, t10dif_bg: 3, crc_type: 1 });
        assert_eq!(caps.block_sizes().collect::<Vec<_>>(), [512, 520, 4096, 4160]);
        assert!(caps.has_t10dif() && caps.has_guard(Guard::Crc16) && caps.has_guard(Guard::Ip));
        assert!(!caps.has_guard(Guard::Crc32c) && !caps.has_guard(Guard::Crc64));
        let checksums = [Checksum::Crc32, Checksum::Crc32c, Checksum::Crc64Xp10];
        assert_eq!(checksums.map(|checksum| caps.has_checksum(checksum)), [true, false, false]);
        assert_eq!(checksums.map(|checksum| everything().has_checksum(checksum)), [true; 3]);
        assert_eq!(everything().block_sizes().collect::<Vec<_>>(), [512, 520, 4048, 4096, 4160]);
        let none = SigCaps::default();
        assert!(!none.has_t10dif() && none.block_sizes().next().is_none());
        assert_eq!(checksums.map(|checksum| none.has_checksum(checksum)), [false; 3]);
    }

    #[test]
    fn formats_are_refused_for_the_first_thing_that_the_device_lacks() {
        let crc16 = Format::new(Guard::Crc16, 4096, 8).unwrap();
        let all = everything();
        let refused = |caps: &SigCaps, format: &Format| caps.supports(format).unwrap_err();
        assert_eq!(all.supports(&crc16), Ok(()));
        assert_eq!(all.supports(&Format::new(Guard::Ip, 512, 8).unwrap()), Ok(()));
        assert_eq!(refused(&SigCaps::default(), &crc16), Unsupported::NoT10Dif);
        for guard in [Guard::Crc32c, Guard::Crc64] {
            assert_eq!(refused(&all, &Format::new(guard, 4096, 16).unwrap()), Unsupported::Guard(guard));
        }
        let no_csum = SigCaps { guards: 1, ..all };
        let ip = Format::new(Guard::Ip, 512, 8).unwrap();
        assert_eq!(refused(&no_csum, &ip), Unsupported::GuardOfDevice(Guard::Ip));
        assert_eq!(refused(&all, &crc16.with_storage_tag(8, 0xFF).unwrap()), Unsupported::StorageTag(8));
        assert_eq!(refused(&all, &Format::new(Guard::Crc16, 1024, 8).unwrap()), Unsupported::BlockSize(1024));
        let small = SigCaps { block_sizes: 1, ..all };
        assert_eq!(refused(&small, &crc16), Unsupported::BlockSize(4096));
    }

    #[test]
    fn metadata_before_the_tuple_is_data_of_the_device_where_both_sides_have_it() {
        let all = everything();
        let wide = Format::new(Guard::Crc16, 512, 16).unwrap();
        assert_eq!(all.supports(&wide), Err(Unsupported::Metadata(16)));
        assert_eq!(all.block_size_of(&wide, Sides::Both), Ok(ffi::BLOCK_SIZE_520));
        let first = wide.with_position(Position::First);
        assert_eq!(all.block_size_of(&first, Sides::Both), Err(Unsupported::Metadata(16)));
        let large = Format::new(Guard::Crc16, 4096, 64).unwrap();
        assert_eq!(all.block_size_of(&large, Sides::Both), Err(Unsupported::BlockSize(4152)));
    }

    #[test]
    fn reasons_are_sentences_of_their_values() {
        for (reason, text) in [
            (Unsupported::Guard(Guard::Crc64), "the device has no tags beside guard crc64, only a checksum"),
            (Unsupported::BlockSize(1024), "the device checks no blocks of 1024 bytes"),
            (
                Unsupported::AppTagMask(0xFFF),
                "the device does not compare application tags under mask 0x0fff, only whole bytes",
            ),
        ] {
            assert_eq!(reason.to_string(), text);
        }
    }
}
