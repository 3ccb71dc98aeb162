//! Sense data: why a command failed, and where, as a value and as bytes in both formats.
//!
//! Never decides which format a host gets: that is the control mode page's D_SENSE, or DESC of REQUEST SENSE. (SPC-4
//! "Sense data".)

pub mod code;

pub use self::code::SenseCode;
use super::big_endian::{put, u16_at, u32_at, u64_at};

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Key, code and qualifier.
    pub code: SenseCode,
    /// The block, or for a miscompare the byte, that it is about.
    pub information: Option<u64>,
    /// The field that it is about.
    pub field: Option<FieldPointer>,
}

/// Which bytes a field pointer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldOf {
    /// The command descriptor block's (C/D = 1).
    Cdb,
    /// The list of parameters' (C/D = 0).
    ParameterList,
}

/// The first wrong field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldPointer {
    /// Where it stands.
    pub of: FieldOf,
    /// Its first byte, from 0.
    pub byte: u16,
    /// Its most significant bit, 0 to 7, where it is less than a byte.
    pub bit: Option<u8>,
}

/// How sense data are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SenseFormat {
    /// 18 bytes, in which addresses of 32 bits have room.
    #[default]
    Fixed,
    /// Descriptors, for addresses of 64 bits.
    Descriptor,
}

/// Sense data as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenseData {
    bytes: [u8; SENSE_MAX],
    len: usize,
}

/// Bytes of sense data at most.
pub const SENSE_MAX: usize = 28;

const FIXED_LEN: usize = 18;
const FIXED_CURRENT: u8 = 0x70;
const DESCRIPTOR_CURRENT: u8 = 0x72;
/// VALID of fixed format and of the information descriptor.
const VALID: u8 = 1 << 7;
const SKSV: u8 = 1 << 7;
const COMMAND_DATA: u8 = 1 << 6;
const BIT_POINTER_VALID: u8 = 1 << 3;
const INFORMATION: [u8; 2] = [0x00, 0x0A];
const KEY_SPECIFIC: [u8; 2] = [0x02, 0x06];

impl Sense {
    /// A code alone.
    #[must_use]
    pub const fn new(code: SenseCode) -> Self {
        Self { code, information: None, field: None }
    }

    /// A code about the block, or byte, `information`.
    #[must_use]
    pub const fn at(code: SenseCode, information: u64) -> Self {
        Self { code, information: Some(information), field: None }
    }

    /// INVALID FIELD IN CDB: the field that starts in `byte`, where it is less than a byte with `bit` (0 to 7) as its
    /// most significant one.
    #[must_use]
    pub const fn in_cdb(byte: u16, bit: Option<u8>) -> Self {
        let field = FieldPointer { of: FieldOf::Cdb, byte, bit };
        Self { code: code::INVALID_FIELD_IN_CDB, information: None, field: Some(field) }
    }

    /// INVALID FIELD IN PARAMETER LIST; `byte` and `bit` as for [`Sense::in_cdb`].
    #[must_use]
    pub const fn in_list(byte: u16, bit: Option<u8>) -> Self {
        let field = FieldPointer { of: FieldOf::ParameterList, byte, bit };
        Self { code: code::INVALID_FIELD_IN_PARAMETER_LIST, information: None, field: Some(field) }
    }

    /// Its bytes. What has no room in the format is left out: information of more than 32 bits in the fixed one.
    #[must_use]
    pub fn emit(&self, format: SenseFormat) -> SenseData {
        let mut bytes = [0; SENSE_MAX];
        let len = match format {
            SenseFormat::Fixed => self.emit_fixed(&mut bytes),
            SenseFormat::Descriptor => self.emit_descriptors(&mut bytes),
        };
        SenseData { bytes, len }
    }

    fn emit_fixed(&self, bytes: &mut [u8; SENSE_MAX]) -> usize {
        bytes[0] = FIXED_CURRENT;
        bytes[2] = self.code.key;
        if let Some(information) = self.information.and_then(|at| u32::try_from(at).ok()) {
            bytes[0] |= VALID;
            put(bytes, 3, &information.to_be_bytes());
        }
        bytes[7] = 10; // bytes behind this one
        bytes[12] = self.code.asc;
        bytes[13] = self.code.ascq;
        if let Some(field) = self.field {
            put(bytes, 15, &field.emit());
        }
        FIXED_LEN
    }

    fn emit_descriptors(&self, bytes: &mut [u8; SENSE_MAX]) -> usize {
        put(bytes, 0, &[DESCRIPTOR_CURRENT, self.code.key, self.code.asc, self.code.ascq]);
        let mut len = 8;
        if let Some(information) = self.information {
            put(bytes, len, &INFORMATION);
            bytes[len + 2] = VALID;
            put(bytes, len + 4, &information.to_be_bytes());
            len += 12;
        }
        if let Some(field) = self.field {
            put(bytes, len, &KEY_SPECIFIC);
            put(bytes, len + 4, &field.emit());
            len += 8;
        }
        bytes[7] = u8::try_from(len - 8).expect("two descriptors are short");
        len
    }

    /// Reads current sense data of either format; `None` for what this target never sends.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, SenseFormat)> {
        match bytes.first()? & !VALID {
            FIXED_CURRENT => {
                let fixed = bytes.get(..FIXED_LEN)?;
                let code = SenseCode { key: fixed[2] & 0x0F, asc: fixed[12], ascq: fixed[13] };
                let information = (fixed[0] & VALID != 0).then(|| u64::from(u32_at(fixed, 3)));
                let field = FieldPointer::parse([fixed[15], fixed[16], fixed[17]]);
                Some((Self { code, information, field }, SenseFormat::Fixed))
            }
            DESCRIPTOR_CURRENT => {
                let header = bytes.get(..8)?;
                let code = SenseCode { key: header[1] & 0x0F, asc: header[2], ascq: header[3] };
                let mut sense = Self::new(code);
                let mut rest = bytes.get(8..8 + usize::from(header[7]))?;
                while let Some((kind, tail)) = rest.split_first_chunk::<2>() {
                    let (body, tail) = tail.split_at_checked(usize::from(kind[1]))?;
                    match *kind {
                        INFORMATION => sense.information = Some(u64_at(body, 2)),
                        KEY_SPECIFIC => sense.field = FieldPointer::parse([body[2], body[3], body[4]]),
                        _ => {}
                    }
                    rest = tail;
                }
                Some((sense, SenseFormat::Descriptor))
            }
            _ => None,
        }
    }
}

impl From<SenseCode> for Sense {
    fn from(code: SenseCode) -> Self {
        Self::new(code)
    }
}

impl FieldPointer {
    /// The sense key specific field.
    fn emit(self) -> [u8; 3] {
        let [high, low] = self.byte.to_be_bytes();
        let of = match self.of {
            FieldOf::Cdb => COMMAND_DATA,
            FieldOf::ParameterList => 0,
        };
        let bit = self.bit.map_or(0, |bit| BIT_POINTER_VALID | bit & 7);
        [SKSV | of | bit, high, low]
    }

    fn parse(field: [u8; 3]) -> Option<Self> {
        let [flags, ..] = field;
        (flags & SKSV != 0).then(|| Self {
            of: if flags & COMMAND_DATA != 0 { FieldOf::Cdb } else { FieldOf::ParameterList },
            byte: u16_at(&field, 1),
            bit: (flags & BIT_POINTER_VALID != 0).then_some(flags & 7),
        })
    }
}

impl SenseData {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_sense_data_are_laid_out_as_in_the_standard() {
        let sense = Sense::at(code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE, 0x0102_0304);
        let data = sense.emit(SenseFormat::Fixed);
        assert_eq!(data.as_bytes(), [0xF0, 0, 5, 1, 2, 3, 4, 10, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0]);
        // A field pointer: SKSV, C/D, BPV, bit 3; byte 1.
        let data = Sense::in_cdb(1, Some(3)).emit(SenseFormat::Fixed);
        assert_eq!(data.as_bytes(), [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xCB, 0, 1]);
        let data = Sense::in_list(0x102, None).emit(SenseFormat::Fixed);
        assert_eq!(data.as_bytes()[12..], [0x26, 0, 0, 0x80, 1, 2]);
    }

    #[test]
    fn descriptors_are_laid_out_as_in_the_standard() {
        let sense = Sense { information: Some(0x0102_0304_0506_0708), ..Sense::in_cdb(10, Some(7)) };
        let expected = [
            0x72, 5, 0x24, 0, 0, 0, 0, 20, // header
            0x00, 0x0A, 0x80, 0, 1, 2, 3, 4, 5, 6, 7, 8, // information
            0x02, 0x06, 0, 0, 0xCF, 0, 10, 0, // field pointer
        ];
        assert_eq!(sense.emit(SenseFormat::Descriptor).as_bytes(), expected);
        let plain = Sense::new(code::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED);
        assert_eq!(plain.emit(SenseFormat::Descriptor).as_bytes(), [0x72, 6, 0x29, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn sense_data_are_read_back() {
        let senses = [
            Sense::new(code::WRITE_PROTECTED),
            Sense::at(code::UNRECOVERED_READ_ERROR, 7),
            Sense::in_cdb(0, None),
            Sense::in_list(0xFFFF, Some(0)),
            Sense { information: Some(u64::from(u32::MAX)), ..Sense::in_cdb(31, Some(6)) },
        ];
        for sense in senses {
            for format in [SenseFormat::Fixed, SenseFormat::Descriptor] {
                assert_eq!(Sense::parse(sense.emit(format).as_bytes()), Some((sense, format)));
            }
        }
    }

    #[test]
    fn an_address_without_room_in_the_fixed_format_is_not_valid() {
        let sense = Sense::at(code::WRITE_ERROR, 1 << 32);
        let (read, _) = Sense::parse(sense.emit(SenseFormat::Fixed).as_bytes()).unwrap();
        assert_eq!(read, Sense::new(code::WRITE_ERROR));
        let (read, _) = Sense::parse(sense.emit(SenseFormat::Descriptor).as_bytes()).unwrap();
        assert_eq!(read, sense);
    }

    #[test]
    fn what_is_cut_short_or_of_another_kind_is_no_sense_data() {
        for format in [SenseFormat::Fixed, SenseFormat::Descriptor] {
            let data = Sense { information: Some(1), ..Sense::in_cdb(1, None) }.emit(format);
            for len in 0..data.as_bytes().len() {
                assert_eq!(Sense::parse(&data.as_bytes()[..len]), None, "{format:?} {len}");
            }
        }
        assert_eq!(Sense::parse(&[0x71; 18]), None);
        assert_eq!(Sense::parse(&[0x73; 18]), None);
    }
}
