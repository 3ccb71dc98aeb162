//! One task from its command to the acknowledgement of its response: its memory and where it stands.

use std::sync::Arc;
use std::time::Instant;

use rwctx::ctx::RwCtx;
use rwctx::plan::Direction;

use super::blocks::BlockWork;
use super::notice::Waiter;
use crate::block::{Buf, BufPin, RangeGuard, RangeWait, Volume};
use crate::iscsi::outgoing::Outgoing;
use crate::iscsi::session::{TaskId, Transfer};
use crate::request::Progress;
use crate::scsi::cdb::Command;
use crate::scsi::lun::ChangeId;
use crate::scsi::opcodes::Operation;
use crate::scsi::sense::{Sense, SenseCode, SenseFormat};
use crate::scsi::status::Status;
use crate::scsi::unmap::Extent;
use crate::transport::share::Charge;

/// Pieces of a transfer that a request's context keeps room for; longer lists are rare.
const KEPT_SGES: usize = 1024;

/// What a request is about.
#[derive(Debug)]
pub(super) enum Work {
    /// Nothing: the slot is free.
    None,
    /// Data for the host, if any.
    Answer(Vec<u8>),
    /// A list of parameters that the host sends.
    Parameters {
        /// The command's row.
        operation: &'static Operation,
        /// The command.
        command: Command,
        /// Bytes of the list.
        length: usize,
    },
    /// Blocks.
    Blocks(BlockWork),
    /// Completed writes become durable.
    Flush(Arc<Volume>),
    /// Blocks to give back, of which so many extents are done.
    Unmap(Arc<Volume>, Vec<Extent>, usize),
    /// Waits for the end of others' commands.
    Settle,
    /// Waits until a change of reservations is stored.
    Store(ChangeId),
}

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) status: Status,
    pub(super) sense: Option<Sense>,
    /// Bytes of data that the command has, moved or not.
    pub(super) length: u64,
}

/// A message in its receive slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) slot: u32,
    pub(super) length: u32,
}

/// One task.
#[derive(Debug)]
pub(super) struct Request {
    /// As long as the session knows of it.
    pub(super) task: Option<TaskId>,
    pub(super) lun: [u8; 8],
    /// Where it stands; none while the slot is free.
    pub(super) progress: Option<Progress>,
    pub(super) work: Work,
    /// The host's memory.
    pub(super) host: Transfer,
    /// The message, as long as data that came along is needed.
    pub(super) arrived: Option<Arrived>,
    /// What is sent when its credits are there.
    pub(super) response: Option<Outgoing>,
    pub(super) format: SenseFormat,
    /// Bytes of data that the command has, for the residual.
    pub(super) length: u64,
    /// What of them goes to the host.
    pub(super) to_host: u32,
    /// What comes from the host.
    pub(super) from_host: u32,
    pub(super) data: Option<Buf>,
    pub(super) md: Option<Buf>,
    /// What is written, where `data` and `md` are what must stand there before.
    pub(super) second: [Option<Buf>; 2],
    /// Data and tuples as they stand on the wire, where the device can't fetch them into two buffers.
    pub(super) stream: Option<Buf>,
    /// The medium's side, data and tuples.
    pub(super) medium: [Option<Buf>; 2],
    pub(super) range: Option<RangeGuard>,
    pub(super) range_wait: Option<RangeWait>,
    /// What moves its data.
    pub(super) ctx: RwCtx,
    pins: [Option<BufPin>; 4],
    /// Credits taken and not given back: something is posted.
    pub(super) credits: u32,
    /// When that was posted.
    pub(super) posted_at: Option<Instant>,
    /// Its part of what its peer holds of the buffers.
    pub(super) charge: Option<Charge>,
    /// The engine holds its buffers.
    pub(super) with_engine: bool,
    /// It waits for READs.
    pub(super) fetching: bool,
    /// Somebody had it aborted.
    pub(super) aborted: bool,
    /// Those who wait for its end.
    pub(super) waiters: Vec<Arc<Waiter>>,
}

impl Ended {
    /// GOOD.
    pub(super) fn good(length: u64) -> Self {
        Self { status: Status::Good, sense: None, length }
    }

    /// CHECK CONDITION
    pub(super) fn check(sense: Sense) -> Self {
        Self { status: Status::CheckCondition, sense: Some(sense), length: 0 }
    }
}

impl From<SenseCode> for Ended {
    fn from(code: SenseCode) -> Self {
        Self::check(Sense::new(code))
    }
}

impl Request {
    pub(super) fn new() -> Self {
        Self {
            task: None,
            lun: [0; 8],
            progress: None,
            work: Work::None,
            host: Transfer::None,
            arrived: None,
            response: None,
            format: SenseFormat::Fixed,
            length: 0,
            to_host: 0,
            from_host: 0,
            data: None,
            md: None,
            second: [None, None],
            stream: None,
            medium: [None, None],
            range: None,
            range_wait: None,
            ctx: RwCtx::new(),
            pins: [const { None }; 4],
            credits: 0,
            posted_at: None,
            charge: None,
            with_engine: false,
            fetching: false,
            aborted: false,
            waiters: Vec::new(),
        }
    }

    /// Lets go of everything but its slot.
    pub(super) fn clear(&mut self) {
        self.unpin();
        self.ctx.complete();
        self.ctx.destroy();
        self.ctx.shrink_to(KEPT_SGES);
        self.progress = None;
        self.posted_at = None;
        self.fetching = false;
        self.response = None;
        self.task = None;
        self.arrived = None;
        self.work = Work::None;
        self.host = Transfer::None;
        self.release_memory();
        self.let_waiters_go();
    }

    /// Those who waited for its end wait no more.
    pub(super) fn let_waiters_go(&mut self) {
        self.aborted = false;
        self.waiters.clear();
    }

    /// Lets buffers and range go.
    pub(super) fn release_memory(&mut self) {
        self.data = None;
        self.md = None;
        self.second = [None, None];
        self.stream = None;
        self.medium = [None, None];
        self.range = None;
        self.range_wait = None;
        self.charge = None;
    }

    /// Keeps the buffers' memory while the device uses it.
    pub(super) fn pin(&mut self) {
        let data = self.data.as_mut();
        let [second, second_md] = &mut self.second;
        let tuples = self.stream.as_mut().or(self.md.as_mut());
        self.pins = [data, tuples, second.as_mut(), second_md.as_mut()].map(|buf| buf.map(Buf::pin));
    }

    /// The device does not use them any more.
    pub(super) fn unpin(&mut self) {
        self.pins = [const { None }; 4];
    }

    /// Bytes that the host has for a command that wants some, or wants to send.
    pub(super) fn offered(&self, direction: Direction) -> u32 {
        match (&self.host, direction) {
            (Transfer::ToHost(segment), Direction::ToHost) => segment.length,
            (Transfer::FromHost { immediate, solicited }, Direction::FromHost) => {
                let came = u32::try_from(immediate.len()).expect("a receive slot is a few KiB");
                came.saturating_add(solicited.map_or(0, |segment| segment.length))
            }
            _ => 0,
        }
    }
}
