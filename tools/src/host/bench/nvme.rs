//! A namespace as what is measured: each queue has `depth` commands, whose identifiers are its slots.

use std::net::SocketAddr;
use std::time::Instant;

use intact::nvmf::command::{BlockRange, DataPointer, IoCommand, IoOp, PiFields};
use rwctx::device::soft::device::SoftCounters;

use super::source::Op;
use super::subject::{Disk, Done, Subject, Transfer};
use super::{Job, PiMode};
use crate::host::buffers::Buffers;
use crate::host::controller::{self, Controller};
use crate::host::error::HostError;
use crate::host::link::Submit;
use crate::host::namespace::Namespace;

/// The I/O queues of a controller, and a namespace.
#[derive(Debug)]
pub(super) struct Queues<'c> {
    controller: &'c mut Controller,
    namespace: Namespace,
    /// Index of the first I/O queue in the link; the others follow.
    first_queue: usize,
    depth: usize,
    buffers: Buffers,
    in_capsule_max: u32,
    /// What each slot's command is called.
    names: Vec<&'static str>,
}

/// What of a namespace matters.
pub(super) fn disk(namespace: &Namespace, max_data: u64) -> Disk {
    Disk {
        name: format!("namespace {}", namespace.nsid),
        blocks: namespace.blocks,
        block_size: namespace.block_size,
        protection: namespace.protection,
        read_only: namespace.read_only,
        max_data,
    }
}

/// Bytes that a block of a namespace takes in a transfer.
///
/// # Errors
/// When its metadata can't travel like that.
pub(super) fn block_len(namespace: &Namespace, pi: PiMode) -> Result<u64, HostError> {
    let invalid = |what: String| Err(HostError::Invalid(what));
    if namespace.protection.is_none() && namespace.metadata_size != 0 {
        return invalid(format!("namespace {} has metadata without protection", namespace.nsid));
    }
    if let (PiMode::Pract, Some((format, _))) = (pi, namespace.protection)
        && usize::from(namespace.metadata_size) != format.tuple_size()
    {
        return invalid("--pi pract: the namespace's metadata is more than its tuple; use full".to_owned());
    }
    namespace.transfer_len(1, pi == PiMode::Pract)
}

impl<'c> Queues<'c> {
    pub(super) fn new(
        controller: &'c mut Controller,
        namespace: Namespace,
        job: &Job,
        queues: &[usize],
    ) -> Result<Self, HostError> {
        let first_queue = *queues.first().expect("a job has at least one queue");
        debug_assert!(
            queues.iter().zip(first_queue..).all(|(a, b)| *a == b),
            "queues were connected in turn"
        );
        let depth = job.options.depth as usize;
        let count = queues.len() * depth;
        let buffers = Buffers::new(controller.link(), count, job.wire_len as usize, job.options.keys)?;
        Ok(Self {
            in_capsule_max: controller.in_capsule_max(),
            controller,
            namespace,
            first_queue,
            depth,
            buffers,
            names: vec![""; count],
        })
    }

    /// Index of a slot's queue in the link.
    #[inline]
    fn queue(&self, slot: usize) -> usize {
        self.first_queue + slot / self.depth
    }
}

impl Subject for Queues<'_> {
    fn target(&self) -> SocketAddr {
        self.controller.target()
    }

    #[inline]
    fn receive(&mut self, now: Instant) {
        self.controller.link().receive(now);
    }

    #[inline]
    fn transmit(&mut self, now: Instant) {
        self.controller.link().transmit(now);
    }

    fn look_after(&mut self, now: Instant) -> Result<(), HostError> {
        self.controller.link().check(now)?;
        self.controller.keep_alive_if_due(now)
    }

    fn counters(&self) -> SoftCounters {
        self.controller.counters()
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
        self.controller.has_room(self.queue(slot))
    }

    #[inline]
    fn submit(&mut self, slot: usize, transfer: &Transfer) -> Result<Option<u32>, HostError> {
        let Transfer { op, slba, blocks, length, pi } = *transfer;
        let queue = self.queue(slot);
        let cid = u16::try_from(slot % self.depth).expect("depth is at most 65535");
        let capsule = op == Op::Write && length <= self.in_capsule_max;
        let link = self.controller.link();
        let (dptr, in_capsule) = if capsule {
            (DataPointer::InCapsule { offset: 0, length }, Some(self.buffers.sge(slot, length)))
        } else {
            (self.buffers.grant(link, queue, slot, length)?, None)
        };
        let pi = match pi {
            PiMode::Off => PiFields::default(),
            PiMode::Pract => self.namespace.checked_pi(slba, true),
            PiMode::Full => self.namespace.checked_pi(slba, false),
        };
        let range = BlockRange { slba, blocks, fua: false, limited_retry: false, pi };
        let op = match op {
            Op::Read => IoOp::Read(range),
            Op::Write => IoOp::Write(range),
        };
        self.names[slot] = controller::name(&op);
        let sqe = IoCommand { cid, opcode: 0, nsid: self.namespace.nsid, op, dptr }.emit();
        match link.submit(queue, &sqe, in_capsule)? {
            Submit::Sent(number) => Ok(capsule.then_some(number)),
            // The queue has one more entry than there are slots, and room for the capsule.
            Submit::Full => Err(HostError::Protocol {
                target: self.controller.target(),
                what: format!("it completes {}s without taking them from the queue", controller::name(&op)),
            }),
        }
    }

    #[inline]
    fn next_done(&mut self) -> Result<Option<Done>, HostError> {
        while let Some(done) = self.controller.link().next_completion()? {
            let Some(queue) = done.queue.checked_sub(self.first_queue) else {
                // A Keep Alive.
                if !done.status.is_success() {
                    return Err(HostError::Status { command: "Keep Alive", status: done.status });
                }
                continue;
            };
            let slot = queue * self.depth + usize::from(done.cid);
            self.buffers.completed(self.controller.link(), slot, &done)?;
            let failure = (!done.status.is_success())
                .then(|| Box::new(HostError::Status { command: self.names[slot], status: done.status }));
            return Ok(Some(Done { slot, failure }));
        }
        Ok(None)
    }

    #[inline]
    fn is_acked(&self, slot: usize, message: u32) -> bool {
        self.controller.is_acked(self.queue(slot), message)
    }
}
