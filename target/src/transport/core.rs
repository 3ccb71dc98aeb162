//! What all queues of a reactor share, whichever their protocol: the device, the engine, buffers, and lists of who waits for what.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rwctx::device::{Device, DeviceCaps, DeviceError};
use rwctx::mem::{Access, Lkey, Mr, Pd, Region};
use rwctx::plan::{Direction, Integrity, needs_mr};
use rwctx::segment::CtxCache;
use rwctx::wr::Sge;
use t10pi::{Ahead, Field, PiMismatch};

use super::Event;
use super::share::{Share, peer_group};
use super::size::QueueSize;
use super::stats::Stats;
use crate::block::{
    BackendKind, Buf, BufPool, Engine, Io, IoDone, IoError, Lock, Mode, RangeGuard, RangeWait, Submit,
    Volume, WakerId,
};
use crate::log_limit::LogLimit;
use crate::nvmf::registry::Registry;

/// The bit that the numbers of iSCSI connections have, and those of NVMe queues have not. Numbers of queues have 24 bits.
pub(crate) const ISER: u32 = 1 << 23;

/// Whose a queue of this number is.
pub(crate) fn is_iser(queue: u32) -> bool {
    queue & ISER != 0
}

/// What became of a try to get buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// They are there.
    Taken,
    /// The pool has no room.
    NoRoom,
    /// The peer holds so much already that others come first.
    OverShare,
}

/// Where a block was damaged, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    /// In the host's memory: read twice, it failed the check twice. Also what came along with a command, which comes once.
    Host,
    /// Between the host's memory and ours: what was read a second time passed the check that the first had failed.
    Wire,
    /// On the medium, or between it and our memory.
    Media,
}

/// What became of a request for blocks.
pub(crate) enum Locked {
    /// They are held.
    Held(RangeGuard),
    /// The request waits, and is tried again when they may be free.
    Waiting(RangeWait),
    /// It waits until fewer requests of its peer do, and asks again then.
    Parked,
    /// This reactor can't use the volume.
    Unusable,
}

/// What became of an operation for the engine.
#[derive(Debug)]
pub(crate) enum Submitted {
    /// It is done.
    Done(IoDone),
    /// The engine has it.
    Pending,
    /// The engine is full: the request waits, and is tried again.
    Waiting(Io),
    /// This reactor can't use the volume.
    Unusable(Io),
}

/// A request by queue and slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) queue: u32,
    pub(crate) request: u32,
}

impl Token {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.queue) << 32 | u64::from(self.request)
    }

    pub(crate) fn unpack(token: u64) -> Self {
        let [queue, request] =
            [token >> 32, token & 0xffff_ffff].map(|half| u32::try_from(half).expect("32 bits"));
        Self { queue, request }
    }
}

/// Shared parts of a reactor's transport.
#[derive(Debug)]
pub(crate) struct Core<D: Device> {
    pub(crate) device: D,
    pub(crate) pd: Pd,
    pub(crate) caps: DeviceCaps,
    /// Whether the device checks and makes the tuples of what NVMe hosts send, where it can.
    pub(crate) integrity: Integrity,
    pub(crate) engine: Engine,
    pub(crate) pool: BufPool,
    pool_mr: Mr,
    pub(crate) registry: Arc<Registry>,
    /// This reactor's number.
    pub(crate) reactor: usize,
    /// Time of this round of the reactor.
    pub(crate) now: Instant,
    /// Bytes of in-capsule data that I/O queues take.
    pub(crate) in_capsule_data: u32,
    /// Bytes of data (without metadata) that a command moves at most.
    pub(crate) max_transfer: u32,
    /// Volumes that this reactor met, by their numbers.
    volumes: Vec<Option<Known>>,
    /// Requests that wait for a buffer, in order.
    pub(crate) waiting_buffers: VecDeque<Token>,
    /// The first of those who wait did not find room: nobody overtakes it, or a large transfer would never find any.
    pub(crate) room_wanted: bool,
    /// What each peer holds of the buffers.
    shares: Vec<(IpAddr, Rc<Share>)>,
    log_limit: LogLimit,
    /// Those about data that hosts sent: hosts that come and go do not hide them.
    data_log_limit: LogLimit,
    /// Apart, so that what hosts do wrong hides no failing medium.
    media_log_limit: LogLimit,
    /// Requests that wait for a range: of each peer [`RANGE_WAITS`] at most, for all are looked at whenever a range is let go.
    pub(crate) waiting_ranges: Vec<Token>,
    /// Peers with more of them.
    parked: VecDeque<Rc<Share>>,
    /// Some of those may be looked at though nothing woke this reactor.
    pub(crate) unpark: bool,
    /// Requests that found the engine full, in order: of memory, and of files, for which it has places of their own.
    pub(crate) waiting_engine: [VecDeque<Token>; 2],
    /// Requests that go on in the next round: they have parts, each of which is work.
    pub(crate) next_round: VecDeque<Token>,
    /// Requests that go on at the end of the round, and where their medium's data begins.
    pub(crate) prefetched: Vec<(Token, Ahead)>,
    /// The data that is looked at next.
    pub(crate) ahead: Ahead,
    /// Bytes of data that were checked in this round.
    pub(crate) checked_bytes: usize,
    /// Checksums of the data that is being checked; a request takes them.
    pub(crate) sums: Vec<u32>,
    /// Requests whose response goes out with this round's batch.
    pub(crate) responses: Vec<Token>,
    /// What others are to be told or to do.
    pub(crate) events: Vec<Event>,
    /// Controllers that were reset: their I/O queues are to be closed.
    pub(crate) resets: Vec<u16>,
    /// I/O queues that were connected: controller, and the reactor of its admin queue.
    pub(crate) io_connected: Vec<(u16, usize)>,
    /// Queues to close at the end of this round.
    pub(crate) closing: Vec<u32>,
    /// Tuples of a read whose host does not get them, between two steps of one request.
    pub(crate) tuples: Vec<u8>,
    /// Reused for messages, between two steps.
    pub(crate) message: Vec<u8>,
    /// Reused for scatter lists.
    pub(crate) sges: Vec<Sge>,
    /// Contexts of commands whose data is in several pieces.
    pub(crate) contexts: CtxCache,
    pub(crate) stats: Arc<Stats>,
}

/// Requests of a queue of `entries` commands: a response may wait for its acknowledgement while its command's successor is
/// already here.
pub(crate) fn slots(entries: u32) -> u32 {
    entries * 2
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

/// Checksums that a request keeps room for: of 128 KiB.
pub(crate) const KEPT_SUMS: usize = 32;

/// Contexts for pieces of commands, and pieces of our memory of each, that are kept for the next ones: 32 MiB at most.
const KEPT_CONTEXTS: usize = 1024;
const KEPT_BVECS: usize = 1024;

/// How long reads of a volume are copied after somebody had to wait for one in place.
const COPY_AFTER_CONFLICT: Duration = Duration::from_millis(10);

impl<D: Device> Core<D> {
    pub(crate) fn new(
        mut device: D,
        engine: Engine,
        pool: BufPool,
        registry: Arc<Registry>,
        reactor: usize,
        integrity: Integrity,
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
            integrity,
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
            next_round: VecDeque::with_capacity(1024),
            prefetched: Vec::with_capacity(1024),
            ahead: Ahead::UNKNOWN,
            checked_bytes: 0,
            sums: Vec::with_capacity(KEPT_SUMS),
            responses: Vec::with_capacity(1024),
            events: Vec::new(),
            resets: Vec::new(),
            io_connected: Vec::new(),
            closing: Vec::new(),
            tuples,
            message: Vec::with_capacity(16 << 10),
            sges: Vec::with_capacity(1024),
            contexts: CtxCache::new(KEPT_BVECS, KEPT_CONTEXTS),
            stats: Arc::default(),
        })
    }

    /// A piece of a pool buffer at `addr` as the device names it.
    pub(crate) fn sge(&self, addr: u64, length: u32) -> Sge {
        Sge { addr, length, lkey: self.pool_mr.lkey }
    }

    /// Adds the first `length` bytes of a pool buffer to the list of pieces: as one, or where the device registers what it
    /// moves in `direction`, as pages.
    pub(crate) fn list(&mut self, buf: &Buf, length: u32, direction: Direction) {
        let whole = self.sge(buf.addr(), length);
        self.list_piece(whole, direction);
    }

    /// The same of memory that starts at a page.
    pub(crate) fn list_piece(&mut self, whole: Sge, direction: Direction) {
        const PAGE: u32 = rwctx::mem::PAGE;
        if whole.length == 0 {
            return;
        }
        if !needs_mr(&self.caps, direction, whole.length.div_ceil(PAGE) as usize) {
            return self.sges.push(whole);
        }
        // Registrations are made of pages.
        let pages = (0..whole.length).step_by(PAGE as usize).map(|at| Sge {
            addr: whole.addr + u64::from(at),
            length: PAGE.min(whole.length - at),
            ..whole
        });
        self.sges.extend(pages);
    }

    /// Logs and counts a failed check of protection information.
    pub(crate) fn protection_error(
        &mut self,
        volume: &Volume,
        peer: IpAddr,
        lba: u64,
        hop: Hop,
        mismatch: &PiMismatch,
    ) {
        let field = match mismatch.field {
            Field::Guard => "guard",
            Field::AppTag => "app_tag",
            Field::StorageTag => "storage_tag",
            Field::RefTag => "ref_tag",
        };
        let log = |hop| {
            tracing::warn!(
                volume = volume.name(),
                lba,
                field,
                expected = format_args!("{:#x}", mismatch.expected),
                actual = format_args!("{:#x}", mismatch.actual),
                hop,
                %peer,
                "protection information check failed"
            );
        };
        match hop {
            Hop::Host => self.warn_of_data(|| log("host")),
            Hop::Wire => self.warn_of_data(|| log("wire")),
            Hop::Media => self.warn_of_medium(|| log("media")),
        }
        self.stats.protection_error(mismatch.field);
    }

    /// What a queue for `entries` commands takes of the device.
    pub(crate) fn queue_size(&self, entries: u32, integrity: Integrity) -> QueueSize {
        QueueSize::new(&self.caps, self.max_transfer, entries, integrity)
    }

    /// This reactor's name towards a volume's locks; none when this reactor can't use the volume. Makes the volume known to
    /// the engine at its first use.
    pub(crate) fn waker(&mut self, volume: &Arc<Volume>) -> Option<WakerId> {
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
    pub(crate) fn forget_volumes(&mut self) {
        for known in &mut self.volumes {
            if let Some(gone) = known.take_if(|known| known.volume.strong_count() == 0) {
                gone.forget(&mut self.device);
            }
        }
    }

    /// The memory of blocks that can be sent from where they lie: in memory, in one piece, by a device that can let go of them
    /// when somebody else wants them, and nobody did lately. Registers the memory at its first use. It stays where it is as
    /// long as the volume exists.
    pub(crate) fn memory_of(&mut self, volume: &Arc<Volume>, slba: u64, blocks: u32) -> Option<Sge> {
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
    pub(crate) fn note_conflict(&mut self, volume: &Arc<Volume>) {
        self.stats.in_place_conflicts.add(1);
        let until = self.now + COPY_AFTER_CONFLICT;
        self.known(volume).copy_until = Some(until);
    }

    /// The share of the buffers of a peer, which all of its queues have together.
    pub(crate) fn share(&mut self, peer: IpAddr) -> Rc<Share> {
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
    pub(crate) fn warn(&mut self, log: impl FnOnce()) {
        self.log_limit.log(self.now, log);
    }

    /// Logs that data of a peer failed a check, within a limit of its own.
    pub(crate) fn warn_of_data(&mut self, log: impl FnOnce()) {
        self.data_log_limit.log(self.now, log);
    }

    /// The same of what volumes do, which peers can cause, too: they need only read a bad block again.
    pub(crate) fn warn_of_medium(&mut self, log: impl FnOnce()) {
        self.media_log_limit.log(self.now, log);
    }

    /// Says which log lines were left out.
    pub(crate) fn settle_log(&mut self) {
        self.log_limit.settle(self.now);
        self.data_log_limit.settle(self.now);
        self.media_log_limit.settle(self.now);
    }

    /// The queue failed or its peer misbehaved: it is closed when this round's events are done.
    pub(crate) fn close_later(&mut self, queue: u32) {
        if !self.closing.contains(&queue) {
            self.closing.push(queue);
        }
    }

    /// A request waits for buffers, behind others.
    pub(crate) fn wait_for_buffers(&mut self, share: &Share, token: Token) {
        self.stats.buffer_waits.add(1);
        share.waiting.set(share.waiting.get() + 1);
        self.waiting_buffers.push_back(token);
    }

    /// Gives the engine an operation, or has its request wait until there is room.
    #[inline]
    pub(crate) fn submit(&mut self, io: Io) -> Submitted {
        // Without a range to lock (Flush), this may be the volume's first operation on this reactor.
        if io.guard.is_none() && self.waker(&io.volume).is_none() {
            return Submitted::Unusable(io);
        }
        match self.engine.submit(io) {
            Submit::Done(done) => Submitted::Done(done),
            Submit::Pending => Submitted::Pending,
            Submit::Busy(io) => {
                let of_file = usize::from(io.volume.backend_kind() == BackendKind::File);
                self.stats.engine_waits.add(1);
                self.waiting_engine[of_file].push_back(Token::unpack(io.token));
                Submitted::Waiting(io)
            }
        }
    }

    /// Logs and counts an operation of a host's that failed on the medium.
    pub(crate) fn note_io_failed(&mut self, volume: &Volume, peer: IpAddr, error: &IoError) {
        self.warn_of_medium(|| tracing::warn!(volume = volume.name(), %peer, %error, "I/O failed"));
        if error.kind.is_of_medium() {
            self.stats.media_errors.add(1);
        }
    }

    /// Holds blocks of a volume for a request, or has it wait for them.
    pub(crate) fn lock(
        &mut self,
        volume: &Arc<Volume>,
        (slba, blocks): (u64, u32),
        mode: Mode,
        share: &Rc<Share>,
        token: Token,
    ) -> Locked {
        let Some(waker) = self.waker(volume) else { return Locked::Unusable };
        let (locks, blocks) = (volume.locks(), u64::from(blocks));
        if !share.may_wait() {
            let Some(guard) = locks.try_lock(slba, blocks, mode) else {
                self.park(share, token);
                return Locked::Parked;
            };
            return Locked::Held(guard);
        }
        match locks.lock(slba, blocks, mode, waker) {
            Lock::Held(guard) => Locked::Held(guard),
            Lock::Waiting(wait) => {
                self.stats.range_waits.add(1);
                self.waiting_ranges.push(token);
                share.waits();
                Locked::Waiting(wait)
            }
        }
    }

    /// A request is to wait for a range when fewer of its peer do.
    pub(crate) fn park(&mut self, share: &Rc<Share>, token: Token) {
        share.parked.borrow_mut().push_back(token);
        if !share.is_listed.replace(true) {
            self.parked.push_back(Rc::clone(share));
        }
    }

    /// A request that was parked and may wait now. Call it until it gives none.
    pub(crate) fn unpark(&mut self) -> Option<Token> {
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

    /// Forgets what one request waits for. What it holds of a range's table is its own to drop.
    pub(crate) fn forget_request(&mut self, token: Token, share: &Share) {
        let before = self.waiting_buffers.len();
        self.waiting_buffers.retain(|waiting| *waiting != token);
        if self.waiting_buffers.len() < before {
            share.waiting.set(share.waiting.get().saturating_sub(1));
        }
        let before = self.waiting_ranges.len();
        self.waiting_ranges.retain(|waiting| *waiting != token);
        if self.waiting_ranges.len() < before {
            share.has_waited();
            self.unpark |= !share.parked.borrow().is_empty();
        }
        share.parked.borrow_mut().retain(|waiting| *waiting != token);
        for waiting in &mut self.waiting_engine {
            waiting.retain(|waiting| *waiting != token);
        }
        self.next_round.retain(|waiting| *waiting != token);
        self.prefetched.retain(|(waiting, _)| *waiting != token);
    }

    /// Forgets everything that a queue's requests wait for. Returns how many waited for a buffer.
    pub(crate) fn forget_waiters(&mut self, queue: u32, share: &Share) -> u32 {
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
        self.next_round.retain(|token| token.queue != queue);
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
