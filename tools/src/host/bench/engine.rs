//! The loop: takes all completions, sends as many new commands, then transmits once; never sleeps.
//!
//! Owns the slots (one a command in flight, with its memory) and what is measured. Allocates nothing after set-up. Latency
//! goes from the moment a batch of commands is handed to the device until the moment its completion is found.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use rwctx::device::soft::device::SoftCounters;
use t10pi::{Checks, PiContext, PiType, Tags};

use super::extents::Extents;
use super::pattern::Stamp;
use super::source::{Op, Source};
use super::subject::{Done, Subject, Transfer};
use super::{Job, PiMode};
use crate::host::clock;
use crate::host::error::HostError;

/// Longest latency that is told apart, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// When nothing completes for so long, the target is gone.
const STUCK: Duration = Duration::from_secs(30);
/// Loops between looks at what is rare.
const RARELY: u32 = 256;

/// What a run did.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) elapsed: Duration,
    /// User and system time of this process.
    pub(super) cpu: Duration,
    /// Nanoseconds.
    pub(super) latency: Histogram<u64>,
    /// Of sending and receiving.
    pub(super) system_calls: u64,
    pub(super) retransmitted: u64,
    pub(super) dropped: u64,
}

/// A command in flight, or free.
#[derive(Clone, Copy, Debug)]
struct Slot {
    op: Op,
    extent: u32,
    generation: u32,
    started: Instant,
    /// The message that carries its data, as long as it may have to be sent again.
    message: Option<u32>,
}

/// Runs one job's commands.
#[derive(Debug)]
pub(super) struct Engine<'j, S> {
    subject: S,
    job: &'j Job,
    slots: Vec<Slot>,
    /// Slots that can take a command.
    free: Vec<u32>,
    /// Completed slots whose data may have to be sent again.
    lagging: Vec<u32>,
    /// Commands that complete.
    in_flight: usize,
    /// What is compared with what, if data is checked.
    extents: Option<Extents>,
    /// A command's data, for generating and checking.
    scratch: Vec<u8>,
    random: fastrand::Rng,
}

impl<'j, S: Subject> Engine<'j, S> {
    pub(super) fn new(subject: S, job: &'j Job) -> Self {
        let count = job.slots();
        let idle = Slot { op: Op::Read, extent: 0, generation: 0, started: clock::now(), message: None };
        let mut engine = Self {
            subject,
            slots: vec![idle; count],
            free: (0..count).map(|slot| u32::try_from(slot).expect("depth times queues")).collect(),
            lagging: Vec::with_capacity(count),
            in_flight: 0,
            extents: job.options.verify.then(|| Extents::new(job.extents)),
            scratch: vec![0; job.wire_len as usize],
            random: fastrand::Rng::with_seed(job.options.seed),
            job,
        };
        // Data that nobody checks is made once.
        for slot in 0..count {
            engine.random.fill(&mut engine.scratch);
            engine.subject.write(slot, &engine.scratch);
        }
        engine
    }

    /// Runs commands for a time, or until they end, and waits for all of them.
    pub(super) fn run(&mut self, mut source: Source, time: Option<Duration>) -> Result<Measured, HostError> {
        debug_assert!(time.is_some() || source.is_finite(), "a run ends");
        let mut measured = Measured::new();
        let calls = self.subject.counters();
        let cpu = cpu_time()?;
        let start = clock::now();
        let end = time.map(|time| start + time);
        let mut more = true;
        let mut progress = start;
        let mut rounds = 0_u32;
        loop {
            let now = clock::now();
            more = more && end.is_none_or(|end| now < end);
            self.subject.receive(now);
            if self.take_completions(&mut measured)? {
                progress = now;
            }
            if more {
                more = self.send(&mut source)?;
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(RARELY) {
                self.look_after(now, progress)?;
            }
            self.subject.transmit(now);
            if !more && self.in_flight == 0 && self.lagging.is_empty() {
                break;
            }
        }
        measured.elapsed = clock::now() - start;
        measured.cpu = cpu_time()?.saturating_sub(cpu);
        measured.count_calls(&calls, &self.subject.counters());
        Ok(measured)
    }

    /// What need not be done all the time.
    fn look_after(&mut self, now: Instant, progress: Instant) -> Result<(), HostError> {
        self.subject.look_after(now)?;
        if now.saturating_duration_since(progress) > STUCK {
            let target = self.subject.target();
            return Err(HostError::Timeout { target, what: "I/O command", after: STUCK });
        }
        Ok(())
    }

    /// Takes all completions; says whether there was one.
    fn take_completions(&mut self, measured: &mut Measured) -> Result<bool, HostError> {
        let mut any = false;
        let mut found = None;
        while let Some(done) = self.subject.next_done()? {
            any = true;
            let now = *found.get_or_insert_with(clock::now);
            self.complete(done, now, measured)?;
        }
        if !self.lagging.is_empty() {
            self.free_acknowledged();
        }
        Ok(any)
    }

    fn complete(&mut self, done: Done, now: Instant, measured: &mut Measured) -> Result<(), HostError> {
        let index = done.slot;
        let slot = self.slots[index];
        if let Some(failure) = done.failure {
            tracing::error!(lba = self.slba(slot.extent), blocks = self.job.blocks, "{failure}");
            return Err(*failure);
        }
        let latency = now.saturating_duration_since(slot.started);
        measured.latency.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(LONGEST));
        match slot.op {
            Op::Read => {
                measured.reads += 1;
                self.check(index, &slot)?;
            }
            Op::Write => measured.writes += 1,
        }
        if let Some(extents) = &mut self.extents {
            extents.end(slot.op, slot.extent);
        }
        self.in_flight -= 1;
        let lags = slot.message.is_some_and(|message| !self.subject.is_acked(index, message));
        let index = u32::try_from(index).expect("depth times queues");
        if lags {
            self.lagging.push(index);
        } else {
            self.free.push(index);
        }
        Ok(())
    }

    /// Frees slots whose data will not be sent again.
    fn free_acknowledged(&mut self) {
        let Self { subject, lagging, free, slots, .. } = self;
        lagging.retain(|&index| {
            let at = index as usize;
            let waits = slots[at].message.is_some_and(|message| !subject.is_acked(at, message));
            if !waits {
                free.push(index);
            }
            waits
        });
    }

    /// Sends commands as long as there are free slots; says whether the source has more.
    fn send(&mut self, source: &mut Source) -> Result<bool, HostError> {
        if self.free.is_empty() {
            return Ok(true);
        }
        let now = clock::now();
        while let Some(&index) = self.free.last() {
            if !self.subject.has_room(index as usize) {
                // Acknowledgements were lost, and come again; or the target takes no more for now.
                return Ok(true);
            }
            let Some((op, wanted)) = source.next(&mut self.random, self.job.extents, self.extents.as_ref())
            else {
                return Ok(false);
            };
            let (extent, generation) = match &mut self.extents {
                // There are more extents than commands in flight, and an unread, unwritten one takes anything.
                Some(extents) => extents.start(op, wanted).expect("an extent is free"),
                None => (wanted, 0),
            };
            self.free.pop();
            self.send_one(index, Slot { op, extent, generation, started: now, message: None })?;
        }
        Ok(true)
    }

    #[inline]
    fn send_one(&mut self, index: u32, mut slot: Slot) -> Result<(), HostError> {
        let at = index as usize;
        if slot.op == Op::Write {
            self.prepare(at, &slot);
        }
        let transfer = Transfer {
            op: slot.op,
            slba: self.slba(slot.extent),
            blocks: self.job.blocks,
            length: self.job.wire_len,
            pi: self.job.pi,
        };
        slot.message = self.subject.submit(at, &transfer)?;
        self.slots[at] = slot;
        self.in_flight += 1;
        Ok(())
    }

    fn slba(&self, extent: u32) -> u64 {
        self.job.options.start + u64::from(extent) * u64::from(self.job.blocks)
    }

    /// Makes a write's data, if anybody looks at it.
    fn prepare(&mut self, index: usize, slot: &Slot) {
        let full = self.job.pi == PiMode::Full;
        if self.extents.is_none() && !full {
            return;
        }
        let slba = self.slba(slot.extent);
        if self.extents.is_some() {
            let stride = self.stride();
            for (block, lba) in self.scratch.chunks_exact_mut(stride).zip(slba..) {
                let stamp = Stamp { seed: self.job.options.seed, lba, generation: slot.generation };
                stamp.fill(&mut block[..self.job.disk.block_size as usize]);
            }
        }
        if let Some(context) = self.context(slba) {
            context.generate_interleaved(&mut [&mut self.scratch]);
        }
        self.subject.write(index, &self.scratch);
    }

    /// Checks what was read, as far as this is asked for.
    fn check(&mut self, index: usize, slot: &Slot) -> Result<(), HostError> {
        let full = self.job.pi == PiMode::Full;
        if self.extents.is_none() && !full {
            return Ok(());
        }
        self.subject.read(index, &mut self.scratch);
        let slba = self.slba(slot.extent);
        if let Some(context) = self.context(slba) {
            context
                .verify_interleaved(&[&self.scratch])
                .map_err(|mismatch| HostError::Corrupt(format!("read at block {slba}: {mismatch}")))?;
        }
        if self.extents.is_some() && slot.generation != 0 {
            for (block, lba) in self.scratch.chunks_exact(self.stride()).zip(slba..) {
                let stamp = Stamp { seed: self.job.options.seed, lba, generation: slot.generation };
                stamp.check(&block[..self.job.disk.block_size as usize]).map_err(HostError::Corrupt)?;
            }
        }
        Ok(())
    }

    /// Bytes from one block to the next in a transfer.
    fn stride(&self) -> usize {
        (self.job.wire_len / self.job.blocks) as usize
    }

    /// The protection of a transfer that carries it.
    fn context(&self, slba: u64) -> Option<PiContext> {
        let (format, pi_type) = self.job.disk.protection.filter(|_| self.job.pi == PiMode::Full)?;
        let checks = Checks { guard: true, ref_tag: pi_type != PiType::Type3, ..Checks::NONE };
        let tags = Tags { ref_tag: self.job.disk.ref_tag(slba), ..Tags::default() };
        Some(PiContext::new(&format, pi_type, checks, tags).expect("a storage tag of 0 fits"))
    }
}

impl Measured {
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LONGEST, 3).expect("fixed bounds are valid");
        Self {
            reads: 0,
            writes: 0,
            elapsed: Duration::ZERO,
            cpu: Duration::ZERO,
            latency,
            system_calls: 0,
            retransmitted: 0,
            dropped: 0,
        }
    }

    fn count_calls(&mut self, before: &SoftCounters, after: &SoftCounters) {
        self.system_calls = after.rx.calls - before.rx.calls + after.tx.calls - before.tx.calls;
        self.dropped = after.rx.drops - before.rx.drops;
        self.retransmitted = after.endpoint.retransmits - before.endpoint.retransmits;
    }
}

/// Time that this process spent on CPUs.
fn cpu_time() -> Result<Duration, HostError> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)
        .map_err(|errno| HostError::system("read the time spent on CPUs", errno))?;
    let micros = |time: nix::sys::time::TimeVal| {
        u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0)
    };
    Ok(Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time())))
}
