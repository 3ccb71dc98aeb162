//! `FILE.pi`: where the metadata of a file volume lies in the separate layout.
//!
//! Owns the layout of that file, the checks of its header against a volume, and the command line that makes one for
//! an existing image. Never reads or writes tuples; that is the engine's.
//!
//! ```text
//! byte 0                                                                                    4096
//! | header: 508 bytes, CRC | reserved, written as zero, ignored | metadata of block 0 | of block 1 | …
//! ```
//!
//! The metadata of block `lba` starts at byte `4096 + lba * metadata_size`, tuple bytes inverted, others plain: a hole
//! is the metadata of a block that nobody wrote. The file ends at a multiple of 4096 bytes, so that its last sector
//! can be read whole. The header, little-endian:
//!
//! | Bytes | Field |
//! |---|---|
//! | 0-7 | magic, `INTACTPI` |
//! | 8-11 | version, 1 |
//! | 12-15 | offset of the metadata, 4096 |
//! | 16-31 | UUID of the volume, most significant byte first |
//! | 32-35 | block size in bytes |
//! | 36-37 | metadata size in bytes |
//! | 38 | guard: 0 = CRC-16, 1 = CRC-32C, 2 = CRC-64 |
//! | 39 | position of the tuple in the metadata: 0 = last bytes, 1 = first bytes |
//! | 40 | type of protection: 1, 2 or 3 |
//! | 41 | storage tag size in bits |
//! | 42-47 | zero |
//! | 48-55 | storage tag mask |
//! | 56-63 | blocks that the data file has room for |
//! | 64-507 | zero |
//! | 508-511 | CRC-32C of bytes 0-507 |
//!
//! All of it lies in one sector of a disk, so that a crash during growth leaves the old header or the new one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use t10pi::{Format, Guard, PiType, Position};
use thiserror::Error;
use uuid::Uuid;

/// Bytes before the metadata.
pub const PI_FILE_HEADER: u64 = 4096;

/// Bytes of the header that mean something.
pub const PI_HEADER_LEN: usize = 512;

const MAGIC: [u8; 8] = *b"INTACTPI";
const VERSION: u32 = 1;
const CRC_AT: usize = 508;

/// What a `.pi` file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PiHeader {
    /// The volume that it belongs to.
    pub uuid: Uuid,
    /// Blocks, metadata and tuples. The guard is not [`Guard::Ip`].
    pub format: Format,
    /// Type of protection.
    pub pi_type: PiType,
    /// Blocks that the data file has room for.
    pub blocks: u64,
}

/// Why a `.pi` file can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PiFileError {
    /// Too short for a header, or for the metadata of its blocks.
    #[error("it is truncated: {length} bytes, and needs {needed}")]
    Truncated {
        /// Bytes that it has.
        length: u64,
        /// Bytes that it must have.
        needed: u64,
    },
    /// The first bytes are not those of a `.pi` file.
    #[error("it does not start with \"INTACTPI\": it is no such file")]
    Magic,
    /// Made by a later program.
    #[error("its version is {0}, and this program knows version 1")]
    Version(u32),
    /// The header is damaged.
    #[error("its header is damaged: CRC {found:#010x} at byte 508, computed {computed:#010x}")]
    Crc {
        /// Stored.
        found: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// A field that no writer writes.
    #[error("its header is invalid: {0}")]
    Invalid(&'static str),
    /// A field that does not fit the volume.
    #[error("its {field} is {found}, and the volume has {expected}")]
    Mismatch {
        /// Which.
        field: &'static str,
        /// In the header.
        found: String,
        /// Of the volume.
        expected: String,
    },
}

impl PiHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; PI_HEADER_LEN] {
        let mut bytes = [0; PI_HEADER_LEN];
        let format = &self.format;
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &4096_u32.to_le_bytes());
        put(16, self.uuid.as_bytes());
        put(32, &format.block_size().to_le_bytes());
        put(36, &format.metadata_size().to_le_bytes());
        let position = u8::from(format.position() == Position::First);
        put(38, &[guard_code(format.guard()), position, self.pi_type.number(), format.storage_tag_bits()]);
        put(48, &format.storage_tag_mask().to_le_bytes());
        put(56, &self.blocks.to_le_bytes());
        let crc = t10pi::crc::crc32c(0, &bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// Whatever keeps these bytes from being one.
    pub fn decode(bytes: &[u8; PI_HEADER_LEN]) -> Result<Self, PiFileError> {
        let word = |at: usize| u32::from_le_bytes(array(bytes, at));
        let long = |at: usize| u64::from_le_bytes(array(bytes, at));
        if bytes[..8] != MAGIC {
            return Err(PiFileError::Magic);
        }
        if word(8) != VERSION {
            return Err(PiFileError::Version(word(8)));
        }
        let computed = t10pi::crc::crc32c(0, &bytes[..CRC_AT]);
        if word(CRC_AT) != computed {
            return Err(PiFileError::Crc { found: word(CRC_AT), computed });
        }
        if word(12) != 4096 {
            return Err(PiFileError::Invalid("metadata does not start at byte 4096"));
        }
        let guard = match bytes[38] {
            0 => Guard::Crc16,
            1 => Guard::Crc32c,
            2 => Guard::Crc64,
            _ => return Err(PiFileError::Invalid("no such guard")),
        };
        let position = match bytes[39] {
            0 => Position::Last,
            1 => Position::First,
            _ => return Err(PiFileError::Invalid("no such position of the tuple")),
        };
        let pi_type =
            PiType::from_number(bytes[40]).ok_or(PiFileError::Invalid("no such type of protection"))?;
        let format = Format::new(guard, word(32), u16::from_le_bytes(array(bytes, 36)))
            .and_then(|format| format.with_position(position).with_storage_tag(bytes[41], long(48)))
            .map_err(|_| PiFileError::Invalid("its sizes are no format"))?;
        Ok(Self { uuid: Uuid::from_bytes(array(bytes, 16)), format, pi_type, blocks: long(56) })
    }

    /// Whether it belongs to the volume that `volume` describes; sizes are compared by the caller.
    ///
    /// # Errors
    /// The first field that differs.
    pub fn check(&self, volume: &Self) -> Result<(), PiFileError> {
        let (ours, theirs) = (&volume.format, &self.format);
        let fields = [
            ("block size", theirs.block_size().to_string(), ours.block_size().to_string()),
            ("metadata size", theirs.metadata_size().to_string(), ours.metadata_size().to_string()),
            ("guard", theirs.guard().name().to_owned(), ours.guard().name().to_owned()),
            ("tuple position", format!("{:?}", theirs.position()), format!("{:?}", ours.position())),
            ("storage tag size", theirs.storage_tag_bits().to_string(), ours.storage_tag_bits().to_string()),
            (
                "storage tag mask",
                format!("{:#x}", theirs.storage_tag_mask()),
                format!("{:#x}", ours.storage_tag_mask()),
            ),
            ("type", self.pi_type.number().to_string(), volume.pi_type.number().to_string()),
            ("UUID", self.uuid.to_string(), volume.uuid.to_string()),
        ];
        match fields.into_iter().find(|(_, found, expected)| found != expected) {
            Some((field, found, expected)) => Err(PiFileError::Mismatch { field, found, expected }),
            None => Ok(()),
        }
    }

    /// Bytes of a `.pi` file for this many blocks.
    #[must_use]
    pub fn file_length(&self) -> u64 {
        let metadata = self.blocks.saturating_mul(u64::from(self.format.metadata_size()));
        metadata.saturating_add(PI_FILE_HEADER).checked_next_multiple_of(4096).unwrap_or(u64::MAX)
    }

    /// The command that makes `FILE.pi` from the data in `file`.
    #[must_use]
    pub fn generate_command(&self, file: &Path) -> String {
        let format = &self.format;
        let mut command = format!(
            "intact-pi generate --file {} --block-size {} --type {} --guard {} --metadata-size {} --uuid {}",
            quoted(file),
            format.block_size(),
            self.pi_type.number(),
            format.guard().name(),
            format.metadata_size(),
            self.uuid,
        );
        if format.storage_tag_bits() > 0 {
            command.push_str(&format!(
                " --storage-tag-bits {} --storage-tag-mask {:#x}",
                format.storage_tag_bits(),
                format.storage_tag_mask()
            ));
        }
        command
    }
}

/// `FILE.pi`.
#[must_use]
pub fn pi_path(file: &Path) -> PathBuf {
    let mut path = OsString::from(file);
    path.push(".pi");
    PathBuf::from(path)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes is an array of N")
}

fn guard_code(guard: Guard) -> u8 {
    match guard {
        Guard::Crc16 => 0,
        Guard::Crc32c => 1,
        Guard::Crc64 => 2,
        Guard::Ip => unreachable!("the Internet checksum is never on a medium; volumes refuse it"),
    }
}

/// The path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> PiHeader {
        PiHeader {
            uuid: Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
            format: Format::new(Guard::Crc64, 4096, 16).unwrap().with_storage_tag(18, 0x3_00FF).unwrap(),
            pi_type: PiType::Type2,
            blocks: 0x0102_0304,
        }
    }

    #[test]
    fn the_header_is_laid_out_as_documented() {
        let bytes = header().encode();
        assert_eq!(bytes[..16], *b"INTACTPI\x01\0\0\0\0\x10\0\0");
        assert_eq!(bytes[16..32], 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes());
        assert_eq!(bytes[32..48], [0, 0x10, 0, 0, 16, 0, 2, 0, 2, 18, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[48..64], [0xFF, 0, 3, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
        assert!(bytes[64..508].iter().all(|&byte| byte == 0));
        assert_eq!(bytes[508..], t10pi::crc::crc32c(0, &bytes[..508]).to_le_bytes());
        assert_eq!(PiHeader::decode(&bytes), Ok(header()));
    }

    #[test]
    fn any_damaged_bit_is_noticed() {
        let bytes = header().encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(PiHeader::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_valid_sum_does_not_make_an_invalid_field_valid() {
        for (at, value) in [(12, 0), (36, 8), (38, 3), (39, 2), (40, 0), (41, 49)] {
            let mut bytes = header().encode();
            bytes[at] = value;
            bytes[13] = if at == 12 { 0 } else { bytes[13] };
            let crc = t10pi::crc::crc32c(0, &bytes[..508]);
            bytes[508..].copy_from_slice(&crc.to_le_bytes());
            assert!(matches!(PiHeader::decode(&bytes), Err(PiFileError::Invalid(_))), "byte {at}");
        }
    }

    #[test]
    fn a_difference_is_named_with_both_sides() {
        let other = PiHeader { pi_type: PiType::Type1, ..header() };
        let error = header().check(&other).unwrap_err().to_string();
        assert_eq!(error, "its type is 2, and the volume has 1");
        let other = PiHeader { format: Format::new(Guard::Crc16, 512, 8).unwrap(), ..header() };
        let error = header().check(&other).unwrap_err().to_string();
        assert_eq!(error, "its block size is 4096, and the volume has 512");
        assert_eq!(header().check(&PiHeader { blocks: 1, ..header() }), Ok(()));
    }

    #[test]
    fn the_command_is_one_that_a_shell_takes() {
        let command = header().generate_command(Path::new("/srv/disk0.img"));
        assert_eq!(
            command,
            "intact-pi generate --file /srv/disk0.img --block-size 4096 --type 2 --guard crc64 \
             --metadata-size 16 --uuid 00112233-4455-6677-8899-aabbccddeeff --storage-tag-bits 18 \
             --storage-tag-mask 0x300ff"
        );
        let command = header().generate_command(Path::new("/srv/my disk's.img"));
        assert!(command.contains(r"--file '/srv/my disk'\''s.img' "), "{command}");
    }

    #[test]
    fn the_file_ends_at_a_page() {
        assert_eq!(PiHeader { blocks: 0, ..header() }.file_length(), 4096);
        assert_eq!(PiHeader { blocks: 1, ..header() }.file_length(), 8192);
        assert_eq!(PiHeader { blocks: 256, ..header() }.file_length(), 8192);
        assert_eq!(PiHeader { blocks: 257, ..header() }.file_length(), 12288);
    }
}
