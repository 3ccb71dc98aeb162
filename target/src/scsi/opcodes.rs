//! The commands that there are: one table, from which CDBs are recognised and checked, reservations know what a command
//! does, and REPORT SUPPORTED OPERATION CODES answers.
//!
//! Owns which bits of each CDB a host may set; never what they mean, which is [`cdb`](super::cdb)'s. (SPC-4, SBC-4.)

mod report;
mod table;
#[cfg(test)]
mod tests;

pub use self::report::{OpcodesRequest, ReportingOptions, TaskFunctions};
use self::table::OPERATIONS;
use super::cdb::Command;
use super::sense::{Sense, code};

/// Which kind of logical unit is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// A direct access block device, without protection or with type 1 or 3.
    Disk,
    /// A direct access block device with type 2 protection: it has the CDBs of 32 bytes, too.
    Type2Disk,
    /// The REPORT LUNS well known logical unit, or a number that has no unit.
    NoDisk,
}

/// What a command is for reservations (SPC-4 "Reservations", the tables of commands that are allowed).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Never conflicts.
    Free,
    /// Conflicts with what RESERVE (6) and (10) reserve for others, and with nothing persistent.
    Status,
    /// Reads the medium or the mode pages.
    Read,
    /// Changes the medium or the mode pages.
    Write,
    /// Is about persistent reservations, which decide themselves.
    Persistent,
    /// Is RESERVE or RELEASE, which decide themselves.
    Legacy,
}

/// A command that is supported.
#[derive(Debug)]
pub struct Operation {
    /// Operation code.
    pub code: u8,
    /// Service action, where the operation code has such.
    pub service_action: Option<u16>,
    /// Its name in the standard.
    pub name: &'static str,
    /// What it is for reservations.
    pub access: Access,
    /// Bits that a host may set, by byte; as long as the CDB. Operation code and service action are left out.
    bits: &'static [u8],
    /// Of those the ones that change nothing, with their byte.
    ignored: &'static [(usize, u8)],
    units: Units,
    parse: fn(&[u8]) -> Result<Command, Sense>,
}

/// Which units have a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Units {
    All,
    Disks,
    Type2Disks,
}

/// The operation code whose service action stands in bytes 8 and 9 and whose CDB says how long it is.
const VARIABLE_LENGTH: u8 = 0x7F;
/// ADDITIONAL CDB LENGTH of 32 bytes.
const ADDITIONAL_LENGTH_32: u8 = 0x18;
/// SERVICE ACTION of the other operation codes that have such, in byte 1.
const SERVICE_ACTION: u8 = 0x1F;

/// The commands that units of this profile have, as the table lists them.
pub fn supported(profile: Profile) -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().filter(move |operation| operation.units.include(profile))
}

/// Recognises a CDB; bytes behind its end are ignored. Returns what it is and what it says.
///
/// # Errors
/// INVALID COMMAND OPERATION CODE, or INVALID FIELD IN CDB with a pointer to the first field that is wrong; without a
/// pointer when the CDB ends too early.
pub fn parse(cdb: &[u8], profile: Profile) -> Result<(&'static Operation, Command), Sense> {
    let operation = find(cdb, profile)?;
    let cdb = cdb.get(..operation.bits.len()).ok_or(Sense::new(code::INVALID_FIELD_IN_CDB))?;
    if operation.code == VARIABLE_LENGTH && cdb[7] != ADDITIONAL_LENGTH_32 {
        return Err(Sense::in_cdb(7, None));
    }
    for (at, byte) in cdb.iter().enumerate() {
        let wrong = byte & !(operation.bits[at] | operation.fixed_bits(at));
        if let Some(bit) = wrong.checked_ilog2() {
            let at = u16::try_from(at).expect("CDBs are short");
            return Err(Sense::in_cdb(at, u8::try_from(bit).ok()));
        }
    }
    Ok((operation, (operation.parse)(cdb)?))
}

/// Whether a CDB is one that is executed while a unit attention condition waits (SAM-5), and for a number that has no
/// unit (SPC-4): INQUIRY, REPORT LUNS, REQUEST SENSE.
#[must_use]
pub fn passes_unit_attention(cdb: &[u8]) -> bool {
    matches!(cdb.first(), Some(&(table::INQUIRY | table::REPORT_LUNS | table::REQUEST_SENSE)))
}

/// Whether a CDB is REPORT LUNS.
pub(super) fn is_report_luns(cdb: &[u8]) -> bool {
    cdb.first() == Some(&table::REPORT_LUNS)
}

fn find(cdb: &[u8], profile: Profile) -> Result<&'static Operation, Sense> {
    let unknown = Sense::new(code::INVALID_COMMAND_OPERATION_CODE);
    let code = *cdb.first().ok_or(unknown)?;
    let mut rows =
        table::rows_of(code).iter().filter(|operation| operation.units.include(profile)).peekable();
    let first = rows.peek().ok_or(unknown)?;
    if first.service_action.is_none() {
        return Ok(first);
    }
    let short = Sense::new(code::INVALID_FIELD_IN_CDB);
    let (action, at, bit) = if code == VARIABLE_LENGTH {
        let action = cdb.get(8..10).ok_or(short)?;
        (u16::from_be_bytes([action[0], action[1]]), 8, None)
    } else {
        (u16::from(cdb.get(1).ok_or(short)? & SERVICE_ACTION), 1, Some(4))
    };
    rows.find(|operation| operation.service_action == Some(action)).ok_or_else(|| Sense::in_cdb(at, bit))
}

impl Operation {
    /// Bytes of its CDB.
    #[must_use]
    pub fn cdb_len(&self) -> usize {
        self.bits.len()
    }

    /// CDB USAGE DATA: operation code and service action, and for every other bit whether the unit looks at it.
    pub fn usage(&self) -> impl Iterator<Item = u8> {
        self.bits.iter().enumerate().map(|(at, bits)| {
            let ignored =
                self.ignored.iter().filter(|(byte, _)| *byte == at).fold(0, |all, (_, bits)| all | bits);
            let value = match (at, self.service_action) {
                (0, _) => self.code,
                (1, Some(action)) if self.code != VARIABLE_LENGTH => action.to_be_bytes()[1],
                (8 | 9, Some(action)) if self.code == VARIABLE_LENGTH => action.to_be_bytes()[at - 8],
                (7, _) if self.code == VARIABLE_LENGTH => ADDITIONAL_LENGTH_32,
                _ => 0,
            };
            bits & !ignored | value
        })
    }

    /// Bits of byte `at` that [`find`] has looked at.
    fn fixed_bits(&self, at: usize) -> u8 {
        match (at, self.code) {
            (0, _) | (7..=9, VARIABLE_LENGTH) => 0xFF,
            (1, VARIABLE_LENGTH) => 0,
            (1, _) if self.service_action.is_some() => SERVICE_ACTION,
            _ => 0,
        }
    }
}

impl Units {
    fn include(self, profile: Profile) -> bool {
        match (self, profile) {
            (Self::All, _) | (_, Profile::Type2Disk) => true,
            (Self::Disks, Profile::Disk) => true,
            (Self::Disks | Self::Type2Disks, _) => false,
        }
    }
}
