//! The I/O engine of one reactor.
//!
//! Owns the operations of its reactor that are under way, and the event that wakes the reactor for them. Memory is
//! moved at once, in slices when it is much, so that a large Write Zeroes does not hold up the reactor's other
//! commands; files go through io_uring. Never blocks, never allocates in steady state, never looks at tuples.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};
use thiserror::Error;

use super::io::{Io, IoDone, IoError, IoErrorKind, IoOp, Submit};
use super::locks::{Mode, Waker, WakerId};
use super::memory::{MemoryBackend, Transfer};
use super::pool::{Buf, BufPool};
use super::uring::{FileSetup, Files};
use super::volume::{Backend, Volume};

/// The I/O engine of one reactor.
pub struct Engine {
    signal: Arc<Signal>,
    /// Raises the signal; the same towards all volumes.
    waker: Waker,
    /// Large operations on memory, each at the block that comes next.
    slices: VecDeque<Slice>,
    /// Made when the first file volume is attached, of what was prepared: memory volumes do without io_uring.
    files: Option<Files>,
    setup: Arc<FileSetup>,
    /// The reactor's buffers, to be registered with the kernel.
    buffers: Option<BufPool>,
    /// At most this many operations of each kind are under way.
    depth: usize,
    #[cfg(feature = "_fault")]
    pub(super) met: super::fault::Met,
}

/// Wakes the reactor, and remembers that it did until somebody looked.
#[derive(Debug)]
pub(super) struct Signal {
    event: Arc<EventFd>,
    raised: AtomicBool,
}

/// A large operation on memory.
struct Slice {
    io: Io,
    done: u32,
}

/// Why an engine can't be made or used with a volume.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The system refused.
    #[error("can't {operation}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// File volumes need io_uring, and it can't be had.
    #[error("{what}")]
    NoRing {
        /// What is missing, and what to do.
        what: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// A file volume, and nothing is prepared for files.
    #[error("nothing is prepared for volumes in files")]
    Unprepared,
    /// More engines than a volume can have.
    #[error("volume {volume:?} is used by {most} reactors already, and not by more")]
    TooManyEngines {
        /// The volume.
        volume: String,
        /// The limit.
        most: usize,
    },
}

/// Bytes of a memory volume that are cleared at a time.
const SLICE: u32 = 1 << 20;

impl Engine {
    /// An engine that has up to `depth` operations on files, and as many large ones on memory, under way.
    ///
    /// # Errors
    /// The system's refusal of an event descriptor.
    pub fn new(depth: usize) -> Result<Self, EngineError> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| EngineError::System { operation: "make an eventfd", source: errno.into() })?;
        let signal = Signal::new(Arc::new(event));
        let setup = Arc::new(FileSetup::new(depth, Arc::clone(&signal.event)));
        Ok(Self {
            waker: signal.waker(),
            signal,
            slices: VecDeque::with_capacity(depth),
            files: None,
            setup,
            buffers: None,
            depth,
            #[cfg(feature = "_fault")]
            met: super::fault::Met::default(),
        })
    }

    /// What this engine needs to serve files: to be prepared, by any thread that may wait, before a file volume is attached.
    #[must_use]
    pub fn file_setup(&self) -> &Arc<FileSetup> {
        &self.setup
    }

    /// Tells which buffers operations will mostly use, so that the kernel can prepare for them. Called before the
    /// first operation.
    pub fn register_buffers(&mut self, pool: &BufPool) {
        self.buffers = Some(pool.clone());
        if let Some(files) = &mut self.files {
            files.register(self.buffers.as_ref());
        }
    }

    /// Makes a volume usable with this engine, and returns the name under which this reactor waits for its range
    /// locks: when a wait is worth polling, [`Self::take_wakeup`] says so and [`Self::fd`] becomes readable. Called
    /// once for each volume before its first operation.
    ///
    /// # Errors
    /// When 256 engines use the volume already; when it is a file volume and nothing is prepared for files.
    pub fn attach(&mut self, volume: &Arc<Volume>) -> Result<WakerId, EngineError> {
        let too_many = || EngineError::TooManyEngines { volume: volume.name().to_owned(), most: 256 };
        if matches!(volume.backend(), Backend::File(_)) {
            let files = match &mut self.files {
                Some(files) => files,
                none => {
                    let prepared = self.setup.take().ok_or(EngineError::Unprepared)?;
                    let mut files =
                        Files::new(self.depth, &Signal::new(Arc::clone(&self.signal.event)), prepared);
                    files.register(self.buffers.as_ref());
                    none.insert(files)
                }
            };
            files.attach(volume).ok_or_else(too_many)?;
        }
        volume.locks().register_waker(&self.waker).ok_or_else(too_many)
    }

    /// Readable when [`Self::poll`] or [`Self::take_wakeup`] may have something.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.signal.event.as_fd()
    }

    /// Makes [`Self::fd`] unreadable; called when it was readable, before polling.
    pub fn clear_event(&mut self) {
        // An empty counter is no error: the descriptor is shared with wakers of other threads.
        let _ = self.signal.event.read();
    }

    /// Whether a range lock that somebody on this reactor waits for may be free: poll the waits. Clears itself.
    #[must_use]
    pub fn take_wakeup(&mut self) -> bool {
        self.signal.take()
    }

    /// Operations under way, or completed and not polled.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let under_way = self.slices.len() + self.files.as_ref().map_or(0, Files::in_flight);
        #[cfg(feature = "_fault")]
        let under_way = under_way + self.delayed();
        under_way
    }

    /// Starts an operation.
    ///
    /// # Panics
    /// When the operation breaks its contract (see the fields of [`Io`]): buffers absent or of a wrong length, a
    /// guard that does not cover the blocks. Peers can't cause that.
    pub fn submit(&mut self, io: Io) -> Submit {
        check(&io);
        if let Err(error) = admit(&io) {
            return Submit::Done(IoDone { io, result: Err(error) });
        }
        #[cfg(feature = "_fault")]
        let io = match self.meet(io) {
            Ok(io) => io,
            Err(met) => return met,
        };
        self.start(io)
    }

    /// Starts an operation that was checked.
    pub(super) fn start(&mut self, io: Io) -> Submit {
        let submit = self.start_on_backend(io);
        #[cfg(feature = "_fault")]
        let submit = self.met_at_once(submit);
        submit
    }

    fn start_on_backend(&mut self, io: Io) -> Submit {
        let volume = Arc::clone(&io.volume);
        match volume.backend() {
            Backend::Memory(memory) => self.submit_memory(memory, io),
            Backend::File(_) => {
                let files = self.files.as_mut().expect("a volume is attached before its first operation");
                match files.submit(io) {
                    Ok(()) => Submit::Pending,
                    Err(io) => Submit::Busy(io),
                }
            }
            Backend::Null(null) => {
                if io.op == IoOp::Read {
                    let (data, md) = (io.data.as_ref().map(Buf::piece), io.md.as_ref().map(Buf::piece));
                    null.read(data.as_ref(), md.as_ref());
                }
                Submit::Done(IoDone { io, result: Ok(()) })
            }
        }
    }

    /// Goes on with what is under way, and returns one completed operation. Call it until it returns nothing: then
    /// everything has been given to the kernel.
    pub fn poll(&mut self) -> Option<IoDone> {
        #[cfg(feature = "_fault")]
        if let Some(done) = self.poll_delayed() {
            return Some(done);
        }
        let done = self.poll_backends();
        #[cfg(feature = "_fault")]
        let done = done.map(|done| self.met(done));
        done
    }

    fn poll_backends(&mut self) -> Option<IoDone> {
        if let Some(done) = self.files.as_mut().and_then(Files::poll) {
            return Some(done);
        }
        let mut slice = self.slices.pop_front()?;
        let volume = Arc::clone(&slice.io.volume);
        let Backend::Memory(memory) = volume.backend() else {
            unreachable!("only operations on memory are cut in slices");
        };
        slice.advance(memory);
        if slice.done == slice.io.nlb {
            return Some(IoDone { io: slice.io, result: Ok(()) });
        }
        self.slices.push_back(slice);
        self.signal.notify();
        None
    }

    /// Makes [`Self::fd`] readable.
    #[cfg(feature = "_fault")]
    pub(super) fn notify(&self) {
        self.signal.notify();
    }

    /// What carries out an operation, if that is on a file.
    #[cfg(feature = "_fault")]
    pub(super) fn files_of(&mut self, io: &Io) -> Option<&mut Files> {
        self.files.as_mut().filter(|_| matches!(io.volume.backend(), Backend::File(_)))
    }

    fn submit_memory(&mut self, memory: &MemoryBackend, io: Io) -> Submit {
        let large =
            matches!(io.op, IoOp::WriteZeroes | IoOp::Deallocate) && io.nlb > SLICE / io.volume.block_size();
        if large {
            if self.slices.len() == self.depth {
                return Submit::Busy(io);
            }
            self.slices.push_back(Slice { io, done: 0 });
            self.signal.notify();
            return Submit::Pending;
        }
        let transfer = match io.op {
            IoOp::Flush => return Submit::Done(IoDone { io, result: Ok(()) }),
            IoOp::Read => {
                Transfer::Read { data: io.data.as_ref().map(Buf::piece), md: io.md.as_ref().map(Buf::piece) }
            }
            IoOp::Write => {
                Transfer::Write { data: io.data.as_ref().map(Buf::piece), md: io.md.as_ref().map(Buf::piece) }
            }
            IoOp::WriteZeroes => Transfer::Zero { md: io.md.as_ref().map(Buf::piece) },
            IoOp::Deallocate => Transfer::Deallocate,
        };
        memory.transfer(io.slba, u64::from(io.nlb), transfer);
        Submit::Done(IoDone { io, result: Ok(()) })
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl Signal {
    fn new(event: Arc<EventFd>) -> Arc<Self> {
        Arc::new(Self { event, raised: AtomicBool::new(false) })
    }

    /// What raises it.
    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        let signal = Arc::clone(self);
        Arc::new(move || signal.raise())
    }

    /// Makes the descriptor readable.
    pub(super) fn notify(&self) {
        // The counter can't overflow before 2^64 events; "would block" would mean that it is readable already.
        let _ = self.event.write(1);
    }

    /// Tells that a range lock may be free.
    pub(super) fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            self.notify();
        }
    }

    /// Whether it was raised since the last call.
    pub(super) fn take(&self) -> bool {
        self.raised.swap(false, Ordering::AcqRel)
    }
}

impl Slice {
    /// Does the next piece.
    fn advance(&mut self, memory: &MemoryBackend) {
        let io = &self.io;
        let here = (SLICE / io.volume.block_size()).min(io.nlb - self.done);
        let transfer = match io.op {
            IoOp::WriteZeroes => {
                let each = usize::from(io.volume.metadata_size());
                let md = io
                    .md
                    .as_ref()
                    .map(|md| md.piece().slice(self.done as usize * each, here as usize * each));
                Transfer::Zero { md }
            }
            IoOp::Deallocate => Transfer::Deallocate,
            IoOp::Read | IoOp::Write | IoOp::Flush => unreachable!("only clearing is cut in slices"),
        };
        memory.transfer(io.slba + u64::from(self.done), u64::from(here), transfer);
        self.done += here;
    }
}

/// Asserts the contract of an operation.
fn check(io: &Io) {
    let volume = &io.volume;
    let count = io.nlb as usize;
    let has = |buf: &Option<Buf>, each: usize| buf.as_ref().map(|buf| buf.len() == count * each);
    let data = has(&io.data, volume.block_size() as usize);
    let md = has(&io.md, usize::from(volume.metadata_size()));
    let protected = volume.protection().is_some();
    let buffers = match io.op {
        IoOp::Read => data.unwrap_or(true) && md.unwrap_or(true),
        IoOp::Write => data == Some(true) && md.map_or(!protected, |fits| protected && fits),
        IoOp::WriteZeroes => data.is_none() && md.unwrap_or(true),
        IoOp::Flush | IoOp::Deallocate => data.is_none() && md.is_none(),
    };
    assert!(buffers, "an operation has the buffers that it needs: {io:?}");
    let mode = if io.op == IoOp::Read { Mode::Read } else { Mode::Write };
    let guarded =
        io.guard.as_ref().is_some_and(|guard| guard.covers(volume.locks(), io.slba, u64::from(io.nlb), mode));
    assert!(
        if io.op == IoOp::Flush { io.nlb == 0 } else { io.nlb > 0 && guarded },
        "an operation on blocks holds their lock: {io:?}"
    );
}

/// Refuses what the volume can't do now.
fn admit(io: &Io) -> Result<(), IoError> {
    let volume = &io.volume;
    let changes = matches!(io.op, IoOp::Write | IoOp::WriteZeroes | IoOp::Deallocate);
    if changes && volume.read_only() {
        return Err(IoError::own(IoErrorKind::ReadOnly, io.slba));
    }
    let end = io.slba.checked_add(u64::from(io.nlb));
    if end.is_none_or(|end| end > volume.blocks()) {
        return Err(IoError::out_of_range(io.slba.max(volume.blocks())));
    }
    Ok(())
}
