//! CDBs of reservations, persistent ones and those of SPC-2.

use super::Command;
use crate::scsi::big_endian::{u16_at, u32_at};
use crate::scsi::sense::{Sense, code};

/// What PERSISTENT RESERVE IN tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusOf {
    /// READ KEYS
    Keys,
    /// READ RESERVATION
    Reservation,
    /// REPORT CAPABILITIES
    Capabilities,
    /// READ FULL STATUS
    Registrations,
}

/// What PERSISTENT RESERVE OUT does. REGISTER AND MOVE and REPLACE LOST RESERVATION are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutAction {
    /// REGISTER
    Register,
    /// RESERVE
    Reserve,
    /// RELEASE
    Release,
    /// CLEAR
    Clear,
    /// PREEMPT
    Preempt,
    /// PREEMPT AND ABORT
    PreemptAndAbort,
    /// REGISTER AND IGNORE EXISTING KEY
    RegisterAndIgnore,
}

/// PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistentOut {
    /// The service action.
    pub action: OutAction,
    /// SCOPE, 0 to Fh; only of RESERVE, RELEASE, PREEMPT and PREEMPT AND ABORT.
    pub scope: u8,
    /// TYPE, 0 to Fh; of the same.
    pub kind: u8,
}

impl PersistentOut {
    /// Bytes of its list of parameters.
    pub const LIST_LEN: usize = 24;
}

/// Bits of the CDBs, for the table.
pub(in crate::scsi) const IN: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0];
pub(in crate::scsi) const OUT: &[u8] = &[0, 0, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0];

type Parsed = Result<Command, Sense>;

pub(in crate::scsi) fn reserve(_: &[u8]) -> Parsed {
    Ok(Command::Reserve)
}

pub(in crate::scsi) fn release(_: &[u8]) -> Parsed {
    Ok(Command::Release)
}

pub(in crate::scsi) fn persistent_in(cdb: &[u8]) -> Parsed {
    let of = match cdb[1] & 0x1F {
        0 => StatusOf::Keys,
        1 => StatusOf::Reservation,
        2 => StatusOf::Capabilities,
        3 => StatusOf::Registrations,
        _ => return Err(Sense::in_cdb(1, Some(4))),
    };
    Ok(Command::PersistentIn { of, allocation: usize::from(u16_at(cdb, 7)) })
}

pub(in crate::scsi) fn persistent_out(cdb: &[u8]) -> Parsed {
    let action = match cdb[1] & 0x1F {
        0 => OutAction::Register,
        1 => OutAction::Reserve,
        2 => OutAction::Release,
        3 => OutAction::Clear,
        4 => OutAction::Preempt,
        5 => OutAction::PreemptAndAbort,
        6 => OutAction::RegisterAndIgnore,
        _ => return Err(Sense::in_cdb(1, Some(4))),
    };
    if usize::try_from(u32_at(cdb, 5)) != Ok(PersistentOut::LIST_LEN) {
        return Err(Sense::new(code::PARAMETER_LIST_LENGTH_ERROR));
    }
    Ok(Command::PersistentOut(PersistentOut { action, scope: cdb[2] >> 4, kind: cdb[2] & 0x0F }))
}
