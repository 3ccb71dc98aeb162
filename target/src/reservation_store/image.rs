//! `FILE.pr`: the bytes in which reservations that outlive a restart stand beside a volume's file.
//!
//! ```text
//! byte 0      64
//! | header | text |
//! ```
//!
//! The text is [`Saved`] as TOML. The header, little-endian:
//!
//! | Bytes | Field |
//! |---|---|
//! | 0-7 | magic, `INTACTPR` |
//! | 8-11 | version, 1 |
//! | 12-15 | bytes of the text; the file ends with them |
//! | 16-31 | UUID of the volume, most significant byte first |
//! | 32-59 | zero |
//! | 60-63 | CRC-32C of bytes 0-59 and the text |

use thiserror::Error;
use uuid::Uuid;

use crate::scsi::reservations::{Reservations, RestoreError, Saved};

const MAGIC: [u8; 8] = *b"INTACTPR";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 64;
const CRC_AT: usize = 60;

/// Bytes of a `.pr` file at most: more than what 256 registrations with the longest names take.
pub const IMAGE_MAX: u64 = 1 << 20;

/// Why bytes are not a volume's reservations.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// Too short, or too long.
    #[error("it has {length} bytes, and needs {needed}")]
    Length {
        /// Bytes that it has.
        length: u64,
        /// What it must have.
        needed: String,
    },
    /// The first bytes are not those of a `.pr` file.
    #[error("it does not start with \"INTACTPR\": it is no such file")]
    Magic,
    /// Made by a later program.
    #[error("its version is {0}, and this program knows version 1")]
    Version(u32),
    /// A bit of it is another than was written.
    #[error("it is damaged: CRC {found:#010x} at byte 60, computed {computed:#010x}")]
    Crc {
        /// Stored.
        found: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// It belongs to another volume.
    #[error("it is of the volume with UUID {found}, and this one's is {expected}")]
    Foreign {
        /// In the header.
        found: Uuid,
        /// The volume's.
        expected: Uuid,
    },
    /// What no program has written.
    #[error("its text is none of reservations: {0}")]
    Text(String),
    /// The same.
    #[error(transparent)]
    Reservations(#[from] RestoreError),
}

/// The bytes for reservations of the volume `uuid`.
#[must_use]
pub fn encode(uuid: Uuid, saved: &Saved) -> Vec<u8> {
    let text = toml::to_string(saved).expect("reservations have a form that TOML has");
    let length = u32::try_from(text.len()).expect("registrations are few");
    let mut bytes = vec![0; HEADER_LEN];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &MAGIC);
    put(8, &VERSION.to_le_bytes());
    put(12, &length.to_le_bytes());
    put(16, uuid.as_bytes());
    bytes.extend_from_slice(text.as_bytes());
    let crc = crc(&bytes);
    bytes[CRC_AT..HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The reservations of the volume `uuid` in these bytes. No nexus lives yet.
///
/// # Errors
/// Whatever keeps the bytes from being that.
pub fn decode(uuid: Uuid, bytes: &[u8]) -> Result<Reservations, ImageError> {
    let wrong_length = |needed| ImageError::Length { length: bytes.len() as u64, needed };
    let header: &[u8; HEADER_LEN] =
        bytes.first_chunk().ok_or_else(|| wrong_length(format!("at least {HEADER_LEN}")))?;
    let word = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().expect("it lies in the header"));
    if header[..8] != MAGIC {
        return Err(ImageError::Magic);
    }
    if word(8) != VERSION {
        return Err(ImageError::Version(word(8)));
    }
    let needed = HEADER_LEN as u64 + u64::from(word(12));
    if bytes.len() as u64 != needed {
        return Err(wrong_length(needed.to_string()));
    }
    let (found, computed) = (word(CRC_AT), crc(bytes));
    if found != computed {
        return Err(ImageError::Crc { found, computed });
    }
    let found = Uuid::from_bytes(*header[16..].first_chunk().expect("it lies in the header"));
    if found != uuid {
        return Err(ImageError::Foreign { found, expected: uuid });
    }
    let text = str::from_utf8(&bytes[HEADER_LEN..]).map_err(|error| ImageError::Text(error.to_string()))?;
    let saved: Saved = toml::from_str(text).map_err(|error| ImageError::Text(error.message().to_owned()))?;
    Ok(Reservations::restore(&saved)?)
}

/// Of all but the place where it stands.
fn crc(bytes: &[u8]) -> u32 {
    t10pi::crc::crc32c(t10pi::crc::crc32c(0, &bytes[..CRC_AT]), &bytes[HEADER_LEN..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: Uuid = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);

    fn saved() -> Saved {
        toml::from_str(
            "version = 1\n[reservation]\nkind = 1\nholder = 0\n[[registrations]]\nkey = \"00000000000000a0\"\n\
             [registrations.nexus]\ninitiator = [\"iqn.x:0\", [0, 0, 0, 0, 0, 1]]\ntarget_port = 1\n",
        )
        .unwrap()
    }

    /// With the sum that belongs to it.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = crc(&bytes);
        bytes[CRC_AT..HEADER_LEN].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn the_file_is_laid_out_as_documented() {
        let bytes = encode(UUID, &saved());
        let text = toml::to_string(&saved()).unwrap();
        assert_eq!(bytes[..12], *b"INTACTPR\x01\0\0\0");
        assert_eq!(bytes[12..16], u32::try_from(text.len()).unwrap().to_le_bytes());
        assert_eq!(bytes[16..32], *UUID.as_bytes());
        assert_eq!(bytes[32..60], [0; 28]);
        assert_eq!(bytes[64..], *text.as_bytes());
        let covered = [&bytes[..60], &bytes[64..]].concat();
        assert_eq!(bytes[60..64], t10pi::crc::crc32c(0, &covered).to_le_bytes());
        let there = decode(UUID, &bytes).unwrap();
        assert_eq!(there.saved(), saved());
    }

    #[test]
    fn any_damaged_bit_and_any_missing_byte_is_noticed() {
        let bytes = encode(UUID, &saved());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(UUID, &damaged).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            let found = decode(UUID, &bytes[..length]).unwrap_err();
            assert!(matches!(found, ImageError::Length { .. }), "{length}: {found}");
        }
        let found = decode(UUID, &[bytes.as_slice(), &[0]].concat()).unwrap_err();
        assert_eq!(found.to_string(), format!("it has {} bytes, and needs {}", bytes.len() + 1, bytes.len()));
    }

    #[test]
    fn what_is_another_volumes_or_of_another_form_says_so() {
        let bytes = encode(UUID, &saved());
        let other = decode(Uuid::from_u128(1), &bytes).unwrap_err().to_string();
        assert!(other.contains("00112233-4455-6677-8899-aabbccddeeff") && other.contains("0001"), "{other}");
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            decode(UUID, &sealed(bytes)).unwrap_err()
        };
        assert_eq!(with(0, b'X'), ImageError::Magic);
        assert_eq!(with(8, 2), ImageError::Version(2));
        assert!(matches!(with(64, 0xFF), ImageError::Text(_)), "not UTF-8");
        assert!(matches!(with(64, b'x'), ImageError::Text(_)), "another key");
        let two = toml::from_str("version = 2").unwrap();
        let found = decode(UUID, &encode(UUID, &two)).unwrap_err();
        assert_eq!(found, ImageError::Reservations(RestoreError::Version { found: 2 }));
    }

    #[test]
    fn the_longest_reservations_have_room() {
        // Characters that TOML writes with the most bytes.
        let name = "\\u0001".repeat(crate::scsi::nexus::NAME_MAX);
        let one = |at: usize| {
            format!(
                "[[registrations]]\nkey = \"ffffffffffffffff\"\n[registrations.nexus]\n\
                 initiator = [\"{name}\", [255, 255, 255, 255, 255, 255]]\ntarget_port = {}\n",
                65280 + at
            )
        };
        let text: String = (0..256).map(one).collect();
        let saved: Saved = toml::from_str(&format!("version = 1\n{text}")).unwrap();
        let bytes = encode(UUID, &saved);
        assert!(bytes.len() as u64 <= IMAGE_MAX, "{}", bytes.len());
        assert_eq!(decode(UUID, &bytes).unwrap().saved(), saved);
    }
}
