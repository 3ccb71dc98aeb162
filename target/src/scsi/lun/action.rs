//! What follows from a command.

use super::change::ChangeId;
use crate::scsi::cdb::Command;
use crate::scsi::nexus::NexusId;
use crate::scsi::opcodes::Operation;
use crate::scsi::reservations::{Refusal, Saved};
use crate::scsi::sense::Sense;
use crate::scsi::status::Status;
use crate::scsi::transfer::{Transfer, Work};
use crate::scsi::unmap::Extent;

/// What is to be done for a command.
#[derive(Clone, Debug)]
#[must_use = "a host waits for its answer"]
pub enum Action {
    /// Answer.
    Done(Response),
    /// Fetch the list of parameters, then hand it to [`Lun::handle_parameters`](super::Lun::handle_parameters).
    Fetch {
        /// The command's row.
        operation: &'static Operation,
        /// The command.
        command: Command,
        /// Bytes of the list, at least 1.
        length: usize,
    },
    /// Move blocks, then answer.
    Transfer(Transfer),
    /// Make completed writes durable, then answer. All of them may be: the blocks are those that have to.
    Flush {
        /// First block.
        lba: u64,
        /// Blocks; 0: all up to the last one.
        blocks: u32,
    },
    /// Give blocks back: they are as never written then. At most as many extents as the limits say, and at least one.
    Unmap(Vec<Extent>),
    /// Abort, then answer GOOD.
    Settle {
        /// Nexuses whose commands in this unit are aborted, at least one.
        abort: Vec<NexusId>,
    },
    /// Store, then hand what became of it to [`Target::handle_stored`](crate::scsi::target::Target::handle_stored).
    Store {
        /// What it is to be named by then.
        change: ChangeId,
        /// What is stored, in place of what was.
        saved: Box<Saved>,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status.
    pub status: Status,
    /// Why, with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Data for the host, within its allocation length.
    pub data: Vec<u8>,
}

/// What commands may be at most. VPD page B0h tells hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks of a command that moves or checks data.
    pub transfer_blocks: u32,
    /// Blocks of COMPARE AND WRITE.
    pub compare_blocks: u8,
    /// Blocks of WRITE SAME.
    pub same_blocks: u32,
    /// Blocks of UNMAP, all extents together.
    pub unmap_blocks: u32,
    /// Extents of UNMAP.
    pub unmap_ranges: u16,
}

impl Limits {
    /// Those that follow from the block size and the bytes of user data that one command moves at most (at least two blocks).
    #[must_use]
    pub fn new(block_size: u32, max_transfer: u32) -> Self {
        let transfer_blocks = max_transfer / block_size;
        Self {
            transfer_blocks,
            // Both halves of the data.
            compare_blocks: u8::try_from(transfer_blocks / 2).unwrap_or(u8::MAX),
            same_blocks: 1 << 23,
            unmap_blocks: u32::MAX,
            unmap_ranges: 256,
        }
    }

    /// Blocks of a command that does this.
    #[must_use]
    pub const fn of(&self, work: Work) -> u32 {
        match work {
            Work::Same { .. } | Work::Zero { .. } => self.same_blocks,
            Work::CompareAndWrite => self.compare_blocks as u32,
            _ => self.transfer_blocks,
        }
    }
}

impl Response {
    /// GOOD, without data.
    #[must_use]
    pub const fn good() -> Self {
        Self { status: Status::Good, sense: None, data: Vec::new() }
    }

    /// GOOD, with as much of the data as the host has room for.
    #[must_use]
    pub fn data(mut data: Vec<u8>, allocation: usize) -> Self {
        data.truncate(allocation);
        Self { data, ..Self::good() }
    }

    /// CHECK CONDITION
    #[must_use]
    pub const fn check(sense: Sense) -> Self {
        Self { status: Status::CheckCondition, sense: Some(sense), data: Vec::new() }
    }

    /// BUSY
    #[must_use]
    pub const fn busy() -> Self {
        Self { status: Status::Busy, sense: None, data: Vec::new() }
    }

    /// RESERVATION CONFLICT
    #[must_use]
    pub const fn conflict() -> Self {
        Self { status: Status::ReservationConflict, sense: None, data: Vec::new() }
    }
}

impl From<Response> for Action {
    fn from(response: Response) -> Self {
        Self::Done(response)
    }
}

impl From<Refusal> for Action {
    fn from(refusal: Refusal) -> Self {
        Self::Done(match refusal {
            Refusal::Conflict => Response::conflict(),
            Refusal::Busy => Response::busy(),
            Refusal::Check(sense) => Response::check(sense),
        })
    }
}
