//! Faults of storage, for tests.
//!
//! Owns rules by which operations on a volume fail, come short, come late or leave damage, and damage to stored
//! blocks behind the target's back. Exists in builds with the feature `_fault` alone.

mod damage;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::engine::Engine;
use super::io::{Area, Io, IoDone, IoError, IoOp, Submit};
use super::locks::Mode;
use super::memory::Transfer;
use super::pool::Buf;
use super::volume::{Backend, Volume};

pub use damage::{Damage, Moment};

/// A byte of a stored block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Of its data.
    Data(usize),
    /// Of its metadata, as hosts see it.
    Metadata(usize),
}

/// Which operations meet with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Operations of this kind; absent: of any.
    pub op: Option<IoOp>,
    /// That touch one of these blocks; a flush touches all.
    pub lbas: Range<u64>,
    /// So many of them; then the rule is spent.
    pub count: u32,
    /// What they meet with.
    pub effect: Effect,
}

/// What an operation meets with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this error number at the first of the rule's blocks that it touches. Earlier blocks may have
    /// been moved.
    Fail {
        /// The system's error number.
        errno: i32,
        /// Where.
        area: Area,
    },
    /// On files, the first transfer of each part moves at most so many bytes (a sector at least).
    Short {
        /// Bytes.
        bytes: u32,
    },
    /// It starts so much later.
    Delay(Duration),
    /// A write stops in the first of the rule's blocks: blocks before it are written, it has the new data and the old
    /// metadata. It fails with `EIO`.
    Torn,
    /// Bits of the first of the rule's blocks are inverted: before a read, after anything else.
    Corrupt {
        /// Which byte.
        place: Place,
        /// Which bits.
        mask: u8,
    },
}

/// The rules of a volume.
#[derive(Debug, Default)]
pub(super) struct Faults {
    rules: Mutex<Vec<Rule>>,
    any: AtomicBool,
    damages: damage::Damages,
}

/// A failure or a limit for the parts of an operation on files.
#[derive(Clone, Copy, Debug)]
pub(super) enum PartFault {
    Fail { errno: i32, area: Area, lba: u64 },
    Short { bytes: u64 },
}

/// What an engine keeps for operations that met with something.
#[derive(Debug, Default)]
pub(super) struct Met {
    delayed: Vec<(Instant, Io)>,
    /// By volume, first block and operation: what is damaged when it completes.
    damage: Vec<(usize, u64, IoOp, u64, Place, u8)>,
}

impl Volume {
    /// Adds a rule; the oldest that matches an operation applies.
    ///
    /// # Panics
    /// When a thread panicked while it looked for a rule.
    pub fn add_fault(&self, rule: Rule) {
        self.faults().rules.lock().expect("looking for a rule does not panic").push(rule);
        self.faults().any.store(true, Ordering::Release);
    }

    /// Whether operations may meet with something.
    pub(crate) fn has_faults(&self) -> bool {
        self.faults().any.load(Ordering::Acquire) || self.faults().damages.any()
    }

    /// Removes all rules, and returns those that were not spent.
    ///
    /// # Panics
    /// When a thread panicked while it looked for a rule.
    pub fn clear_faults(&self) -> Vec<Rule> {
        self.faults().any.store(false, Ordering::Release);
        std::mem::take(&mut *self.faults().rules.lock().expect("looking for a rule does not panic"))
    }

    /// Inverts the bits of `mask` in a stored byte of block `lba`, as a failing medium would.
    ///
    /// # Panics
    /// When the block does not exist or is in use, or the volume has no such byte.
    pub fn corrupt(&self, lba: u64, place: Place, mask: u8) {
        let _guard = self.locks().try_lock(lba, 1, Mode::Write).expect("the block is not in use");
        self.damage(lba, place, mask);
    }

    fn damage(&self, lba: u64, place: Place, mask: u8) {
        match self.backend() {
            Backend::Memory(memory) => memory.corrupt(lba, place, mask),
            Backend::File(file) => file.corrupt(lba, place, mask),
            Backend::Null(_) => panic!("a null volume stores nothing"),
        }
    }

    /// Writes `blocks` blocks of a write with their metadata, and the data of the next.
    fn tear(&self, io: &Io, blocks: u64) {
        let (data, md) = (io.data.as_ref().map(Buf::piece), io.md.as_ref().map(Buf::piece));
        let (block, each) = (self.block_size() as usize, usize::from(self.metadata_size()));
        for index in 0..=blocks {
            let at = usize::try_from(index).expect("blocks of a buffer fit the address space");
            let data = data.as_ref().map(|data| data.slice(at * block, block));
            let md = md.as_ref().filter(|_| index < blocks).map(|md| md.slice(at * each, each));
            match self.backend() {
                Backend::Memory(memory) => {
                    memory.transfer(io.slba + index, 1, Transfer::Write { data, md });
                }
                Backend::File(file) => file.store(io.slba + index, data.as_ref(), md.as_ref()),
                Backend::Null(_) => {}
            }
        }
    }
}

impl Faults {
    /// What `io` meets with, and at which of its blocks.
    fn take(&self, io: &Io) -> Option<(Effect, u64)> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut rules = self.rules.lock().expect("looking for a rule does not panic");
        let end = io.slba.saturating_add(u64::from(io.nlb));
        let index = rules.iter().position(|rule| {
            let touches = io.op == IoOp::Flush || (rule.lbas.start < end && io.slba < rule.lbas.end);
            touches && rule.op.is_none_or(|op| op == io.op)
        })?;
        let rule = &mut rules[index];
        let (effect, lba) = (rule.effect, rule.lbas.start.max(io.slba));
        rule.count = rule.count.saturating_sub(1);
        if rule.count == 0 {
            rules.remove(index);
        }
        Some((effect, lba))
    }
}

impl Engine {
    /// Lets an operation meet with what the rules say; gives it back when it is to start now.
    #[expect(clippy::result_large_err, reason = "the one is as large as the other")]
    pub(super) fn meet(&mut self, mut io: Io) -> Result<Io, Submit> {
        damage::meet(&mut io, Moment::Checked);
        let Some((effect, lba)) = io.volume.faults().take(&io) else { return Ok(io) };
        match effect {
            Effect::Fail { errno, area } => {
                if let Some(files) = self.files_of(&io) {
                    files.set_fault(PartFault::Fail { errno, area, lba });
                    return Ok(io);
                }
                let error = IoError::from_errno(errno, lba, area);
                Err(Submit::Done(IoDone { io, result: Err(error) }))
            }
            Effect::Short { bytes } => {
                if let Some(files) = self.files_of(&io) {
                    files.set_fault(PartFault::Short { bytes: u64::from(bytes) });
                }
                Ok(io)
            }
            Effect::Delay(time) => {
                self.met.delayed.push((now() + time, io));
                self.notify();
                Err(Submit::Pending)
            }
            Effect::Torn if io.op == IoOp::Write => {
                io.volume.tear(&io, lba - io.slba);
                let error = IoError::from_errno(libc::EIO, lba, Area::Data);
                Err(Submit::Done(IoDone { io, result: Err(error) }))
            }
            Effect::Torn => Ok(io),
            Effect::Corrupt { place, mask } => {
                if io.op == IoOp::Read {
                    io.volume.damage(lba, place, mask);
                } else {
                    self.met.damage.push((address(&io), io.slba, io.op, lba, place, mask));
                }
                Ok(io)
            }
        }
    }

    /// Starts a delayed operation whose time has come; returns it when it is complete already.
    pub(super) fn poll_delayed(&mut self) -> Option<IoDone> {
        if self.met.delayed.is_empty() {
            return None;
        }
        let time = now();
        let due = self.met.delayed.iter().position(|(due, _)| *due <= time);
        // Until then the reactor spins; good enough for tests.
        self.notify();
        let (due, io) = self.met.delayed.swap_remove(due?);
        match self.start(io) {
            Submit::Done(done) => Some(done),
            Submit::Pending => None,
            Submit::Busy(io) => {
                self.met.delayed.push((due, io));
                None
            }
        }
    }

    /// Operations that are delayed.
    pub(super) fn delayed(&self) -> usize {
        self.met.delayed.len()
    }

    /// The same for an operation that may have completed at once.
    pub(super) fn met_at_once(&mut self, submit: Submit) -> Submit {
        match submit {
            Submit::Done(done) => Submit::Done(self.met(done)),
            pending => pending,
        }
    }

    /// Damages what a completed operation was to leave damaged, and what it read.
    pub(super) fn met(&mut self, mut done: IoDone) -> IoDone {
        damage::meet(&mut done.io, Moment::Read);
        let io = &done.io;
        let same =
            |met: &(usize, u64, IoOp, u64, Place, u8)| (met.0, met.1, met.2) == (address(io), io.slba, io.op);
        if let Some(index) = self.met.damage.iter().position(same) {
            let (.., lba, place, mask) = self.met.damage.swap_remove(index);
            io.volume.damage(lba, place, mask);
        }
        done
    }
}

fn address(io: &Io) -> usize {
    std::sync::Arc::as_ptr(&io.volume).addr()
}

#[expect(clippy::disallowed_methods, reason = "a delay of a test is real time")]
fn now() -> Instant {
    Instant::now()
}
