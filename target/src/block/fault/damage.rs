//! Damage to the blocks of one command in the target's memory, and to blocks in a volume's memory.
//!
//! Owns what is to be damaged, and where on a command's way: a block becomes what a test says, once. What a check then says
//! is the test's business.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::io::{Io, IoOp};
use super::super::locks::{Mode, RangeGuard};
use super::super::memory::MemoryBackend;
use super::super::pool::Buf;
use super::super::volume::{Backend, Volume};
use super::now;

/// Where a command's blocks are in the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// They came from the host and were not checked yet.
    Arrived,
    /// They are on their way to the medium.
    Checked,
    /// The medium gave them, and they were not checked yet.
    Read,
    /// They are on their way to the host.
    Leaving,
}

/// A block that changes on its way.
#[derive(Clone, Debug)]
pub struct Damage {
    /// Where.
    pub moment: Moment,
    /// Which block.
    pub lba: u64,
    /// What its data becomes.
    pub data: Vec<u8>,
    /// What its metadata becomes, in the form that hosts see; empty without.
    pub md: Vec<u8>,
}

/// What is to be damaged on a volume's commands.
#[derive(Debug, Default)]
pub(super) struct Damages {
    waiting: Mutex<Vec<Damage>>,
    any: AtomicBool,
}

/// How long a block may be in use before a test that wants it gives up.
const PATIENCE: Duration = Duration::from_secs(10);

impl Damages {
    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Damage>> {
        self.waiting.lock().expect("damaging a block does not panic")
    }

    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}

impl Volume {
    /// Damages a block of the next command that has it in memory at that moment.
    ///
    /// # Panics
    /// When a thread panicked while it damaged a block.
    pub fn damage_on_the_way(&self, damage: Damage) {
        let mut waiting = self.faults().damages.waiting();
        waiting.push(damage);
        self.faults().damages.any.store(true, Ordering::Release);
    }

    /// Forgets damage that did not happen, and returns it.
    ///
    /// # Panics
    /// When a thread panicked while it damaged a block.
    pub fn clear_damage(&self) -> Vec<Damage> {
        self.faults().damages.any.store(false, Ordering::Release);
        std::mem::take(&mut *self.faults().damages.waiting())
    }

    /// Damages those of these blocks that a test wants damaged at this moment; whether there are any.
    pub(crate) fn meet(
        &self,
        moment: Moment,
        slba: u64,
        mut data: Option<&mut Buf>,
        mut md: Option<&mut Buf>,
    ) -> bool {
        if !self.faults().damages.any() {
            return false;
        }
        let (block, each) = (self.block_size() as usize, usize::from(self.metadata_size()));
        let blocks = data.as_ref().map_or(0, |data| data.len() / block);
        let mut met = false;
        self.faults().damages.waiting().retain(|damage| {
            let at = damage.lba.checked_sub(slba).and_then(|at| usize::try_from(at).ok());
            let Some(at) = at.filter(|&at| damage.moment == moment && at < blocks) else { return true };
            if let Some(data) = &mut data {
                data.bytes_mut()[at * block..][..block].copy_from_slice(&damage.data);
            }
            if let Some(md) = &mut md {
                md.bytes_mut()[at * each..][..each].copy_from_slice(&damage.md);
            }
            met = true;
            false
        });
        met
    }

    /// A block of a volume in memory as it is stored: data, then metadata in the form that hosts see.
    ///
    /// # Panics
    /// When the volume is not in memory, or the block stays in use for ten seconds.
    #[must_use]
    pub fn stored(&self, lba: u64) -> Vec<u8> {
        let block = self.block_size() as usize;
        let mut bytes = vec![0; block + usize::from(self.metadata_size())];
        let (data, md) = bytes.split_at_mut(block);
        let _guard = self.lock_soon(lba, Mode::Read);
        self.memory().stored(lba, data, md);
        bytes
    }

    /// Makes a block of a volume in memory that, behind the target's back.
    ///
    /// # Panics
    /// As [`Self::stored`], and when `bytes` is not one block with its metadata.
    pub fn store(&self, lba: u64, bytes: &[u8]) {
        let (data, md) = bytes.split_at(self.block_size() as usize);
        assert_eq!(md.len(), usize::from(self.metadata_size()), "a block with its metadata");
        let _guard = self.lock_soon(lba, Mode::Write);
        self.memory().store(lba, data, &mut md.to_vec());
    }

    fn memory(&self) -> &MemoryBackend {
        let Backend::Memory(memory) = self.backend() else { panic!("the volume is in memory") };
        memory
    }

    /// Takes a block. A read that was sent from where it lies holds it until the host has acknowledged the data.
    fn lock_soon(&self, lba: u64, mode: Mode) -> RangeGuard {
        let until: Instant = now() + PATIENCE;
        loop {
            if let Some(guard) = self.locks().try_lock(lba, 1, mode) {
                return guard;
            }
            assert!(now() < until, "block {lba} is in use for longer than {PATIENCE:?}");
            std::thread::yield_now();
        }
    }
}

/// Damages what is about to be written, or was just read.
pub(super) fn meet(io: &mut Io, moment: Moment) {
    let matches = match moment {
        Moment::Checked => io.op == IoOp::Write,
        Moment::Read => io.op == IoOp::Read,
        Moment::Arrived | Moment::Leaving => false,
    };
    if matches {
        let volume = std::sync::Arc::clone(&io.volume);
        volume.meet(moment, io.slba, io.data.as_mut(), io.md.as_mut());
    }
}
