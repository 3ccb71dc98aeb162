//! The io_uring of one reactor.
//!
//! Owns the ring, the entries that did not fit its queue yet, the registration of buffers, and the wait for what is
//! under way when it ends. Never interprets a result.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use rwctx::mem::Region;

use super::super::engine::EngineError;
use super::fixed::Fixed;

/// The ring.
pub(super) struct Ring {
    ring: IoUring,
    /// Entries for which the ring has no room, oldest first.
    backlog: VecDeque<squeue::Entry>,
    /// Entries whose completion has not been seen, those in the backlog and the queue included.
    in_flight: usize,
    /// Completions that the ring holds: more are never with the kernel at once.
    room: usize,
    /// Registered memory. Dropped after the ring.
    fixed: Fixed,
}

/// A completion: what was pushed with the entry, and the result (negative: an error number).
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) user_data: u64,
    pub(super) result: i32,
}

/// How long the end of a ring waits for operations under way before it gives their memory up for lost.
const DRAIN_WAIT: Duration = Duration::from_secs(30);

/// Entries of the smallest submission queue.
const QUEUE_MIN: u32 = 8;
/// Entries of the largest: what is given to the kernel in one system call.
const QUEUE_MAX: u32 = 1024;

/// Makes a ring, and tries again for a while where there is no memory for it: the kernel gives the locked memory of a ring
/// that was closed back some time later, also that of a process that has just ended.
fn patiently(mut make: impl FnMut() -> io::Result<IoUring>) -> io::Result<IoUring> {
    const STEP: Duration = Duration::from_millis(20);
    const TRIES: u32 = 100;
    for _ in 1..TRIES {
        match make() {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => std::thread::sleep(STEP),
            made => return made,
        }
    }
    make()
}

impl Ring {
    /// Whether rings can be made here; what a program asks before it needs one.
    pub(super) fn check() -> Result<(), EngineError> {
        static CHECKED: OnceLock<()> = OnceLock::new();
        if CHECKED.get().is_none() {
            check_operations(&patiently(|| IoUring::new(8)).map_err(no_ring)?)?;
            // Another thread may have found the same meanwhile.
            let _ = CHECKED.set(());
        }
        Ok(())
    }

    /// A ring for `entries` operations, which makes `event` readable when one completes. Where little memory may be
    /// locked the ring is smaller, and what doesn't fit waits in the backlog.
    pub(super) fn new(entries: u32, event: BorrowedFd<'_>) -> Result<Self, EngineError> {
        let mut queue = entries.next_power_of_two().clamp(QUEUE_MIN, QUEUE_MAX);
        let mut completions = entries.saturating_mul(2).next_power_of_two().clamp(2 * QUEUE_MIN, 32_768);
        let ring = loop {
            match IoUring::builder().setup_clamp().setup_cqsize(completions).build(queue) {
                Ok(ring) => break ring,
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && queue > QUEUE_MIN => {
                    queue /= 2;
                    completions = 2 * queue;
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                    let smallest = || IoUring::builder().setup_clamp().setup_cqsize(completions).build(queue);
                    break patiently(smallest).map_err(no_ring)?;
                }
                Err(error) => return Err(no_ring(error)),
            }
        };
        check_operations(&ring)?;
        ring.submitter().register_eventfd(event.as_raw_fd()).map_err(no_ring)?;
        if completions < entries {
            tracing::info!(
                entries = completions,
                "a small io_uring (ulimit -l is the limit); file I/O is less parallel"
            );
        }
        let (backlog, room) = (VecDeque::with_capacity(entries as usize), completions as usize);
        Ok(Self { ring, backlog, room, in_flight: 0, fixed: Fixed::default() })
    }

    /// Registers memory from now on, as far as operations use it. Nothing may be in flight.
    pub(super) fn register(&mut self, regions: &[Arc<Region>]) {
        // Fails when there are none, which is what is wanted.
        let _ = self.ring.submitter().unregister_buffers();
        self.fixed = Fixed::new(&self.ring.submitter(), regions);
    }

    /// The registration that holds `length` bytes at `addr`.
    pub(super) fn fixed_index(&mut self, addr: u64, length: u64) -> Option<u16> {
        self.fixed.index(&self.ring.submitter(), addr, length)
    }

    /// Queues an entry for the next [`Self::enter`].
    ///
    /// # Safety
    /// What the entry points to stays valid, and untouched as its operation demands, and its descriptor open, until
    /// its completion was returned by [`Self::completion`] or [`Self::drain`] returned true.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        self.in_flight += 1;
        self.backlog.push_back(entry);
        self.fill_queue();
    }

    fn fill_queue(&mut self) {
        while let Some(entry) = self.backlog.front() {
            if !self.has_room() {
                break;
            }
            // SAFETY: the caller of `push` promised that what the entry needs stays until its completion.
            let pushed = unsafe { self.ring.submission().push(entry) };
            if pushed.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Whether [`Self::enter`] has something to do now.
    pub(super) fn has_queued(&mut self) -> bool {
        (!self.backlog.is_empty() && self.has_room()) || !self.ring.submission().is_empty()
    }

    /// Whether the ring has room for another completion.
    fn has_room(&self) -> bool {
        self.in_flight - self.backlog.len() < self.room
    }

    /// Gives what is queued to the kernel, in one system call for each queue full. Returns whether all of it went.
    pub(super) fn enter(&mut self) -> bool {
        loop {
            self.fill_queue();
            if self.ring.submission().is_empty() {
                return true;
            }
            match self.ring.submit() {
                Ok(0) => return false,
                Ok(_) => {}
                // The kernel has no room now, or a signal came: the entries stay queued.
                Err(error) => {
                    tracing::debug!(%error, "io_uring takes no entries now");
                    return false;
                }
            }
        }
    }

    /// The next completion, without a system call.
    pub(super) fn completion(&mut self) -> Option<Completion> {
        let entry: cqueue::Entry = self.ring.completion().next()?;
        self.in_flight -= 1;
        Some(Completion { user_data: entry.user_data(), result: entry.result() })
    }

    /// Cancels what can be, waits for the rest, and drops the completions. Returns whether nothing is under way any
    /// more; when not (the storage hangs), memory that the kernel may touch must never be freed.
    pub(super) fn drain(&mut self) -> bool {
        self.in_flight -= self.backlog.len();
        self.backlog.clear();
        // Entries of the queue can't be taken back: the kernel gets them and finishes them.
        let mut left = DRAIN_WAIT;
        const STEP: Duration = Duration::from_millis(100);
        let mut cancelled = false;
        while self.in_flight > 0 {
            let time = Timespec::from(STEP);
            // A time-out, a signal or a full queue: tried again below.
            let _ = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time));
            let before = self.in_flight;
            while self.completion().is_some() {}
            if self.in_flight < before {
                continue;
            }
            if !cancelled {
                // Kernels before 6.0 refuse; then there is waiting alone.
                let _ = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
                cancelled = true;
            }
            left = left.saturating_sub(STEP);
            if left.is_zero() {
                return false;
            }
        }
        true
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

fn check_operations(ring: &IoUring) -> Result<(), EngineError> {
    let needed = [
        ("read", opcode::Read::CODE),
        ("write", opcode::Write::CODE),
        ("fixed read", opcode::ReadFixed::CODE),
        ("fixed write", opcode::WriteFixed::CODE),
        ("fsync", opcode::Fsync::CODE),
        ("fallocate", opcode::Fallocate::CODE),
    ];
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(no_ring)?;
    match needed.iter().find(|(_, code)| !probe.is_supported(*code)) {
        Some((name, _)) => Err(EngineError::NoRing {
            what: format!("this kernel's io_uring has no {name} operation; Linux 5.6 or later is needed"),
            source: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        }),
        None => Ok(()),
    }
}

/// Says what is needed where there is no io_uring.
fn no_ring(source: io::Error) -> EngineError {
    let what = match source.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring; Linux 5.6 or later is needed",
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here; allow it (sysctl kernel.io_uring_disabled=0, and a container's seccomp profile)"
        }
        Some(libc::ENOMEM) => "there is no memory for io_uring, or ulimit -l is too low",
        Some(libc::EMFILE | libc::ENFILE) => "there are too many open files; raise ulimit -n",
        _ => "io_uring does not start",
    };
    EngineError::NoRing { what: what.to_owned(), source }
}

/// As the pointer that it is.
pub(super) fn address(addr: u64) -> usize {
    usize::try_from(addr).expect("addresses of this process fit its pointers")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nix::sys::eventfd::{EfdFlags, EventFd};

    use super::*;

    #[test]
    fn what_a_small_ring_has_no_room_for_waits_for_completions() {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        let mut ring = Ring::new(8, event.as_fd()).unwrap();
        ring.room = 2;
        for number in 0..20 {
            // SAFETY: the entry points to nothing.
            unsafe { ring.push(opcode::Nop::new().build().user_data(number)) };
        }
        let mut seen = Vec::new();
        while seen.len() < 20 {
            assert!(ring.has_queued());
            assert!(ring.enter());
            assert!(!ring.has_queued(), "it waits for completions and not for the kernel");
            let before = seen.len();
            seen.extend(std::iter::from_fn(|| ring.completion()).map(|completion| completion.user_data));
            assert!((1..=2).contains(&(seen.len() - before)));
        }
        assert_eq!(seen, Vec::from_iter(0..20));
    }

    #[test]
    fn where_there_is_no_ring_it_is_said_what_to_do() {
        for (errno, advice) in [
            (libc::ENOSYS, "Linux 5.6 or later"),
            (libc::EPERM, "kernel.io_uring_disabled=0"),
            (libc::ENOMEM, "ulimit -l"),
            (libc::EMFILE, "ulimit -n"),
        ] {
            let error = no_ring(io::Error::from_raw_os_error(errno)).to_string();
            assert!(error.contains(advice), "{error}");
        }
    }
}
