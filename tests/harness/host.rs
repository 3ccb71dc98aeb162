//! A host in the test's own process, with many commands in flight whose addresses and data the test chooses.
//!
//! On top of the initiator library: [`Host`] owns a connection, its I/O queues and a slot of memory for each command. It
//! decides nothing about what is sent, and checks no data.

#![expect(clippy::disallowed_methods, reason = "the harness drives real connections in real time")]

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use intact::nvmf::command::{BlockRange, DataPointer, IoCommand, IoOp, MAX_SGL_DESCRIPTORS};
use intact::nvmf::wire::sgl::SGL_DESCRIPTOR_LEN;
use intact::nvmf::wire::status::Status;
use intact::serve::with_sources;
use intact_tools::host::controller::Controller;
use intact_tools::host::identity::HostIdentity;
use intact_tools::host::link::{Link, Submit};
use intact_tools::host::namespace::Namespace;
use intact_tools::host::{Buffers, HostError, Keys};
use rwctx::wr::Sge;
use t10pi::{Checks, PiContext, Tags};

/// Bytes at the start of a slot whose data is in pieces, for their descriptors.
pub const LIST: usize = MAX_SGL_DESCRIPTORS * SGL_DESCRIPTOR_LEN;

/// When nothing completes for so long, the target is stuck.
const STUCK: Duration = Duration::from_secs(60);
/// How long a target may take to be there.
const CONNECT: Duration = Duration::from_secs(30);

/// How to connect.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Our address.
    pub local: IpAddr,
    /// The target's.
    pub target: SocketAddr,
    /// The subsystem.
    pub nqn: String,
    /// Who we are.
    pub hostnqn: String,
    /// I/O queues.
    pub queues: u16,
    /// Commands in flight on each queue.
    pub depth: u16,
    /// Bytes that a command moves at most.
    pub slot_len: usize,
    /// How the target reaches memory.
    pub keys: Keys,
}

/// A connected host.
#[derive(Debug)]
pub struct Host {
    controller: Controller,
    /// Index of the first I/O queue in the link; the others follow.
    first_queue: usize,
    depth: usize,
    buffers: Buffers,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Slots that were released while their capsule may still have to be sent again.
    lagging: Vec<usize>,
    in_flight: usize,
    /// Completions that came while room for a capsule was waited for.
    early: VecDeque<Done>,
    last_progress: Instant,
    in_capsule_max: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The capsule that carries its data.
    capsule: Option<u32>,
}

/// A command that completed. Its slot stays the caller's until [`Host::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The slot that [`Host::submit`] was given.
    pub slot: usize,
    /// How it ended.
    pub status: Status,
}

impl Host {
    /// Connects, as soon as the target is there.
    ///
    /// # Panics
    /// When the target refuses, or is not there within 30 s.
    #[must_use]
    pub fn connect(config: &HostConfig) -> Self {
        let until = Instant::now() + CONNECT;
        loop {
            match Self::try_connect(config) {
                Ok(host) => return host,
                Err(HostError::Timeout { .. }) if Instant::now() < until => {}
                Err(error) => panic!("{}: cannot connect: {}", config.hostnqn, with_sources(&error)),
            }
        }
    }

    fn try_connect(config: &HostConfig) -> Result<Self, HostError> {
        let link = Link::open(config.local, config.target)?;
        let identity = HostIdentity::new(Some(&config.hostnqn), None)?;
        let mut controller = Controller::connect(link, &config.nqn, identity, config.keys)?;
        let queues = controller.connect_io_queues(config.queues, u32::from(config.depth) + 1)?;
        let depth = usize::from(config.depth);
        let slots = queues.len() * depth;
        let buffers = Buffers::new(controller.link(), slots, config.slot_len, config.keys)?;
        Ok(Self {
            first_queue: queues[0],
            depth,
            buffers,
            slots: vec![Slot::default(); slots],
            free: (0..slots).collect(),
            lagging: Vec::with_capacity(slots),
            in_flight: 0,
            early: VecDeque::with_capacity(slots),
            last_progress: Instant::now(),
            in_capsule_max: controller.in_capsule_max(),
            controller,
        })
    }

    /// The controller, for everything but I/O commands.
    pub fn controller(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// Slots, each for a command in flight.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Commands in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes a free slot.
    pub fn take_slot(&mut self) -> Option<usize> {
        self.free.pop()
    }

    /// Gives a slot back.
    pub fn release(&mut self, slot: usize) {
        if self.is_acked(slot) { self.free.push(slot) } else { self.lagging.push(slot) }
    }

    /// Copies a command's data into its slot.
    pub fn fill(&mut self, slot: usize, data: &[u8]) {
        self.buffers.write(slot, data);
    }

    /// Copies a command's data out of its slot.
    pub fn read(&self, slot: usize, data: &mut [u8]) {
        self.buffers.read(slot, data);
    }

    /// From now on Writes of more than `most` bytes are not sent in capsules, nor those of more than the target takes.
    pub fn carry_at_most(&mut self, most: u32) {
        self.in_capsule_max = self.controller.in_capsule_max().min(most);
    }

    /// Sends a command that moves `length` bytes of its slot; they are sent in the capsule when they fit there.
    ///
    /// # Panics
    /// When the connection broke.
    pub fn submit(&mut self, slot: usize, nsid: u32, op: IoOp, length: u32) {
        let queue = self.await_room(slot);
        let capsule = matches!(op, IoOp::Write(_)) && length <= self.in_capsule_max;
        let (dptr, in_capsule) = if capsule {
            (DataPointer::InCapsule { offset: 0, length }, Some(self.buffers.sge(slot, length)))
        } else {
            let granted = self.buffers.grant(self.controller.link(), queue, slot, length);
            (check(granted), None)
        };
        self.send(slot, nsid, op, dptr, in_capsule);
    }

    /// The same with the data in as many pieces as a command may have, which is at most its bytes. It lies in the slot
    /// behind [`LIST`] bytes, which this fills.
    ///
    /// # Panics
    /// When the connection broke.
    pub fn submit_in_pieces(&mut self, slot: usize, nsid: u32, op: IoOp, length: u32) {
        let queue = self.await_room(slot);
        let (pieces, list) = [MAX_SGL_DESCRIPTORS, LIST].map(|n| u32::try_from(n).expect("a few")).into();
        let granted = check(self.buffers.grant(self.controller.link(), queue, slot, list + length));
        let DataPointer::Keyed { mut segment, .. } = granted else { panic!("granted memory has a key") };
        let mut descriptors = [[0; SGL_DESCRIPTOR_LEN]; MAX_SGL_DESCRIPTORS];
        segment.at.addr += u64::from(list);
        for (number, descriptor) in (1..).zip(&mut descriptors) {
            let invalidate = number == pieces;
            segment.length =
                if invalidate { length - length / pieces * (pieces - 1) } else { length / pieces };
            *descriptor = DataPointer::Keyed { segment, invalidate }.emit();
            segment.at.addr += u64::from(segment.length);
        }
        self.buffers.write(slot, descriptors.as_flattened());
        let dptr = DataPointer::LastSegment { offset: 0, length: list };
        let in_capsule = Some(self.buffers.sge(slot, list));
        self.send(slot, nsid, op, dptr, in_capsule);
    }

    /// Waits for room for a capsule on a slot's queue, which it returns.
    fn await_room(&mut self, slot: usize) -> usize {
        let queue = self.queue(slot);
        while !self.controller.link().has_room(queue) {
            // An acknowledgement was lost; it comes again.
            self.drive();
            if let Some(done) = self.take_done() {
                self.early.push_back(done);
            }
        }
        queue
    }

    fn send(&mut self, slot: usize, nsid: u32, op: IoOp, dptr: DataPointer, in_capsule: Option<Sge>) {
        let queue = self.queue(slot);
        let cid = u16::try_from(slot % self.depth).expect("below the queue's depth");
        let sqe = IoCommand { cid, opcode: 0, nsid, op, dptr }.emit();
        match check(self.controller.link().submit(queue, &sqe, in_capsule)) {
            Submit::Sent(number) => self.slots[slot].capsule = in_capsule.map(|_| number),
            Submit::Full => panic!("a queue has room for all of its slots"),
        }
        if self.in_flight == 0 {
            self.last_progress = Instant::now();
        }
        self.in_flight += 1;
    }

    /// Sends what was submitted and waits until something completed; `None` when nothing is in flight.
    ///
    /// # Panics
    /// When the connection breaks, or nothing completes for a minute.
    pub fn next_done(&mut self) -> Option<Done> {
        loop {
            if let Some(done) = self.poll_done() {
                return Some(done);
            }
            if self.in_flight == 0 && self.early.is_empty() {
                return None;
            }
            self.drive();
        }
    }

    /// Takes a command that completed, without waiting.
    ///
    /// # Panics
    /// When the connection broke.
    pub fn poll_done(&mut self) -> Option<Done> {
        self.early.pop_front().or_else(|| self.take_done())
    }

    fn take_done(&mut self) -> Option<Done> {
        while let Some(done) = check(self.controller.link().next_completion()) {
            // Keep Alives complete on the admin queue.
            let Some(queue) = done.queue.checked_sub(self.first_queue) else { continue };
            let slot = queue * self.depth + usize::from(done.cid);
            check(self.buffers.completed(self.controller.link(), slot, &done));
            self.in_flight -= 1;
            self.last_progress = Instant::now();
            return Some(Done { slot, status: done.status });
        }
        None
    }

    /// Sends, waits a moment for something to arrive, and receives.
    ///
    /// # Panics
    /// When the connection breaks, or nothing completed for a minute.
    pub fn drive(&mut self) {
        let now = Instant::now();
        check(self.controller.keep_alive_if_due(now));
        check(self.controller.link().drive(now + Duration::from_millis(20)));
        check(self.controller.link().check(now));
        let stuck = self.in_flight > 0 && now.saturating_duration_since(self.last_progress) > STUCK;
        assert!(!stuck, "{} commands did not complete within {STUCK:?}", self.in_flight);
        for index in (0..self.lagging.len()).rev() {
            if self.is_acked(self.lagging[index]) {
                let slot = self.lagging.swap_remove(index);
                self.free.push(slot);
            }
        }
    }

    /// Waits for a free slot, taking completions as they come.
    pub fn wait_for_slot(&mut self, mut on_done: impl FnMut(&mut Self, Done)) -> usize {
        loop {
            while let Some(done) = self.poll_done() {
                on_done(self, done);
            }
            if let Some(slot) = self.take_slot() {
                return slot;
            }
            self.drive();
        }
    }

    /// Packets that were sent again, READ requests included.
    pub fn retransmitted(&mut self) -> u64 {
        let counters = self.controller.link().counters();
        counters.endpoint.retransmits + counters.endpoint.read_rerequests
    }

    /// Shuts the controller down and disconnects.
    pub fn close(self) {
        self.controller.close();
    }

    fn queue(&self, slot: usize) -> usize {
        self.first_queue + slot / self.depth
    }

    fn is_acked(&mut self, slot: usize) -> bool {
        let queue = self.queue(slot);
        self.slots[slot].capsule.is_none_or(|number| self.controller.link().is_acked(queue, number))
    }
}

/// The block range of a command that checks guard and reference tag.
#[must_use]
pub fn checked_range(namespace: &Namespace, slba: u64, blocks: u32, pract: bool) -> BlockRange {
    let pi = namespace.checked_pi(slba, pract);
    BlockRange { slba, blocks, fua: false, limited_retry: false, pi }
}

/// Generates or checks the tuples of a transfer at `slba` that carries them.
///
/// # Panics
/// When the namespace has no protection.
#[must_use]
pub fn protection(namespace: &Namespace, slba: u64) -> PiContext {
    let (format, pi_type) = namespace.protection.expect("the namespace is protected");
    let checks = Checks { guard: true, ref_tag: true, ..Checks::NONE };
    let tags = Tags { ref_tag: namespace.ref_tag(slba), ..Tags::default() };
    PiContext::new(&format, pi_type, checks, tags).expect("a storage tag of 0 fits")
}

fn check<T>(result: Result<T, HostError>) -> T {
    result.unwrap_or_else(|error| panic!("{}", with_sources(&error)))
}
