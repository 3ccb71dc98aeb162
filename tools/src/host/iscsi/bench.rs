//! `intact-host iscsi bench`: a logical unit as what is measured. Each session has `depth` commands, whose tags are its slots.

use std::net::SocketAddr;
use std::time::Instant;

use intact::iscsi::wire::number::Lun;
use intact::iscsi::wire::scsi::Residual;
use rwctx::device::soft::device::SoftCounters;

use super::cdb::{BlockOp, CdbLength};
use super::commands::Loan;
use super::initiator::Initiator;
use super::session::{Command, Direction};
use super::unit::Unit;
use super::{Failure, GOOD};
use crate::host::bench::{Disk, Done, Job, Op, Options, PiMode, Report, Subject, Transfer, measure};
use crate::host::buffers::{Buffers, Registrar};
use crate::host::error::HostError;

/// PROTECT that lets tuples travel and has all of them checked.
const PROTECT_ALL: u8 = 1;

/// The sessions with a target, and a logical unit.
#[derive(Debug)]
struct Sessions<'i> {
    initiator: &'i mut Initiator,
    unit: Unit,
    lun: Lun,
    cdb_length: Option<CdbLength>,
    /// Index of the first session; the others follow.
    first: usize,
    depth: usize,
    buffers: Buffers,
    /// What each slot's command does, and how many bytes it moves.
    commands: Vec<(Op, u32)>,
}

/// Measures a logical unit, which is known from a session that is open already.
///
/// # Errors
/// When the options don't fit the unit, a command fails, a connection breaks, or data is not what it should be.
pub fn run(
    initiator: &mut Initiator,
    unit: Unit,
    max_data: u64,
    cdb_length: Option<CdbLength>,
    options: Options,
) -> Result<Report, HostError> {
    let disk = Disk {
        name: format!("logical unit {}", unit.lun),
        blocks: unit.blocks,
        block_size: unit.block_size,
        protection: unit.protection,
        read_only: false,
        max_data,
    };
    let (depth, queues) = (options.depth, options.queues);
    let job = Job::new(options, disk, |pi| Ok(unit.transfer_len(1, protect(pi))))?;
    let mut sessions = Vec::with_capacity(usize::from(queues));
    for _ in 0..queues {
        let session = initiator.open_session(depth)?;
        initiator.await_unit(session, unit.wire_lun())?;
        sessions.push(session);
    }
    let first = *sessions.first().expect("at least one session was asked for");
    let keys = initiator.keys();
    let buffers = Buffers::new(initiator, job.slots(), job.transfer_len(), keys)?;
    let subject = Sessions {
        initiator,
        unit,
        lun: unit.wire_lun(),
        cdb_length,
        first,
        depth: depth as usize,
        buffers,
        commands: vec![(Op::Read, 0); job.slots()],
    };
    measure(subject, &job)
}

/// The PROTECT field of commands.
const fn protect(pi: PiMode) -> u8 {
    match pi {
        PiMode::Full => PROTECT_ALL,
        PiMode::Off | PiMode::Pract => 0,
    }
}

impl Sessions<'_> {
    #[inline]
    fn session(&self, slot: usize) -> usize {
        self.first + slot / self.depth
    }
}

impl Subject for Sessions<'_> {
    fn target(&self) -> SocketAddr {
        self.initiator.target()
    }

    #[inline]
    fn receive(&mut self, now: Instant) {
        self.initiator.receive(now);
    }

    #[inline]
    fn transmit(&mut self, now: Instant) {
        self.initiator.transmit(now);
    }

    fn look_after(&mut self, now: Instant) -> Result<(), HostError> {
        self.initiator.check(now)
    }

    fn counters(&self) -> SoftCounters {
        self.initiator.counters()
    }

    #[inline]
    fn write(&self, slot: usize, from: &[u8]) {
        self.buffers.write(slot, from);
    }

    #[inline]
    fn read(&self, slot: usize, to: &mut [u8]) {
        self.buffers.read(slot, to);
    }

    #[inline]
    fn has_room(&self, slot: usize) -> bool {
        self.initiator.has_room(self.session(slot))
    }

    #[inline]
    fn submit(&mut self, slot: usize, transfer: &Transfer) -> Result<Option<u32>, HostError> {
        let Transfer { op, slba, blocks, length, pi } = *transfer;
        let session = self.session(slot);
        let fields = self.unit.fields(slba, blocks, protect(pi));
        let (scsi_op, direction) = match op {
            Op::Read => (BlockOp::Read, Direction::ToHost(length)),
            Op::Write => (BlockOp::Write, Direction::FromHost(length)),
        };
        let cdb = self.unit.cdb(scsi_op, self.cdb_length, &fields).ok_or_else(|| {
            HostError::Invalid(format!("--cdb: block {slba} or {blocks} blocks have no room in it"))
        })?;
        let loan = Loan::make(self.initiator, &mut self.buffers, session, slot, direction)?;
        let tag = u32::try_from(slot % self.depth).expect("depth is a u32");
        let command = Command { tag, lun: self.lun, cdb: cdb.in_header(), data: direction };
        self.commands[slot] = (op, length);
        let message =
            self.initiator.submit(session, &command, cdb.behind_header(), loan.control, loan.immediate)?;
        Ok(loan.immediate.map(|_| message))
    }

    #[inline]
    fn next_done(&mut self) -> Result<Option<Done>, HostError> {
        while let Some(done) = self.initiator.next_completion()? {
            let Some(session) = done.session.checked_sub(self.first) else { continue };
            let slot = session * self.depth + done.tag as usize;
            self.buffers.returned(self.initiator, done.session, slot, done.invalidated)?;
            let good = done.status == Some(GOOD) && done.residual == Residual::None;
            let failure =
                if good { None } else { Some(Box::new(self.failure(slot, done.status, done.residual))) };
            return Ok(Some(Done { slot, failure }));
        }
        Ok(None)
    }

    #[inline]
    fn is_acked(&self, slot: usize, message: u32) -> bool {
        self.initiator.is_acked(self.session(slot), message)
    }
}

impl Sessions<'_> {
    #[cold]
    fn failure(&self, slot: usize, status: Option<u8>, residual: Residual) -> HostError {
        let (op, length) = self.commands[slot];
        let command = match op {
            Op::Read => "READ",
            Op::Write => "WRITE",
        };
        if status == Some(GOOD) {
            let what = format!("a {command} of {length} bytes is GOOD with {residual:?}");
            return HostError::Protocol { target: self.initiator.target(), what };
        }
        HostError::Scsi { command, failure: Failure::new(status, self.initiator.sense()) }
    }
}
