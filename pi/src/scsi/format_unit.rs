//! How a logical unit gets its type of protection, and says it. (SBC-4 5.4 "FORMAT UNIT", 5.21 "READ CAPACITY (16)";
//! SPC-6 "Extended INQUIRY Data".)

use super::sense::Sense;
use crate::checks::PiType;

/// The types of protection that a logical unit supports, besides none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SupportedTypes {
    /// PROTECT of the standard inquiry data: any at all.
    pub protect: bool,
    type_1: bool,
    type_2: bool,
    type_3: bool,
}

impl SupportedTypes {
    /// Reads PROTECT and SPT (0 to 7; the reserved code 6 stands for no type).
    pub const fn new(protect: bool, spt: u8) -> Self {
        Self {
            protect,
            type_1: matches!(spt, 0 | 1 | 3 | 7),
            type_2: matches!(spt, 1 | 2 | 5 | 7),
            type_3: matches!(spt, 3 | 4 | 5 | 7),
        }
    }
}

/// The type of protection that a FORMAT UNIT with these FMTPINFO (0 to 3) and PROTECTION FIELD USAGE (0 to 7; `None`
/// without a parameter list, FMTDATA = 0) gives a unit; `None` is type 0.
///
/// # Errors
/// What the standard demands for the combination.
pub const fn format_unit(
    supported: &SupportedTypes,
    fmtpinfo: u8,
    usage: Option<u8>,
) -> Result<Option<PiType>, Sense> {
    let in_cdb = Err(Sense::INVALID_FIELD_IN_CDB);
    let in_list = Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST);
    let usage = match usage {
        Some(usage) => usage,
        None if fmtpinfo != 0 => return in_cdb,
        None => 0,
    };
    match fmtpinfo {
        0 if usage == 0 => Ok(None),
        0 => in_list,
        1 => in_cdb,
        _ if !supported.protect => in_cdb,
        2 if !supported.type_1 => in_cdb,
        2 if usage == 0 => Ok(Some(PiType::Type1)),
        2 => in_list,
        _ if !(supported.type_2 || supported.type_3) => in_cdb,
        _ if usage == 0 && supported.type_2 => Ok(Some(PiType::Type2)),
        _ if usage == 1 && supported.type_3 => Ok(Some(PiType::Type3)),
        _ => in_list,
    }
}

/// Byte 12 of the READ CAPACITY (16) parameter data: `P_TYPE` and `PROT_EN`.
pub const fn read_capacity_byte_12(pi_type: Option<PiType>) -> u8 {
    match pi_type {
        None => 0,
        Some(PiType::Type1) => 0b001,
        Some(PiType::Type2) => 0b011,
        Some(PiType::Type3) => 0b101,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_combination() {
        let all = SupportedTypes::new(true, 7);
        assert_eq!(format_unit(&all, 0, None), Ok(None));
        assert_eq!(format_unit(&all, 2, Some(0)), Ok(Some(PiType::Type1)));
        assert_eq!(format_unit(&all, 3, Some(0)), Ok(Some(PiType::Type2)));
        assert_eq!(format_unit(&all, 3, Some(1)), Ok(Some(PiType::Type3)));
        assert_eq!(format_unit(&all, 2, None), Err(Sense::INVALID_FIELD_IN_CDB));
        let type_3 = SupportedTypes::new(true, 4);
        assert_eq!(format_unit(&type_3, 3, Some(0)), Err(Sense::INVALID_FIELD_IN_PARAMETER_LIST));
    }
}
