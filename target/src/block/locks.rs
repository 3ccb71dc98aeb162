//! Range locks of a volume: readers of a block together, a writer alone.
//!
//! Owns exclusion between commands, of any host and reactor, whose LBA ranges overlap, and the order in which those
//! that had to wait get their turn. Never blocks a thread, never allocates after construction, takes no mutex.
//!
//! **Exclusion** is a table of 8-bit *lanes*, eight to an atomic word: 0 = free, 1 to 254 = so many readers, 255 = a
//! writer. Block `lba` belongs to lane `lba mod lanes`, so that blocks far apart may share one; that costs a needless
//! wait, never a wrong result. An operation takes all its lanes or none.
//!
//! **Order** is a small table of *waits*, each with a ticket. A newcomer whose lanes meet those of a wait in a way
//! that conflicts does not overtake it, and of two waits the older goes first: a writer is not starved by readers
//! that keep coming. When the table is full, later ones wait without a ticket and may be overtaken, but are woken.
//!
//! **Wake-up**: a wait is published before its last try, and a release comes before the look at the waits, both
//! sequentially consistent; so either the try succeeds or the release sees the wait and calls its reactor's waker.
//! An attempt that is rolled back counts as a release, for another may have failed because of it.
//!
//! **Long holds**: a reactor that keeps ranges for reading until a peer has the data says so beforehand
//! ([`RangeLocks::hold_long`]). Whoever begins to wait calls the wakers of all such reactors, and these look with
//! [`RangeGuard::is_wanted`] which of their guards to give up.

use std::sync::{Arc, OnceLock};

use self::atomic::AtomicU64;

/// What a range is locked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Its blocks are read, beside other readers.
    Read,
    /// Its blocks are written, alone.
    Write,
}

/// Called, from any thread, when a wait registered under its [`WakerId`] may succeed. Must not block.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Names a waker towards the locks that it is registered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakerId(u8);

/// The range locks of one volume.
pub struct RangeLocks {
    words: Box<[AtomicU64]>,
    waits: Box<[WaitSlot]>,
    /// Waits in the table, or about to be.
    waiting: AtomicU64,
    next_ticket: AtomicU64,
    /// Wakers with a wait that found the table full, a bit each.
    overflow: [AtomicU64; WAKERS / 64],
    /// Wakers of those that hold ranges for long, a bit each.
    long: [AtomicU64; WAKERS / 64],
    wakers: Box<[OnceLock<Waker>]>,
}

/// Outcome of asking for a range.
#[derive(Debug)]
pub enum Lock {
    /// It is held.
    Held(RangeGuard),
    /// It is not; [`RangeWait::poll`] after the waker was called.
    Waiting(RangeWait),
}

/// A range that is held; dropping releases it and wakes those who wait.
pub struct RangeGuard {
    locks: Arc<RangeLocks>,
    lanes: Lanes,
    slba: u64,
    blocks: u64,
    mode: Mode,
}

/// A range that somebody waits for; dropping gives up the place.
pub struct RangeWait {
    locks: Arc<RangeLocks>,
    lanes: Lanes,
    slba: u64,
    blocks: u64,
    mode: Mode,
    waker: Option<WakerId>,
    place: Option<Place>,
    /// What those who hold ranges for long were told.
    asked: Asked,
}

/// What those who hold ranges for long were told of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// That somebody waits; what for, nobody can see, and the next release takes even that away.
    Placeless,
    /// That somebody waits for what stands in the table.
    Placed,
}

impl Asked {
    fn of(place: Option<Place>) -> Self {
        if place.is_some() { Self::Placed } else { Self::Placeless }
    }
}

/// A place in the table of waits.
#[derive(Clone, Copy)]
struct Place {
    slot: usize,
    ticket: u64,
}

/// One row of the table of waits. `ticket` is written last and cleared first.
struct WaitSlot {
    /// [`FREE`], [`CLAIMED`] or the ticket.
    ticket: AtomicU64,
    start: AtomicU64,
    length: AtomicU64,
    /// Bit 0: writer. Bit 1: has a waker. Bits 15:8: waker.
    kind: AtomicU64,
}

/// A circular interval of lanes: `length` of them from `start`, at most all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lanes {
    start: u64,
    length: u64,
}

const LANES_PER_WORD: u64 = 8;
const MAX_WORDS: u64 = 8192;
const WAITS: usize = 128;
const WAKERS: usize = 256;

const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const FIRST_TICKET: u64 = 2;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;
/// A lane whose value is at or above this takes no further reader.
const READERS_FULL: u64 = 0xFE;

impl RangeLocks {
    /// The locks of a volume of `blocks` blocks; it may grow later.
    #[must_use]
    pub fn new(blocks: u64) -> Arc<Self> {
        let words = blocks.div_ceil(LANES_PER_WORD).next_power_of_two().clamp(16, MAX_WORDS);
        Self::with_shape(usize::try_from(words).expect("at most 8192"), WAITS)
    }

    fn with_shape(words: usize, waits: usize) -> Arc<Self> {
        assert!(words.is_power_of_two(), "lanes are found by masking");
        Arc::new(Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            waits: (0..waits).map(|_| WaitSlot::new()).collect(),
            waiting: AtomicU64::new(0),
            next_ticket: AtomicU64::new(FIRST_TICKET),
            overflow: Default::default(),
            long: Default::default(),
            wakers: (0..WAKERS).map(|_| OnceLock::new()).collect(),
        })
    }

    /// Makes a reactor known; one that is known keeps its name. At most 256 wakers in the locks' life; `None` beyond that.
    #[must_use]
    pub fn register_waker(&self, waker: &Waker) -> Option<WakerId> {
        let is_known = |known: &Waker| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(waker));
        let mut places = self.wakers.iter();
        let place = places
            .position(|place| place.get().is_some_and(is_known) || place.set(Arc::clone(waker)).is_ok())?;
        u8::try_from(place).ok().map(WakerId)
    }

    /// Takes `blocks` blocks from `slba` if that is possible at once, else leaves no trace (and nobody is woken for
    /// it later).
    #[must_use]
    pub fn try_lock(self: &Arc<Self>, slba: u64, blocks: u64, mode: Mode) -> Option<RangeGuard> {
        let lanes = self.lanes(slba, blocks);
        self.attempt(lanes, mode, None).then(|| self.guard(lanes, slba, blocks, mode))
    }

    /// Takes `blocks` blocks from `slba`, or waits for them; `waker` is called when it is worth polling again.
    #[must_use]
    pub fn lock(self: &Arc<Self>, slba: u64, blocks: u64, mode: Mode, waker: WakerId) -> Lock {
        let lanes = self.lanes(slba, blocks);
        if self.attempt(lanes, mode, None) {
            return Lock::Held(self.guard(lanes, slba, blocks, mode));
        }
        self.wait(lanes, slba, blocks, mode, Some(waker))
    }

    /// As [`Self::lock`], for a caller that polls from time to time instead of being woken.
    #[must_use]
    pub fn lock_by_polling(self: &Arc<Self>, slba: u64, blocks: u64, mode: Mode) -> Lock {
        self.wait(self.lanes(slba, blocks), slba, blocks, mode, None)
    }

    /// The reactor behind `waker` will hold ranges for reading until somebody far away has the data: its waker is called
    /// whenever somebody begins to wait.
    pub fn hold_long(&self, waker: WakerId) {
        self.long[usize::from(waker.0) / 64].fetch_or(1 << (waker.0 % 64));
    }

    fn wait(
        self: &Arc<Self>,
        lanes: Lanes,
        slba: u64,
        blocks: u64,
        mode: Mode,
        waker: Option<WakerId>,
    ) -> Lock {
        let locks = Arc::clone(self);
        let mut wait =
            RangeWait { locks, lanes, slba, blocks, mode, waker, place: None, asked: Asked::Nothing };
        match wait.poll() {
            Some(guard) => Lock::Held(guard),
            None => Lock::Waiting(wait),
        }
    }

    fn guard(self: &Arc<Self>, lanes: Lanes, slba: u64, blocks: u64, mode: Mode) -> RangeGuard {
        RangeGuard { locks: Arc::clone(self), lanes, slba, blocks, mode }
    }

    fn lane_count(&self) -> u64 {
        self.words.len() as u64 * LANES_PER_WORD
    }

    fn lanes(&self, slba: u64, blocks: u64) -> Lanes {
        Lanes { start: slba & (self.lane_count() - 1), length: blocks.min(self.lane_count()) }
    }

    /// Takes the lanes unless somebody holds them, or waits for them with an older ticket than `own` (without one:
    /// with any).
    fn attempt(&self, lanes: Lanes, mode: Mode, own: Option<Place>) -> bool {
        if self.must_queue(lanes, mode, own) {
            return false;
        }
        let mut taken = 0;
        for (word, mask) in self.words_of(lanes) {
            if !self.take_word(word, mask, mode) {
                break;
            }
            taken += u64::from(mask.count_ones() / 8);
        }
        if taken == lanes.length {
            return true;
        }
        if taken > 0 {
            self.release(Lanes { start: lanes.start, length: taken }, mode, own);
        }
        false
    }

    fn take_word(&self, word: usize, mask: u64, mode: Mode) -> bool {
        let word = &self.words[word];
        let mut seen = word.load();
        loop {
            let next = match mode {
                Mode::Write if seen & mask == 0 => seen | mask,
                Mode::Read if has_room(seen, mask) => seen + (mask & ONES),
                Mode::Read | Mode::Write => return false,
            };
            match word.compare_exchange(seen, next) {
                Ok(()) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Frees the lanes and wakes those who wait for any of them (but not `own`).
    fn release(&self, lanes: Lanes, mode: Mode, own: Option<Place>) {
        for (word, mask) in self.words_of(lanes) {
            match mode {
                Mode::Read => self.words[word].fetch_sub(mask & ONES),
                Mode::Write => self.words[word].fetch_and(!mask),
            }
        }
        self.wake(lanes, own);
    }

    /// The words of the lanes and in each the mask of its lanes, ascending from the start, once around at most.
    fn words_of(&self, lanes: Lanes) -> impl Iterator<Item = (usize, u64)> + use<> {
        let count = self.lane_count();
        let (mut lane, mut left) = (lanes.start, lanes.length);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let first = lane % LANES_PER_WORD;
            let here = left.min(LANES_PER_WORD - first);
            let word = usize::try_from(lane / LANES_PER_WORD).expect("below the number of words");
            // A word's lanes end where the word does, so this is no more than the number of lanes.
            lane = (lane + here) & (count - 1);
            left -= here;
            Some((word, (u64::MAX >> (64 - 8 * here)) << (8 * first)))
        })
    }

    fn must_queue(&self, lanes: Lanes, mode: Mode, own: Option<Place>) -> bool {
        if self.waiting.load() == u64::from(own.is_some()) {
            return false;
        }
        self.waits.iter().any(|slot| {
            slot.read().is_some_and(|wait| {
                own.is_none_or(|own| wait.ticket < own.ticket)
                    && (mode == Mode::Write || wait.mode == Mode::Write)
                    && wait.lanes.meets(lanes, self.lane_count())
            })
        })
    }

    /// Calls the wakers of those who wait for any of `lanes`, each once.
    fn wake(&self, lanes: Lanes, own: Option<Place>) {
        let mut due = [0_u64; WAKERS / 64];
        for (due, overflow) in due.iter_mut().zip(&self.overflow) {
            if overflow.load() != 0 {
                *due = overflow.take();
            }
        }
        if self.waiting.load() > u64::from(own.is_some()) {
            for wait in self.waits.iter().filter_map(WaitSlot::read) {
                let other = own.is_none_or(|own| wait.ticket != own.ticket);
                if let Some(waker) = wait.waker
                    && other
                    && wait.lanes.meets(lanes, self.lane_count())
                {
                    due[usize::from(waker.0) / 64] |= 1 << (waker.0 % 64);
                }
            }
        }
        self.call(due);
    }

    /// Tells those who hold ranges for long, but not `own`, that somebody waits.
    fn ask(&self, own: Option<WakerId>) {
        let mut long = self.long.each_ref().map(AtomicU64::load);
        if let Some(own) = own {
            long[usize::from(own.0) / 64] &= !(1 << (own.0 % 64));
        }
        self.call(long);
    }

    fn call(&self, due: [u64; WAKERS / 64]) {
        for (index, mut bits) in due.into_iter().enumerate() {
            while bits != 0 {
                let waker = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(call) = self.wakers[waker].get() {
                    call();
                }
            }
        }
    }

    /// Publishes a wait; `None` when the table is full.
    fn enter(&self, lanes: Lanes, mode: Mode, waker: Option<WakerId>) -> Option<Place> {
        self.waiting.fetch_add(1);
        let slot = self.waits.iter().position(|slot| slot.ticket.compare_exchange(FREE, CLAIMED).is_ok());
        let Some(slot) = slot else {
            self.waiting.fetch_sub(1);
            return None;
        };
        let ticket = self.next_ticket.fetch_add(1);
        self.waits[slot].publish(&Wait { ticket, lanes, mode, waker });
        Some(Place { slot, ticket })
    }

    fn leave(&self, place: Place) {
        self.waits[place.slot].ticket.store(FREE);
        self.waiting.fetch_sub(1);
    }
}

impl RangeGuard {
    /// First block.
    #[must_use]
    pub fn slba(&self) -> u64 {
        self.slba
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether it covers `blocks` blocks from `slba` of the volume with `locks`, for reading or (`Write`) writing.
    #[must_use]
    pub fn covers(&self, locks: &Arc<RangeLocks>, slba: u64, blocks: u64, mode: Mode) -> bool {
        Arc::ptr_eq(&self.locks, locks)
            && (mode == Mode::Read || self.mode == Mode::Write)
            && slba >= self.slba
            && slba - self.slba <= self.blocks
            && blocks <= self.blocks - (slba - self.slba)
    }

    /// Whether somebody may wait for it: to write, or to read what has as many readers as it can have.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let locks = &self.locks;
        if locks.overflow.iter().any(|overflow| overflow.load() != 0) {
            // What those want is not known.
            return true;
        }
        locks.waiting.load() > 0
            && locks
                .waits
                .iter()
                .filter_map(WaitSlot::read)
                .any(|wait| wait.lanes.meets(self.lanes, locks.lane_count()))
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        self.locks.release(self.lanes, self.mode, None);
    }
}

impl RangeWait {
    /// Tries again. After it returned a guard the wait is over and must not be polled again.
    #[must_use]
    pub fn poll(&mut self) -> Option<RangeGuard> {
        if self.place.is_none() {
            self.place = self.locks.enter(self.lanes, self.mode, self.waker);
        }
        if let (None, Some(waker)) = (self.place, self.waker) {
            self.locks.overflow[usize::from(waker.0) / 64].fetch_or(1 << (waker.0 % 64));
            // A place may have become free between the look at the table and the mark.
            self.place = self.locks.enter(self.lanes, self.mode, self.waker);
        }
        if !self.locks.attempt(self.lanes, self.mode, self.place) {
            let asked = std::mem::replace(&mut self.asked, Asked::of(self.place));
            match (asked, self.asked) {
                (Asked::Placed, _) => {}
                // This reactor was told, and would keep itself awake.
                (Asked::Placeless, Asked::Placeless) => self.locks.ask(self.waker),
                _ => self.locks.ask(None),
            }
            return None;
        }
        // Those behind this wait now meet the held lanes instead; only the freed place concerns the overflow.
        if let Some(place) = self.place.take() {
            self.locks.leave(place);
            self.locks.wake(Lanes { start: 0, length: 0 }, None);
        }
        Some(self.locks.guard(self.lanes, self.slba, self.blocks, self.mode))
    }
}

impl Drop for RangeWait {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.locks.leave(place);
            self.locks.wake(self.lanes, None);
        }
    }
}

/// A row of the table of waits, read.
struct Wait {
    ticket: u64,
    lanes: Lanes,
    mode: Mode,
    waker: Option<WakerId>,
}

impl WaitSlot {
    fn new() -> Self {
        Self {
            ticket: AtomicU64::new(FREE),
            start: AtomicU64::new(0),
            length: AtomicU64::new(0),
            kind: AtomicU64::new(0),
        }
    }

    fn publish(&self, wait: &Wait) {
        self.start.store(wait.lanes.start);
        self.length.store(wait.lanes.length);
        let waker = wait.waker.map_or(0, |waker| 2 | u64::from(waker.0) << 8);
        self.kind.store(u64::from(wait.mode == Mode::Write) | waker);
        self.ticket.store(wait.ticket);
    }

    /// The wait in this row; `None` when there is none or it changes just now (then its owner tries by itself).
    fn read(&self) -> Option<Wait> {
        let ticket = self.ticket.load();
        if ticket < FIRST_TICKET {
            return None;
        }
        let lanes = Lanes { start: self.start.load(), length: self.length.load() };
        let kind = self.kind.load();
        let mode = if kind & 1 == 1 { Mode::Write } else { Mode::Read };
        let waker = (kind & 2 != 0).then_some(WakerId(kind.to_le_bytes()[1]));
        (self.ticket.load() == ticket).then_some(Wait { ticket, lanes, mode, waker })
    }
}

impl Lanes {
    /// Whether both have a lane in common, among `count` lanes in a circle.
    fn meets(self, other: Self, count: u64) -> bool {
        let ahead = (other.start + count - self.start) % count;
        let behind = (self.start + count - other.start) % count;
        (ahead < self.length && other.length > 0) || (behind < other.length && self.length > 0)
    }
}

/// Whether each lane of `mask` takes another reader.
fn has_room(word: u64, mask: u64) -> bool {
    // A lane is full at 254 and 255: then its upper seven bits are all ones, and this lane of `free` is zero.
    let free = (!word & (ONES * READERS_FULL)) | !mask;
    free.wrapping_sub(ONES) & !free & HIGH == 0
}

impl std::fmt::Debug for RangeLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangeLocks").field("lanes", &self.lane_count()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RangeGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RangeGuard({:?} {}+{})", self.mode, self.slba, self.blocks)
    }
}

impl std::fmt::Debug for RangeWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RangeWait({:?} {}+{})", self.mode, self.slba, self.blocks)
    }
}

/// The one kind of atomic that the locks use: sequentially consistent throughout, because the wake-up argument is
/// about the order of a store and a later load of two threads. In tests each access is a point where the explorer
/// may switch threads.
mod atomic {
    use std::sync::atomic::Ordering::SeqCst;

    pub(super) struct AtomicU64(std::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(super) fn new(value: u64) -> Self {
            Self(std::sync::atomic::AtomicU64::new(value))
        }

        pub(super) fn load(&self) -> u64 {
            step();
            self.0.load(SeqCst)
        }

        pub(super) fn store(&self, value: u64) {
            step();
            self.0.store(value, SeqCst);
        }

        pub(super) fn fetch_add(&self, value: u64) -> u64 {
            step();
            self.0.fetch_add(value, SeqCst)
        }

        pub(super) fn fetch_sub(&self, value: u64) {
            step();
            self.0.fetch_sub(value, SeqCst);
        }

        pub(super) fn fetch_and(&self, value: u64) {
            step();
            self.0.fetch_and(value, SeqCst);
        }

        pub(super) fn fetch_or(&self, value: u64) {
            step();
            self.0.fetch_or(value, SeqCst);
        }

        /// Reads and clears.
        pub(super) fn take(&self) -> u64 {
            step();
            self.0.swap(0, SeqCst)
        }

        pub(super) fn compare_exchange(&self, seen: u64, next: u64) -> Result<(), u64> {
            step();
            self.0.compare_exchange(seen, next, SeqCst, SeqCst).map(drop)
        }
    }

    impl Default for AtomicU64 {
        fn default() -> Self {
            Self::new(0)
        }
    }

    #[cfg(test)]
    use super::explore::step;

    #[cfg(not(test))]
    fn step() {}
}

#[cfg(test)]
mod explore;
#[cfg(test)]
mod tests;
