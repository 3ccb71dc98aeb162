//! One piece of work for the ring, and how it goes on after each of its completions.
//!
//! Owns progress within a contiguous piece of a file: short transfers are continued, refusals that pass are repeated,
//! ways of zeroing that a file system does not know are replaced by the next. Pure but for the marks on the file that
//! such a way is not to be tried again.

use std::sync::atomic::Ordering;

use super::super::file::Disk;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// File to memory.
    Read,
    /// Memory to file.
    Write,
    /// Zero, and the storage given back if possible.
    Punch,
    /// Zero, and the storage kept if possible.
    Zero,
    /// Zero by writing zeros.
    WriteZeros,
    /// What was written becomes durable.
    Sync,
}

/// A contiguous piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) work: Work,
    /// Of the file.
    pub(super) offset: u64,
    /// Address of the memory for Read and Write.
    pub(super) addr: u64,
    /// Bytes in all.
    pub(super) length: u64,
    /// Bytes that must be read; what lies between them and `length` may be beyond the file's end.
    pub(super) needed: u64,
    /// Durable before it completes.
    pub(super) durable: bool,
    /// Bytes done.
    pub(super) done: u64,
    /// Bytes that one entry may name, for tests that shorten it.
    #[cfg(feature = "_fault")]
    pub(super) most: u64,
    /// How often it made no progress.
    stalls: u8,
    /// Ways of zeroing that failed for this piece.
    tried: [bool; 2],
}

/// What follows a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is done.
    Done,
    /// Go on from `done`.
    Again,
    /// It failed with this error number, at `done`.
    Failed(i32),
}

/// How often a piece may make no progress.
const MAX_STALLS: u8 = 64;

impl Part {
    /// A transfer of `length` bytes between `addr` and `offset` of the file.
    pub(super) fn transfer(work: Work, offset: u64, addr: u64, length: u64) -> Self {
        Self { addr, ..Self::on_file(work, offset, length) }
    }

    /// Work without memory.
    pub(super) fn on_file(work: Work, offset: u64, length: u64) -> Self {
        Self {
            work,
            offset,
            addr: 0,
            length,
            needed: length,
            durable: false,
            done: 0,
            #[cfg(feature = "_fault")]
            most: u64::MAX,
            stalls: 0,
            tried: [false; 2],
        }
    }

    /// The same, but only `needed` of its bytes must exist.
    pub(super) fn needing(self, needed: u64) -> Self {
        Self { needed, ..self }
    }

    /// The same, durable before it completes or not.
    pub(super) fn durable(self, durable: bool) -> Self {
        Self { durable, ..self }
    }

    /// Replaces a way of zeroing that the file is known not to have.
    pub(super) fn settle(&mut self, disk: &Disk) {
        self.tried[0] |= disk.no_punch.load(Ordering::Relaxed);
        self.tried[1] |= disk.no_zero.load(Ordering::Relaxed);
        self.work = match (self.work, self.tried) {
            (Work::Punch | Work::Zero, [true, true]) => Work::WriteZeros,
            (Work::Punch, [true, false]) => Work::Zero,
            (Work::Zero, [false, true]) => Work::Punch,
            (work, _) => work,
        };
    }

    /// Bytes left for the next entry.
    pub(super) fn left(&self) -> u64 {
        let left = self.length - self.done;
        #[cfg(feature = "_fault")]
        let left = left.min(self.most);
        left
    }

    /// Takes a completion's result.
    pub(super) fn advance(&mut self, result: i32, disk: &Disk) -> Next {
        let Ok(bytes) = u64::try_from(result) else { return self.refused(-result, disk) };
        match self.work {
            Work::Punch | Work::Zero | Work::Sync => {
                self.done = self.length;
                Next::Done
            }
            Work::Read | Work::Write | Work::WriteZeros => self.moved(bytes, disk),
        }
    }

    fn moved(&mut self, bytes: u64, disk: &Disk) -> Next {
        let reached = (self.done + bytes).min(self.length);
        let enough = if self.work == Work::Read { self.needed } else { self.length };
        if reached >= enough {
            self.done = reached;
            return Next::Done;
        }
        // Direct I/O can go on at a sector alone: the part of one that was moved is moved again.
        let resumed = reached - (self.offset + reached) % disk.sector as u64;
        if resumed <= self.done {
            // Nothing at all is the end of the file, which somebody cut: no use to go on.
            if bytes == 0 || self.stall() {
                return Next::Failed(libc::EIO);
            }
            return Next::Again;
        }
        self.done = resumed;
        Next::Again
    }

    fn refused(&mut self, errno: i32, disk: &Disk) -> Next {
        match (errno, self.work) {
            (libc::EAGAIN | libc::EINTR | libc::EBUSY | libc::ENOBUFS, _) => {
                if self.stall() {
                    Next::Failed(errno)
                } else {
                    Next::Again
                }
            }
            (libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV | libc::EINVAL, Work::Punch | Work::Zero) => {
                let (way, mark) = match self.work {
                    Work::Punch => (0, &disk.no_punch),
                    _ => (1, &disk.no_zero),
                };
                self.tried[way] = true;
                // "Invalid" may be about this piece's alignment.
                if errno != libc::EINVAL {
                    mark.store(true, Ordering::Relaxed);
                }
                self.settle(disk);
                Next::Again
            }
            _ => Next::Failed(errno),
        }
    }

    /// Counts a time without progress; true when there were too many.
    fn stall(&mut self) -> bool {
        self.stalls += 1;
        self.stalls > MAX_STALLS
    }
}
