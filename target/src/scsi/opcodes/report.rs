//! REPORT SUPPORTED OPERATION CODES and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS. (SPC-4, by these
//! names.)

use super::{Operation, Profile, supported};
use crate::scsi::sense::Sense;

/// REPORTING OPTIONS
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportingOptions {
    /// 000b: all commands.
    All,
    /// 001b: one, whose operation code has no service actions.
    Code,
    /// 010b: one, by operation code and service action.
    CodeAndAction,
    /// 011b: one, by service action where its operation code has such.
    Either,
}

/// What a host asks about commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodesRequest {
    /// REPORTING OPTIONS
    pub options: ReportingOptions,
    /// RCTD: with command timeouts descriptors, which say nothing here.
    pub timeouts: bool,
    /// REQUESTED OPERATION CODE
    pub code: u8,
    /// REQUESTED SERVICE ACTION
    pub service_action: u16,
}

/// The task management functions that the transport carries out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskFunctions {
    /// ABORT TASK
    pub abort_task: bool,
    /// ABORT TASK SET
    pub abort_task_set: bool,
    /// CLEAR TASK SET
    pub clear_task_set: bool,
    /// LOGICAL UNIT RESET
    pub unit_reset: bool,
}

/// A command timeouts descriptor that names no times.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// SUPPORT: it is not.
const NOT_SUPPORTED: u8 = 0b001;
/// SUPPORT: it is, as the standard says.
const SUPPORTED: u8 = 0b011;

impl ReportingOptions {
    pub(in crate::scsi) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::All),
            1 => Some(Self::Code),
            2 => Some(Self::CodeAndAction),
            3 => Some(Self::Either),
            _ => None,
        }
    }
}

impl OpcodesRequest {
    /// The parameter data of a unit with this profile, untruncated.
    ///
    /// # Errors
    /// INVALID FIELD IN CDB where the options don't fit the operation code.
    pub fn answer(&self, profile: Profile) -> Result<Vec<u8>, Sense> {
        if self.options == ReportingOptions::All {
            return Ok(self.all(profile));
        }
        let mut rows = supported(profile).filter(|row| row.code == self.code).peekable();
        let has_actions = rows.peek().map(|row| row.service_action.is_some());
        match (self.options, has_actions) {
            (ReportingOptions::Code, Some(true)) | (ReportingOptions::CodeAndAction, Some(false)) => {
                return Err(Sense::in_cdb(2, Some(2)));
            }
            _ => {}
        }
        let asked = match self.options {
            ReportingOptions::Code => 0,
            _ => self.service_action,
        };
        Ok(self.one(rows.find(|row| row.service_action.unwrap_or(0) == asked)))
    }

    fn all(&self, profile: Profile) -> Vec<u8> {
        const TIMEOUTS_PRESENT: u8 = 1 << 1;
        const ACTION_VALID: u8 = 1 << 0;
        let mut data = vec![0; 4];
        for row in supported(profile) {
            let [high, low] = row.service_action.unwrap_or(0).to_be_bytes();
            let flags = if self.timeouts { TIMEOUTS_PRESENT } else { 0 }
                | if row.service_action.is_some() { ACTION_VALID } else { 0 };
            let len = u8::try_from(row.cdb_len()).expect("CDBs are short");
            data.extend([row.code, 0, high, low, 0, flags, 0, len]);
            if self.timeouts {
                data.extend(TIMEOUTS);
            }
        }
        let len = u32::try_from(data.len() - 4).expect("the table is short");
        data[..4].copy_from_slice(&len.to_be_bytes());
        data
    }

    fn one(&self, row: Option<&Operation>) -> Vec<u8> {
        const TIMEOUTS_PRESENT: u8 = 1 << 7;
        let Some(row) = row else { return vec![0, NOT_SUPPORTED, 0, 0] };
        let present = if self.timeouts { TIMEOUTS_PRESENT } else { 0 };
        let len = u8::try_from(row.cdb_len()).expect("CDBs are short");
        let mut data = vec![0, present | SUPPORTED, 0, len];
        data.extend(row.usage());
        if self.timeouts {
            data.extend(TIMEOUTS);
        }
        data
    }
}

impl TaskFunctions {
    /// The parameter data, untruncated; `extended` (REPD) with timeouts, of which it names none.
    #[must_use]
    pub fn answer(&self, extended: bool) -> Vec<u8> {
        let bits = [self.abort_task, self.abort_task_set, false, self.clear_task_set, self.unit_reset];
        let byte = bits
            .iter()
            .zip([0x80, 0x40, 0x20, 0x10, 0x08])
            .fold(0, |byte, (set, bit)| byte | if *set { bit } else { 0 });
        let mut data = vec![byte, 0, 0, 0];
        if extended {
            data[3] = 12;
            data.extend([0; 12]);
        }
        data
    }
}
