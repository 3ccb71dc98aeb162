//! How a SCSI command failed, in words. (SAM-5 "Status codes"; SPC-4 "Sense data".)
//!
//! Sans-IO. Sense data are read by [`intact::scsi::sense`].

use std::fmt;

use intact::scsi::sense::code::key;
use intact::scsi::sense::{FieldOf, FieldPointer, Sense, SenseCode};

/// How a command ended that did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// SCSI status; none when the target failed and there is none.
    pub status: Option<u8>,
    /// Why, if that was said in a format that is known.
    pub sense: Option<Sense>,
    /// Sense data of other formats, as they came.
    pub raw: Vec<u8>,
}

/// GOOD
pub const GOOD: u8 = 0x00;
/// CHECK CONDITION
const CHECK_CONDITION: u8 = 0x02;

impl Failure {
    /// What a response says that is not GOOD.
    #[must_use]
    pub fn new(status: Option<u8>, sense: &[u8]) -> Self {
        let parsed = Sense::parse(sense).map(|(sense, _)| sense);
        let raw = if parsed.is_some() { Vec::new() } else { sense.to_vec() };
        Self { status, sense: parsed, raw }
    }

    /// Whether the unit tells of something that happened, and the command may be sent again.
    #[must_use]
    pub fn is_unit_attention(&self) -> bool {
        self.status == Some(CHECK_CONDITION)
            && self.sense.is_some_and(|sense| sense.code.key == key::UNIT_ATTENTION)
    }

    /// Whether the unit does not know a field of the command, or the command.
    #[must_use]
    pub fn is_illegal_request(&self) -> bool {
        self.status == Some(CHECK_CONDITION)
            && self.sense.is_some_and(|sense| sense.code.key == key::ILLEGAL_REQUEST)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            None => f.write_str("target failure")?,
            Some(status) => match status_name(status) {
                Some(name) => f.write_str(name)?,
                None => write!(f, "{status:#04x}")?,
            },
        }
        if let Some(sense) = &self.sense {
            write_sense(f, sense)?;
        } else if !self.raw.is_empty() {
            write!(f, ", sense data {:02x?}", self.raw)?;
        }
        Ok(())
    }
}

fn write_sense(f: &mut fmt::Formatter<'_>, sense: &Sense) -> fmt::Result {
    let SenseCode { key, asc, ascq } = sense.code;
    write!(f, ", sense {} {asc:02X}/{ascq:02X}", KEYS[usize::from(key & 0xf)])?;
    if let Some(text) = text(asc, ascq) {
        write!(f, " ({text})")?;
    }
    if let Some(information) = sense.information {
        let what = if asc == MISCOMPARE { "byte" } else { "LBA" };
        write!(f, " {what} {information:#x}")?;
    }
    if let Some(FieldPointer { of, byte, bit }) = sense.field {
        let of = match of {
            FieldOf::Cdb => "CDB",
            FieldOf::ParameterList => "parameter list",
        };
        write!(f, " {of} byte {byte}")?;
        if let Some(bit) = bit {
            write!(f, " bit {bit}")?;
        }
    }
    Ok(())
}

fn status_name(status: u8) -> Option<&'static str> {
    Some(match status {
        GOOD => "GOOD",
        CHECK_CONDITION => "CHECK CONDITION",
        0x04 => "CONDITION MET",
        0x08 => "BUSY",
        0x18 => "RESERVATION CONFLICT",
        0x28 => "TASK SET FULL",
        0x30 => "ACA ACTIVE",
        0x40 => "TASK ABORTED",
        _ => return None,
    })
}

const KEYS: [&str; 16] = [
    "NO SENSE",
    "RECOVERED ERROR",
    "NOT READY",
    "MEDIUM ERROR",
    "HARDWARE ERROR",
    "ILLEGAL REQUEST",
    "UNIT ATTENTION",
    "DATA PROTECT",
    "BLANK CHECK",
    "VENDOR SPECIFIC",
    "COPY ABORTED",
    "ABORTED COMMAND",
    "0xC",
    "VOLUME OVERFLOW",
    "MISCOMPARE",
    "COMPLETED",
];

/// The additional sense code of a miscompare, whose information counts bytes.
const MISCOMPARE: u8 = 0x1D;

/// Additional sense codes that disks have, by their names in SPC-4.
fn text(asc: u8, ascq: u8) -> Option<&'static str> {
    Some(match (asc, ascq) {
        (0x00, 0x00) => "no additional sense information",
        (0x04, 0x00) => "logical unit not ready, cause not reportable",
        (0x04, 0x01) => "logical unit is in process of becoming ready",
        (0x08, 0x00) => "logical unit communication failure",
        (0x08, 0x01) => "logical unit communication time-out",
        (0x0C, 0x00) => "write error",
        (0x0E, 0x00) => "invalid information unit",
        (0x10, 0x01) => "logical block guard check failed",
        (0x10, 0x02) => "logical block application tag check failed",
        (0x10, 0x03) => "logical block reference tag check failed",
        (0x11, 0x00) => "unrecovered read error",
        (0x1A, 0x00) => "parameter list length error",
        (0x1D, 0x00) => "miscompare during verify operation",
        (0x20, 0x00) => "invalid command operation code",
        (0x21, 0x00) => "logical block address out of range",
        (0x24, 0x00) => "invalid field in CDB",
        (0x25, 0x00) => "logical unit not supported",
        (0x26, 0x00) => "invalid field in parameter list",
        (0x27, 0x00) => "write protected",
        (0x27, 0x02) => "logical unit software write protected",
        (0x27, 0x07) => "space allocation failed write protect",
        (0x29, 0x00) => "power on, reset, or bus device reset occurred",
        (0x29, 0x03) => "bus device reset function occurred",
        (0x29, 0x07) => "I_T nexus loss occurred",
        (0x2A, 0x01) => "mode parameters changed",
        (0x2A, 0x03) => "reservations preempted",
        (0x2A, 0x04) => "reservations released",
        (0x2A, 0x05) => "registrations preempted",
        (0x2A, 0x09) => "capacity data has changed",
        (0x2C, 0x00) => "command sequence error",
        (0x2F, 0x00) => "commands cleared by another initiator",
        (0x31, 0x00) => "medium format corrupted",
        (0x39, 0x00) => "saving parameters not supported",
        (0x3A, 0x00) => "medium not present",
        (0x3F, 0x0E) => "reported LUNs data has changed",
        (0x44, 0x00) => "internal target failure",
        (0x47, 0x01) => "data phase CRC error detected",
        (0x55, 0x03) => "insufficient resources",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use intact::scsi::sense::{SenseFormat, code};
    use t10pi::Field;

    use super::*;

    fn said(sense: Sense) -> String {
        let format = SenseFormat::Descriptor;
        Failure::new(Some(CHECK_CONDITION), sense.emit(format).as_bytes()).to_string()
    }

    #[test]
    fn a_failed_check_names_field_and_block() {
        let guard = SenseCode::check_failed(Field::Guard).unwrap();
        assert_eq!(
            said(Sense::at(guard, 0x40)),
            "CHECK CONDITION, sense ABORTED COMMAND 10/01 (logical block guard check failed) LBA 0x40"
        );
        assert_eq!(
            said(Sense::in_cdb(1, Some(7))),
            "CHECK CONDITION, sense ILLEGAL REQUEST 24/00 (invalid field in CDB) CDB byte 1 bit 7"
        );
        assert_eq!(
            said(Sense::at(code::MISCOMPARE_DURING_VERIFY_OPERATION, 5)),
            "CHECK CONDITION, sense MISCOMPARE 1D/00 (miscompare during verify operation) byte 0x5"
        );
    }

    #[test]
    fn every_code_that_our_target_gives_has_its_words() {
        for code in [
            code::WRITE_ERROR,
            code::UNRECOVERED_READ_ERROR,
            code::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
            code::LOGICAL_UNIT_COMMUNICATION_TIME_OUT,
            code::INTERNAL_TARGET_FAILURE,
            code::PARAMETER_LIST_LENGTH_ERROR,
            code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE,
            code::LOGICAL_UNIT_NOT_SUPPORTED,
            code::WRITE_PROTECTED,
            code::LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED,
            code::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED,
            code::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR,
            code::REPORTED_LUNS_DATA_HAS_CHANGED,
        ] {
            assert!(said(Sense::new(code)).contains('('), "{code:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_shown_as_it_came() {
        assert_eq!(Failure::new(Some(0x08), &[]).to_string(), "BUSY");
        assert_eq!(Failure::new(Some(0x77), &[]).to_string(), "0x77");
        assert_eq!(Failure::new(None, &[]).to_string(), "target failure");
        assert_eq!(Failure::new(Some(2), &[0x71, 1]).to_string(), "CHECK CONDITION, sense data [71, 01]");
        let attention = Sense::new(code::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED);
        let attention = Failure::new(Some(2), attention.emit(SenseFormat::Fixed).as_bytes());
        assert!(attention.is_unit_attention() && !attention.is_illegal_request());
    }
}
