//! Commands as values: a CDB is read once, here, and everything in it is converted.
//!
//! Parsing decides what a command *says*; whether a unit can do it is decided later ([`lun`](super::lun)). The
//! functions below are the table's ([`opcodes`](super::opcodes)), which has looked at the length of the CDB and at bits that
//! nobody may set. (SPC-4 and SBC-4, each command's own
//! section.)

pub(super) mod blocks;
pub(super) mod control;
pub(super) mod reserve;
#[cfg(test)]
mod tests;

pub use self::blocks::BlockCommand;
pub use self::control::{ModeForm, ModeSelect, ModeSense, PageControl};
pub use self::reserve::{OutAction, PersistentOut, StatusOf};
use super::luns::SelectReport;
use super::opcodes::OpcodesRequest;
use super::sense::SenseFormat;

/// A command. Allocation lengths are the bytes of data that the host has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// TEST UNIT READY
    TestUnitReady,
    /// REQUEST SENSE
    RequestSense {
        /// DESC
        format: SenseFormat,
        /// ALLOCATION LENGTH
        allocation: usize,
    },
    /// INQUIRY
    Inquiry {
        /// PAGE CODE of vital product data; none: standard data.
        page: Option<u8>,
        /// ALLOCATION LENGTH
        allocation: usize,
    },
    /// REPORT LUNS
    ReportLuns {
        /// SELECT REPORT
        select: SelectReport,
        /// ALLOCATION LENGTH
        allocation: usize,
    },
    /// MODE SENSE
    ModeSense(ModeSense),
    /// MODE SELECT
    ModeSelect(ModeSelect),
    /// READ CAPACITY (10)
    ReadCapacity10,
    /// READ CAPACITY (16)
    ReadCapacity16 {
        /// ALLOCATION LENGTH
        allocation: usize,
    },
    /// REPORT TARGET PORT GROUPS
    ReportPortGroups {
        /// With the extended header.
        extended: bool,
        /// ALLOCATION LENGTH
        allocation: usize,
    },
    /// REPORT SUPPORTED OPERATION CODES
    ReportOpcodes {
        /// What is asked.
        request: OpcodesRequest,
        /// ALLOCATION LENGTH
        allocation: usize,
    },
    /// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS
    ReportTaskFunctions {
        /// REPD: with timeouts.
        extended: bool,
        /// ALLOCATION LENGTH
        allocation: usize,
    },
    /// RESERVE (6) and (10)
    Reserve,
    /// RELEASE (6) and (10)
    Release,
    /// PERSISTENT RESERVE IN
    PersistentIn {
        /// The service action.
        of: StatusOf,
        /// ALLOCATION LENGTH
        allocation: usize,
    },
    /// PERSISTENT RESERVE OUT
    PersistentOut(PersistentOut),
    /// READ, WRITE, WRITE AND VERIFY, VERIFY, WRITE SAME and COMPARE AND WRITE
    Blocks(BlockCommand),
    /// SYNCHRONIZE CACHE
    SynchronizeCache {
        /// LOGICAL BLOCK ADDRESS
        lba: u64,
        /// NUMBER OF LOGICAL BLOCKS; 0: up to the last one.
        blocks: u32,
    },
    /// PRE-FETCH
    Prefetch {
        /// LOGICAL BLOCK ADDRESS
        lba: u64,
        /// PREFETCH LENGTH; 0: up to the last one.
        blocks: u32,
    },
    /// GET LBA STATUS
    LbaStatus {
        /// STARTING LOGICAL BLOCK ADDRESS
        lba: u64,
        /// ALLOCATION LENGTH
        allocation: usize,
    },
    /// START STOP UNIT: the unit is to be ready, which it always is.
    StartUnit,
    /// UNMAP
    Unmap {
        /// PARAMETER LIST LENGTH
        length: u16,
    },
}

impl Command {
    /// Bytes of the list of parameters that the host sends; 0 for commands without, and such without a list.
    #[must_use]
    pub const fn parameter_list_len(&self) -> usize {
        match self {
            Self::ModeSelect(select) => select.length as usize,
            Self::PersistentOut(_) => PersistentOut::LIST_LEN,
            Self::Unmap { length } => *length as usize,
            _ => 0,
        }
    }
}
