//! What all queues of a reactor share: the device, the engine, buffers, and lists of who waits for what.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rwctx::device::{Device, DeviceCaps, DeviceError};
use rwctx::mem::{Access, Lkey, Mr, Pd, Region};
use rwctx::plan;
use rwctx::segment::CtxCache;
use rwctx::wr::Sge;
use t10pi::Ahead;

use super::queue::{KEPT_SUMS, slots};
use super::stats::Stats;
use crate::block::{BufPool, Engine, PAGE, Volume, WakerId};
use crate::log_limit::LogLimit;
use crate::nvmf::command::MAX_SGL_DESCRIPTORS;
use crate::nvmf::registry::{Registry, peer_group};

/// A request by queue and slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) queue: u32,
    pub(super) request: u32,
}

impl Token {
    pub(super) fn pack(self) -> u64 {
        u64::from(self.queue) << 32 | u64::from(self.request)
    }

    pub(super) fn unpack(token: u64) -> Self {
        let [queue, request] =
            [token >> 32, token & 0xffff_ffff].map(|half| u32::try_from(half).expect("32 bits"));
        Self { queue, request }
    }
}

/// Shared parts of a reactor's transport.
#[derive(Debug)]
pub(super) struct Core<D: Device> {
    pub(super) device: D,
    pub(super) pd: Pd,
    pub(super) caps: DeviceCaps,
    pub(super) engine: Engine,
    pub(super) pool: BufPool,
    pool_mr: Mr,
    pub(super) registry: Arc<Registry>,
    /// This reactor's number.
    pub(super) reactor: usize,
    /// Time of this round of the reactor.
    pub(super) now: Instant,
    /// Bytes of in-capsule data that I/O queues take.
    pub(super) in_capsule_data: u32,
    /// Bytes of data (without metadata) that a command moves at most.
    pub(super) max_transfer: u32,
    /// Volumes that this reactor met, by their numbers.
    volumes: Vec<Option<Known>>,
    /// Requests that wait for a buffer, in order.
    pub(super) waiting_buffers: VecDeque<Token>,
    /// The first of those who wait did not find room: nobody overtakes it, or a large transfer would never find any.
    pub(super) room_wanted: bool,
    /// What each peer holds of the buffers.
    shares: Vec<(IpAddr, Rc<Share>)>,
    log_limit: LogLimit,
    /// Those about data that hosts sent: hosts that come and go do not hide them.
    data_log_limit: LogLimit,
    /// Apart, so that what hosts do wrong hides no failing medium.
    media_log_limit: LogLimit,
    /// Requests that wait for a range: of each peer [`RANGE_WAITS`] at most, for all are looked at whenever a range is let go.
    pub(super) waiting_ranges: Vec<Token>,
    /// Peers with more of them.
    parked: VecDeque<Rc<Share>>,
    /// Some of those may be looked at though nothing woke this reactor.
    pub(super) unpark: bool,
    /// Requests that found the engine full, in order: of memory, and of files, for which it has places of their own.
    pub(super) waiting_engine: [VecDeque<Token>; 2],
    /// Requests that go on at the end of the round, and where their medium's data begins.
    pub(super) prefetched: Vec<(Token, Ahead)>,
    /// The data that is looked at next.
    pub(super) ahead: Ahead,
    /// Bytes of data that were checked in this round.
    pub(super) checked_bytes: usize,
    /// Checksums of the data that is being checked; a request takes them.
    pub(super) sums: Vec<u32>,
    /// Requests whose response goes out with this round's batch.
    pub(super) responses: Vec<Token>,
    /// Controllers that were reset: their I/O queues are to be closed.
    pub(super) resets: Vec<u16>,
    /// I/O queues that were connected: controller, and the reactor of its admin queue.
    pub(super) io_connected: Vec<(u16, usize)>,
    /// Queues to close at the end of this round.
    pub(super) closing: Vec<u32>,
    /// Tuples of a read whose host does not get them, between two steps of one request.
    pub(super) tuples: Vec<u8>,
    /// Reused for scatter lists.
    pub(super) sges: Vec<Sge>,
    /// Contexts of commands whose data is in several pieces.
    pub(super) contexts: CtxCache,
    pub(super) stats: Arc<Stats>,
}

/// What a queue pair has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueSize {
    /// Send-queue entries beside those of contexts.
    pub(super) own: u32,
    /// Contexts, each with a registration if the device's contexts use some.
    pub(super) ctxs: u32,
}

/// A volume that this reactor met.
#[derive(Debug)]
struct Known {
    /// Not kept by this when it is gone from the configuration. Another one may have its number then, but not its address as
    /// long as it is listed.
    volume: Weak<Volume>,
    /// This reactor's name towards its locks; none when the engine can't use the volume.
    waker: Option<WakerId>,
    /// Its memory, by address, registered for reads in place.
    regions: Vec<(*const Region, Mr)>,
    /// Somebody wanted blocks that were being sent from where they lie: until then reads are copied.
    copy_until: Option<Instant>,
}

/// Bytes of the longest tuple; where tuples are dropped, metadata is nothing else.
const LONGEST_TUPLE: usize = 16;

/// Contexts for pieces of commands, and pieces of our memory of each, that are kept for the next ones: 32 MiB at most.
const KEPT_CONTEXTS: usize = 1024;
const KEPT_BVECS: usize = 1024;
/// Bytes of the longest metadata of a block.
const LONGEST_METADATA: usize = 128;

/// Requests of a peer that wait for ranges at once.
const RANGE_WAITS: u32 = 64;

/// How long reads of a volume are copied after somebody had to wait for one in place.
const COPY_AFTER_CONFLICT: Duration = Duration::from_millis(10);

impl<D: Device> Core<D> {
    pub(super) fn new(
        mut device: D,
        engine: Engine,
        pool: BufPool,
        registry: Arc<Registry>,
        reactor: usize,
        now: Instant,
    ) -> Result<Self, DeviceError> {
        let pd = device.alloc_pd()?;
        let caps = *device.caps();
        let access = Access { local_write: true, ..Access::default() };
        let pool_mr = device.reg_mr(pd, pool.region(), 0, pool.region().len(), access)?;
        let max_transfer = registry.limits().max_data;
        let tuples = Vec::with_capacity(LONGEST_TUPLE * (max_transfer as usize).div_ceil(512));
        Ok(Self {
            device,
            pd,
            caps,
            engine,
            pool,
            pool_mr,
            in_capsule_data: registry.limits().in_capsule_data,
            max_transfer,
            registry,
            reactor,
            now,
            volumes: Vec::new(),
            waiting_buffers: VecDeque::with_capacity(1024),
            room_wanted: false,
            shares: Vec::new(),
            log_limit: LogLimit::new(now, "hosts"),
            data_log_limit: LogLimit::new(now, "hosts' data"),
            media_log_limit: LogLimit::new(now, "media"),
            waiting_ranges: Vec::with_capacity(1024),
            parked: VecDeque::new(),
            unpark: false,
            waiting_engine: [(); 2].map(|()| VecDeque::with_capacity(1024)),
            prefetched: Vec::with_capacity(1024),
            ahead: Ahead::UNKNOWN,
            checked_bytes: 0,
            sums: Vec::with_capacity(KEPT_SUMS),
            responses: Vec::with_capacity(1024),
            resets: Vec::new(),
            io_connected: Vec::new(),
            closing: Vec::new(),
            tuples,
            sges: Vec::with_capacity(1024),
            contexts: CtxCache::new(KEPT_BVECS, KEPT_CONTEXTS),
            stats: Arc::default(),
        })
    }

    /// A piece of a pool buffer at `addr` as the device names it.
    pub(super) fn sge(&self, addr: u64, length: u32) -> Sge {
        Sge { addr, length, lkey: self.pool_mr.lkey }
    }

    /// How a queue pair for `entries` commands is sized.
    pub(super) fn queue_size(&self, entries: u32) -> QueueSize {
        // Data and tuple of each block in turn, of the smallest blocks. Where the data is in several pieces of the host's memory,
        // each of them may cut one of ours, and has a last entry that is not full.
        let pieces = u32::try_from(MAX_SGL_DESCRIPTORS).expect("a few");
        let sges = 2 * self.max_transfer / 512 + pieces;
        let own = slots(entries);
        if !plan::can_use_mr(&self.caps) {
            // Requests of the largest size wait for each other; ordinary ones need one entry.
            return QueueSize { own, ctxs: entries.max(plan::mr_factor(&self.caps, sges) + pieces) };
        }
        // Each command has registrations for its largest transfer: so none ever waits for one. Data that goes to the host without
        // them may need more work requests than these do.
        let most = self.max_transfer as usize + LONGEST_METADATA * (self.max_transfer as usize).div_ceil(512);
        let pages = u32::try_from(most.div_ceil(PAGE)).expect("a transfer has few pages");
        let unregistered = sges.div_ceil(self.caps.max_send_sge.max(1)) + pieces;
        QueueSize {
            own: own.saturating_add(unregistered),
            ctxs: entries.saturating_mul(plan::mr_factor(&self.caps, pages) + pieces),
        }
    }

    /// This reactor's name towards a volume's locks; none when this reactor can't use the volume. Makes the volume known to
    /// the engine at its first use.
    pub(super) fn waker(&mut self, volume: &Arc<Volume>) -> Option<WakerId> {
        self.known(volume).waker
    }

    #[inline]
    fn known(&mut self, volume: &Arc<Volume>) -> &mut Known {
        let number = volume.number();
        let known = self.volumes.get(number).and_then(Option::as_ref);
        if known.is_none_or(|known| !std::ptr::eq(known.volume.as_ptr(), Arc::as_ptr(volume))) {
            self.meet(volume);
        }
        self.volumes[number].as_mut().expect("it was met")
    }

    #[cold]
    fn meet(&mut self, volume: &Arc<Volume>) {
        let waker = self.engine.attach(volume);
        if let Err(error) = &waker {
            // Once: what is known now is not asked again.
            tracing::error!(volume = volume.name(), %error, "this reactor can't use a volume; its commands fail");
        }
        let number = volume.number();
        if self.volumes.len() <= number {
            self.volumes.resize_with(number + 1, || None);
        }
        let known = Known {
            volume: Arc::downgrade(volume),
            waker: waker.ok(),
            regions: Vec::new(),
            copy_until: None,
        };
        if let Some(other) = self.volumes[number].replace(known) {
            other.forget(&mut self.device);
        }
    }

    /// Lets go of volumes that are gone, and of their memory.
    pub(super) fn forget_volumes(&mut self) {
        for known in &mut self.volumes {
            if let Some(gone) = known.take_if(|known| known.volume.strong_count() == 0) {
                gone.forget(&mut self.device);
            }
        }
    }

    /// The memory of blocks that can be sent from where they lie: in memory, in one piece, by a device that can let go of them
    /// when somebody else wants them, and nobody did lately. Registers the memory at its first use. It stays where it is as
    /// long as the volume exists.
    pub(super) fn memory_of(&mut self, volume: &Arc<Volume>, slba: u64, blocks: u32) -> Option<Sge> {
        // What is sent over a registration can't be replaced.
        if !self.caps.replace_source || self.caps.force_mr {
            return None;
        }
        let (region, offset, length) = volume.shared_data(slba, blocks)?;
        #[cfg(feature = "_fault")]
        if volume.has_faults() {
            return None;
        }
        let (addr, length) = (region.addr() + offset as u64, u32::try_from(length).ok()?);
        let address = Arc::as_ptr(region);
        let now = self.now;
        let known = self.known(volume);
        if let Some(until) = known.copy_until {
            if now < until {
                return None;
            }
            known.copy_until = None;
        }
        if let Some((_, mr)) = known.regions.iter().find(|(known, _)| std::ptr::eq(*known, address)) {
            return Some(Sge { addr, length, lkey: mr.lkey });
        }
        let lkey = self.register(volume, region)?;
        Some(Sge { addr, length, lkey })
    }

    /// Registers memory of a volume for reads in place.
    #[cold]
    fn register(&mut self, volume: &Arc<Volume>, region: &Arc<Region>) -> Option<Lkey> {
        let waker = self.known(volume).waker?;
        let mr = self.device.reg_mr(self.pd, region, 0, region.len(), Access::default()).ok()?;
        volume.locks().hold_long(waker);
        self.known(volume).regions.push((Arc::as_ptr(region), mr));
        Some(mr.lkey)
    }

    /// Somebody waited for blocks that were being sent from where they lie.
    pub(super) fn note_conflict(&mut self, volume: &Arc<Volume>) {
        self.stats.in_place_conflicts.add(1);
        let until = self.now + COPY_AFTER_CONFLICT;
        self.known(volume).copy_until = Some(until);
    }

    /// The share of the buffers of a peer, which all of its queues have together.
    pub(super) fn share(&mut self, peer: IpAddr) -> Rc<Share> {
        let peer = peer_group(peer);
        self.shares.retain(|(_, share)| Rc::strong_count(share) > 1);
        if let Some((_, share)) = self.shares.iter().find(|(known, _)| *known == peer) {
            return Rc::clone(share);
        }
        let share = Rc::new(Share::default());
        self.shares.push((peer, Rc::clone(&share)));
        share
    }

    /// Logs what peers can cause at will, not more often than a few times a second.
    pub(super) fn warn(&mut self, log: impl FnOnce()) {
        self.log_limit.log(self.now, log);
    }

    /// Logs that data of a peer failed a check, within a limit of its own.
    pub(super) fn warn_of_data(&mut self, log: impl FnOnce()) {
        self.data_log_limit.log(self.now, log);
    }

    /// The same of what volumes do, which peers can cause, too: they need only read a bad block again.
    pub(super) fn warn_of_medium(&mut self, log: impl FnOnce()) {
        self.media_log_limit.log(self.now, log);
    }

    /// Says which log lines were left out.
    pub(super) fn settle_log(&mut self) {
        self.log_limit.settle(self.now);
        self.data_log_limit.settle(self.now);
        self.media_log_limit.settle(self.now);
    }

    /// The queue failed or its peer misbehaved: it is closed when this round's events are done.
    pub(super) fn close_later(&mut self, queue: u32) {
        if !self.closing.contains(&queue) {
            self.closing.push(queue);
        }
    }

    /// A request is to wait for a range when fewer of its peer do.
    pub(super) fn park(&mut self, share: &Rc<Share>, token: Token) {
        share.parked.borrow_mut().push_back(token);
        if !share.is_listed.replace(true) {
            self.parked.push_back(Rc::clone(share));
        }
    }

    /// A request that was parked and may wait now. Call it until it gives none.
    pub(super) fn unpark(&mut self) -> Option<Token> {
        for _ in 0..self.parked.len() {
            let share = self.parked.pop_front()?;
            let token = if share.may_wait() { share.parked.borrow_mut().pop_front() } else { None };
            if share.parked.borrow().is_empty() {
                share.is_listed.set(false);
            } else {
                self.parked.push_back(share);
            }
            if token.is_some() {
                return token;
            }
        }
        None
    }

    /// Forgets everything that a queue's requests wait for. Returns how many waited for a buffer.
    pub(super) fn forget_waiters(&mut self, queue: u32, share: &Share) -> u32 {
        let before = self.waiting_buffers.len();
        self.waiting_buffers.retain(|token| token.queue != queue);
        let waited = before - self.waiting_buffers.len();
        let before = self.waiting_ranges.len();
        self.waiting_ranges.retain(|token| token.queue != queue);
        for _ in self.waiting_ranges.len()..before {
            share.has_waited();
        }
        share.parked.borrow_mut().retain(|token| token.queue != queue);
        self.unpark |= !share.parked.borrow().is_empty();
        for waiting in &mut self.waiting_engine {
            waiting.retain(|token| token.queue != queue);
        }
        self.prefetched.retain(|(token, _)| token.queue != queue);
        self.responses.retain(|token| token.queue != queue);
        u32::try_from(waited).expect("at most the requests of one queue")
    }
}

impl Known {
    fn forget<D: Device>(self, device: &mut D) {
        for (_, mr) in self.regions {
            // It was registered here, and only here it is given up.
            let _ = device.dereg_mr(mr.id);
        }
    }
}

/// Bytes of the reactor's buffers that a peer's requests hold.
///
/// A peer may hold as much as it leaves free. One that does not take its data can so keep half of the buffers from
/// others, two can keep two thirds, and nobody can keep all.
#[derive(Debug, Default)]
pub(super) struct Share {
    held: Cell<usize>,
    /// Requests of the peer that wait for a buffer.
    pub(super) waiting: Cell<u32>,
    /// The last round of tries in which one of them would have exceeded the share.
    pub(super) passed_over: Cell<u64>,
    /// Requests of the peer that wait for a range.
    range_waits: Cell<u32>,
    /// Those that are to wait for one when others have theirs, in order.
    parked: RefCell<VecDeque<Token>>,
    /// Whether it is among those with parked requests.
    is_listed: Cell<bool>,
}

/// A request's part of its peer's [`Share`], given back when dropped.
#[derive(Debug)]
pub(super) struct Charge {
    share: Rc<Share>,
    bytes: usize,
}

impl Share {
    /// Whether the peer may hold `bytes` more, of a pool with `free` bytes left.
    pub(super) fn allows(&self, bytes: usize, free: usize) -> bool {
        self.held.get() == 0 || self.held.get() + bytes <= free
    }

    /// Whether one more of the peer's requests may wait for a range.
    pub(super) fn may_wait(&self) -> bool {
        self.range_waits.get() < RANGE_WAITS
    }

    /// One of them waits for a range.
    pub(super) fn waits(&self) {
        self.range_waits.set(self.range_waits.get() + 1);
    }

    /// One of them has waited for a range.
    pub(super) fn has_waited(&self) {
        self.range_waits.set(self.range_waits.get() - 1);
    }

    /// Holds `bytes` more.
    pub(super) fn charge(self: &Rc<Self>, bytes: usize) -> Charge {
        self.held.set(self.held.get() + bytes);
        Charge { share: Rc::clone(self), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.share.held.set(self.share.held.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_may_hold_as_much_as_it_leaves_to_others() {
        let share = Rc::new(Share::default());
        let mut charges = Vec::new();
        let mut free = 100;
        while share.allows(10, free) {
            charges.push(share.charge(10));
            free -= 10;
        }
        assert_eq!(free, 50);
        let other = Rc::new(Share::default());
        assert!(other.allows(50, free), "who holds nothing may have all that is left");
        charges.pop();
        assert!(share.allows(10, free + 10));
    }
}
