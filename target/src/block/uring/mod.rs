//! File volumes through io_uring.
//!
//! Owns the operations on files that are under way on one reactor, with everything that the kernel may touch until
//! they complete: the buffers inside each [`Io`], bounce buffers, sectors that are being merged. Dropping waits for
//! the kernel first. Never blocks otherwise, and allocates nothing per operation.
//!
//! An operation is a row of *stages*; a stage is up to two *parts* (a piece of a file each, see [`part`]) and two
//! *edges* (sectors shared with neighbours, see [`edge`]) at once. Metadata, or whole blocks in the interleaved
//! layout, go through a bounce buffer of limited size, a *chunk* of blocks at a time.
//!
//! | Operation | separate, or no metadata | interleaved |
//! |---|---|---|
//! | Read, Write | data and metadata at once | chunks |
//! | Write Zeroes | zero the data, then metadata in chunks, then sync if FUA | chunks |
//! | Deallocate | metadata becomes a hole, then the data, then sync if FUA | chunks |
//! | Flush | sync of both files | sync |
//!
//! **Crash.** Deallocation empties the metadata first: half done, blocks have old data and escape tuples, and read
//! well. A write that is cut short may leave new data with an old tuple or the reverse, which reads as a guard error
//! though no block was torn. An intent log is to close that: its record belongs before the first part of a Transfer
//! stage that writes is issued ([`Files::start_transfer`]), and its end after the last ([`Files::stage_done`]).
#![allow(unsafe_code, reason = "hands memory to the kernel until it completes an operation")]

mod cover;
mod edge;
mod fixed;
mod merge;
#[cfg(feature = "_fault")]
mod met;
mod operation;
mod part;
mod records;
mod ring;
mod setup;
pub(super) mod system;

use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{opcode, types};
use nix::fcntl::FallocateFlags;

use self::cover::{cover, records_that_fit};
use self::edge::Edges;
use self::operation::{Operation, Stage};
use self::part::{Next, Part, Work};
use self::records::Run;
use self::ring::{Completion, Ring};
pub use self::setup::FileSetup;
use self::setup::Prepared;
use super::engine::{EngineError, Signal};
#[cfg(feature = "_fault")]
use super::fault::PartFault;
use super::file::{Disk, FileBackend};
use super::io::{Area, Io, IoDone, IoOp};
use super::locks::{Waker, WakerId};
use super::pool::{Buf, BufPool, PAGE};
use super::volume::{Backend, Layout, Volume};

/// The operations on files of one reactor.
pub(super) struct Files {
    /// Not dropped before the kernel is done with it.
    kept: ManuallyDrop<Kept>,
    free: Vec<u32>,
    /// Operations that wait for a bounce buffer or a sector, oldest first.
    parked: VecDeque<u32>,
    finished: VecDeque<IoDone>,
    /// Under which name sectors of a volume (by its address) are waited for.
    wakers: HashMap<usize, WakerId>,
    /// Raised when a sector that is waited for may be free.
    signal: Arc<Signal>,
    waker: Waker,
    /// What the next operation meets with.
    #[cfg(feature = "_fault")]
    fault: Option<PartFault>,
}

/// What the kernel may touch.
struct Kept {
    ring: Ring,
    operations: Vec<Option<Operation>>,
    edges: Edges,
    zeros: Buf,
    pool: BufPool,
    /// Completions that no kernel gave.
    #[cfg(feature = "_fault")]
    injected: VecDeque<Completion>,
}

/// What starting a stage led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Something is under way.
    Pending,
    /// There was nothing to do.
    Nothing,
    /// It waits for room.
    Parked,
}

/// Bytes of a bounce buffer at most.
const BOUNCE: usize = 256 * 1024;
/// Bytes of all bounce buffers, zeros and sectors.
const POOL: usize = 4 << 20;
/// Sectors that are merged at once at most.
const EDGES: u32 = 128;
/// Bytes that are written at once where only writing zeros makes zeros.
const ZEROS: usize = 64 * 1024;
/// Bytes of one entry at most; the kernel takes no more than 2 GiB less a page.
const MOST: u64 = 1 << 30;
/// Marks completions of edges.
const EDGE: u64 = 1 << 32;

/// Operations that are under way at once.
fn places(depth: usize) -> u32 {
    u32::try_from(depth).unwrap_or(u32::MAX).clamp(1, 16_384)
}

/// Whether file volumes can be served here.
pub(super) fn check() -> Result<(), EngineError> {
    Ring::check()
}

impl Files {
    /// Room for `depth` operations; `signal` is raised for sectors, and its descriptor the one of the prepared ring.
    pub(super) fn new(depth: usize, signal: &Arc<Signal>, prepared: Box<Prepared>) -> Self {
        let depth = places(depth);
        let Prepared { ring, region } = *prepared;
        let pool = BufPool::over(region);
        let zeros = pool.take(ZEROS).expect("the pool is empty and larger");
        let edges = Edges::new(EDGES, &pool);
        let operations = (0..depth).map(|_| None).collect();
        Self {
            kept: ManuallyDrop::new(Kept {
                ring,
                operations,
                edges,
                zeros,
                pool,
                #[cfg(feature = "_fault")]
                injected: VecDeque::new(),
            }),
            free: (0..depth).rev().collect(),
            parked: VecDeque::with_capacity(depth as usize),
            finished: VecDeque::with_capacity(depth as usize),
            wakers: HashMap::new(),
            waker: signal.waker(),
            signal: Arc::clone(signal),
            #[cfg(feature = "_fault")]
            fault: None,
        }
    }

    /// Registers the reactor's buffers with the kernel as they are used, where the limits allow it.
    pub(super) fn register(&mut self, buffers: Option<&BufPool>) {
        let mut regions = vec![Arc::clone(self.kept.pool.region())];
        regions.extend(buffers.map(|pool| Arc::clone(pool.region())));
        self.kept.ring.register(&regions);
    }

    /// Makes a volume known.
    pub(super) fn attach(&mut self, volume: &Arc<Volume>) -> Option<()> {
        let name = backend(volume).sectors.register_waker(&self.waker)?;
        self.wakers.insert(Arc::as_ptr(volume).addr(), name);
        Some(())
    }

    /// Operations that are under way or finished and not yet polled.
    pub(super) fn in_flight(&self) -> usize {
        self.kept.operations.len() - self.free.len() + self.finished.len()
    }

    /// Starts an operation, or hands it back when all places are taken.
    #[expect(
        clippy::result_large_err,
        reason = "the operation itself comes back, as it went in: nothing to box"
    )]
    pub(super) fn submit(&mut self, io: Io) -> Result<(), Io> {
        let Some(index) = self.free.pop() else { return Err(io) };
        let operation = Operation::new(io);
        #[cfg(feature = "_fault")]
        let operation = Operation { fault: self.fault.take(), ..operation };
        self.kept.operations[index as usize] = Some(operation);
        if self.parked.is_empty() {
            self.drive(index);
        } else {
            self.parked.push_back(index);
        }
        Ok(())
    }

    /// Goes on with what is under way, and returns one completed operation; when it returns none, everything has been
    /// given to the kernel.
    pub(super) fn poll(&mut self) -> Option<IoDone> {
        loop {
            if let Some(done) = self.finished.pop_front() {
                return Some(done);
            }
            if self.reap() {
                continue;
            }
            if !self.kept.ring.has_queued() {
                return None;
            }
            if !self.kept.ring.enter() {
                self.signal.notify();
                self.reap();
                return self.finished.pop_front();
            }
        }
    }

    /// Takes completions and free sectors; whether there were any.
    fn reap(&mut self) -> bool {
        let mut progress = false;
        while let Some(completion) = self.kept.completion() {
            progress = true;
            self.complete(completion);
        }
        if self.kept.edges.locking > 0 && self.signal.take() {
            for index in 0..self.kept.edges.capacity() {
                if self.kept.edges.is_locking(index) {
                    progress |= self.poll_lock(index);
                }
            }
        }
        if progress {
            self.unpark();
        }
        progress
    }

    fn unpark(&mut self) {
        for _ in 0..self.parked.len() {
            let Some(index) = self.parked.pop_front() else { return };
            let before = self.parked.len();
            self.drive(index);
            if self.parked.len() > before {
                // It is at the back now, and was the oldest.
                self.parked.rotate_right(1);
                return;
            }
        }
    }

    fn complete(&mut self, completion: Completion) {
        let index = u32::try_from(completion.user_data & (EDGE - 1)).expect("masked to 32 bits");
        if completion.user_data & EDGE != 0 {
            self.edge_completed(index, completion.result);
        } else {
            self.part_completed(index / 2, (index % 2) as usize, completion.result);
        }
    }

    /// Starts stages of an operation until one is under way or it is finished.
    fn drive(&mut self, index: u32) {
        loop {
            match self.start(index) {
                Start::Pending => return,
                Start::Parked => return self.parked.push_back(index),
                Start::Nothing => {
                    if !self.stage_done(index) {
                        return;
                    }
                }
            }
        }
    }

    fn start(&mut self, index: u32) -> Start {
        let operation = self.kept.operation(index);
        let volume = Arc::clone(&operation.io.volume);
        let backend = backend(&volume);
        let block = backend.block_size as u64;
        let (offset, length) = (operation.io.slba * block, u64::from(operation.io.nlb) * block);
        match operation.stage {
            Stage::Transfer => return self.start_transfer(index, backend),
            Stage::EmptyRecords => return self.start_empty_records(index, backend),
            Stage::EmptyData => operation.parts[0] = Part::on_file(Work::Punch, offset, length),
            Stage::ZeroData => operation.parts[0] = Part::on_file(Work::Zero, offset, length),
            Stage::Sync => {
                operation.parts = [Part::on_file(Work::Sync, 0, 0); 2];
                if backend.pi.is_some() {
                    operation.pending += 1;
                    self.kept.issue_part(index, 1, backend);
                }
            }
        }
        self.kept.operation(index).pending += 1;
        self.kept.issue_part(index, 0, backend);
        Start::Pending
    }

    /// Starts the next chunk. Before its first part that writes is issued is the place for an intent record.
    fn start_transfer(&mut self, index: u32, backend: &FileBackend) -> Start {
        let Kept { operations, edges, pool, .. } = &mut *self.kept;
        let operation = operations[index as usize].as_mut().expect("it is under way");
        let io = &operation.io;
        let (first, left) = (io.slba + u64::from(operation.done), io.nlb - operation.done);
        let writes = io.op != IoOp::Read;
        let mut chunk = left;
        if let Some(records) = backend.records()
            && (writes || backend.pi.is_none() || io.md.is_some())
        {
            let sector = records.disk.sector;
            chunk = left.min(records_that_fit(records.stride, sector, BOUNCE));
            let cover = cover(records.base, records.stride, first, chunk, sector);
            let needed = if writes { cover.edges.iter().flatten().count() } else { 0 };
            if needed > edges.room() {
                return Start::Parked;
            }
            let Some(bounce) = pool.take(cover.length) else { return Start::Parked };
            if writes {
                let run = Run { skip: operation.done, blocks: chunk };
                let place = bounce.piece().slice(cover.records.start, cover.records.len());
                records::fill(backend, io, run, &place);
            }
            operation.cover = cover;
            operation.bounce = Some(bounce);
        }
        operation.chunk = chunk;
        self.issue_data(index, backend);
        self.issue_records(index, backend);
        if self.kept.operation(index).pending == 0 { Start::Nothing } else { Start::Pending }
    }

    /// Data of the chunk, between the operation's own buffer and the data file.
    fn issue_data(&mut self, index: u32, backend: &FileBackend) {
        let operation = self.kept.operation(index);
        let work = match operation.io.op {
            IoOp::Read => Work::Read,
            IoOp::Write => Work::Write,
            IoOp::WriteZeroes | IoOp::Deallocate | IoOp::Flush => return,
        };
        let interleaved = matches!(backend.metadata, Some((_, Layout::Interleaved)));
        let Some(data) = operation.io.data.as_ref().filter(|_| !interleaved) else { return };
        let block = backend.block_size as u64;
        let done = u64::from(operation.done) * block;
        let length = u64::from(operation.chunk) * block;
        operation.parts[0] =
            Part::transfer(work, operation.io.slba * block + done, data.addr() + done, length)
                .durable(operation.io.fua);
        operation.pending += 1;
        self.kept.issue_part(index, 0, backend);
    }

    /// Records of the chunk, between the bounce buffer and their file.
    fn issue_records(&mut self, index: u32, backend: &FileBackend) {
        let operation = self.kept.operation(index);
        let Some(bounce) = &operation.bounce else { return };
        let cover = &operation.cover;
        if operation.io.op == IoOp::Read {
            let (length, needed) = (cover.length as u64, cover.records.end as u64);
            operation.parts[1] =
                Part::transfer(Work::Read, cover.start, bounce.addr(), length).needing(needed);
            operation.pending += 1;
            self.kept.issue_part(index, 1, backend);
            return;
        }
        if !cover.whole.is_empty() {
            let at = cover.whole.start as u64;
            let length = cover.whole.len() as u64;
            operation.parts[1] = Part::transfer(Work::Write, cover.start + at, bounce.addr() + at, length)
                .durable(operation.io.fua);
            operation.pending += 1;
            self.kept.issue_part(index, 1, backend);
        }
        self.join_edges(index, backend);
    }

    fn start_empty_records(&mut self, index: u32, backend: &FileBackend) -> Start {
        let Some(records) = backend.records() else { return Start::Nothing };
        let room = self.kept.edges.room();
        let operation = self.kept.operation(index);
        let (first, blocks) = (operation.io.slba, operation.io.nlb);
        let cover = cover(records.base, records.stride, first, blocks, records.disk.sector);
        if cover.edges.iter().flatten().count() > room {
            return Start::Parked;
        }
        operation.chunk = blocks;
        operation.cover = cover;
        let (at, length) = (operation.cover.whole.start as u64, operation.cover.whole.len() as u64);
        if length > 0 {
            operation.parts[1] = Part::on_file(Work::Punch, operation.cover.start + at, length);
            operation.pending += 1;
            self.kept.issue_part(index, 1, backend);
        }
        self.join_edges(index, backend);
        Start::Pending
    }

    fn part_completed(&mut self, index: u32, side: usize, result: i32) {
        let operation = self.kept.operation(index);
        let volume = Arc::clone(&operation.io.volume);
        let backend = backend(&volume);
        match operation.parts[side].advance(result, disk(backend, side)) {
            Next::Done => self.one_done(index),
            Next::Again => self.kept.issue_part(index, side, backend),
            Next::Failed(errno) => {
                let part = operation.parts[side];
                let (lba, area) = match (part.work, side) {
                    (Work::Sync, 0) => (operation.io.slba, Area::Data),
                    (Work::Sync, _) => (operation.io.slba, area(backend)),
                    (_, 0) => ((part.offset + part.done) / backend.block_size as u64, Area::Data),
                    _ => (operation.lba_of_record(part.offset + part.done, backend), area(backend)),
                };
                operation.fail(errno, lba, area);
                self.one_done(index);
            }
        }
    }

    fn one_done(&mut self, index: u32) {
        let operation = self.kept.operation(index);
        operation.pending -= 1;
        if operation.pending == 0 && self.stage_done(index) {
            self.drive(index);
        }
    }

    /// Takes the results of a stage; returns whether there is another to start. The end of the last Transfer chunk is
    /// where an intent record would be closed.
    fn stage_done(&mut self, index: u32) -> bool {
        let operation = self.kept.operation(index);
        let volume = Arc::clone(&operation.io.volume);
        let backend = backend(&volume);
        let bounce = operation.bounce.take();
        if operation.error.is_none() {
            if operation.stage == Stage::Transfer {
                if let (Some(bounce), IoOp::Read) = (&bounce, operation.io.op) {
                    let range = operation.cover.records.clone();
                    let run = Run { skip: operation.done, blocks: operation.chunk };
                    let place = bounce.piece().slice(range.start, range.len());
                    records::extract(backend, &operation.io, run, &place);
                }
                operation.done += operation.chunk;
                if operation.done < operation.io.nlb {
                    return true;
                }
            }
            if let Some(next) = operation.stage.next(&operation.io) {
                operation.stage = next;
                return true;
            }
        }
        let operation = self.kept.operations[index as usize].take().expect("it is under way");
        self.free.push(index);
        let result = operation.error.map_or(Ok(()), Err);
        self.finished.push_back(IoDone { io: operation.io, result });
        false
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.kept.ring.drain() {
            // SAFETY: nothing uses `kept` after this, and the kernel is done with its memory.
            unsafe { ManuallyDrop::drop(&mut self.kept) };
        } else {
            tracing::error!(
                operations = self.in_flight(),
                "storage does not finish its operations; their memory and locks are given up for lost"
            );
        }
    }
}

impl Kept {
    fn operation(&mut self, index: u32) -> &mut Operation {
        self.operations[index as usize].as_mut().expect("it is under way")
    }

    fn completion(&mut self) -> Option<Completion> {
        #[cfg(feature = "_fault")]
        if let Some(completion) = self.injected.pop_front() {
            return Some(completion);
        }
        self.ring.completion()
    }

    fn issue_part(&mut self, index: u32, side: usize, backend: &FileBackend) {
        let user_data = u64::from(index) * 2 + side as u64;
        #[cfg(feature = "_fault")]
        if let Some(result) = self.operation(index).meet(side, backend) {
            return self.injected.push_back(Completion { user_data, result });
        }
        let Self { ring, operations, zeros, .. } = self;
        let operation = operations[index as usize].as_mut().expect("it is under way");
        issue(ring, zeros, disk(backend, side), user_data, &mut operation.parts[side]);
    }

    fn issue_edge(&mut self, index: u32, backend: &FileBackend) {
        #[cfg(feature = "_fault")]
        if let Some(errno) = self.edge_fault(index, backend) {
            let user_data = u64::from(index) | EDGE;
            return self.injected.push_back(Completion { user_data, result: -errno });
        }
        let disk = backend.records().map_or(&backend.data, |records| records.disk);
        let Self { ring, edges, zeros, .. } = self;
        issue(ring, zeros, disk, u64::from(index) | EDGE, &mut edges.edge(index).0.part);
    }
}

/// Queues what is left of a part. The part belongs to an operation or edge in its place, which owns the memory.
fn issue(ring: &mut Ring, zeros: &Buf, disk: &Disk, user_data: u64, part: &mut Part) {
    part.settle(disk);
    let file = types::Fd(disk.file.as_raw_fd());
    let offset = part.offset + part.done;
    let left = part.left();
    let most = if part.work == Work::WriteZeros { zeros.len() as u64 } else { MOST };
    let length = u32::try_from(left.min(most)).expect("limited to a gibibyte");
    let addr = if part.work == Work::WriteZeros { zeros.addr() } else { part.addr + part.done };
    let fixed = ring.fixed_index(addr, u64::from(length));
    let memory = usize::try_from(addr).expect("addresses of this process fit its pointers");
    let flags = if part.durable { libc::RWF_DSYNC } else { 0 };
    let entry = match (part.work, fixed) {
        (Work::Read, None) => {
            let to = std::ptr::with_exposed_provenance_mut(memory);
            opcode::Read::new(file, to, length).offset(offset).build()
        }
        (Work::Read, Some(fixed)) => {
            let to = std::ptr::with_exposed_provenance_mut(memory);
            opcode::ReadFixed::new(file, to, length, fixed).offset(offset).build()
        }
        (Work::Write | Work::WriteZeros, None) => {
            let from = std::ptr::with_exposed_provenance(memory);
            opcode::Write::new(file, from, length).offset(offset).rw_flags(flags).build()
        }
        (Work::Write | Work::WriteZeros, Some(fixed)) => {
            let from = std::ptr::with_exposed_provenance(memory);
            opcode::WriteFixed::new(file, from, length, fixed).offset(offset).rw_flags(flags).build()
        }
        (Work::Punch | Work::Zero, _) => {
            let how = match part.work {
                Work::Punch => FallocateFlags::FALLOC_FL_PUNCH_HOLE,
                _ => FallocateFlags::FALLOC_FL_ZERO_RANGE,
            };
            let mode = (how | FallocateFlags::FALLOC_FL_KEEP_SIZE).bits();
            opcode::Fallocate::new(file, left).offset(offset).mode(mode).build()
        }
        (Work::Sync, _) => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
    };
    // SAFETY: the memory is a buffer of the operation or edge that this part belongs to, or the zeros. They are in
    // `Kept`, which is neither moved out of nor dropped while an entry of theirs is in flight: operations and edges
    // leave their place when no part of them is pending, and dropping drains the ring. Nobody else touches the memory:
    // the buffers are owned. The operation owns the volume, which keeps the descriptor open.
    unsafe { ring.push(entry.user_data(user_data)) };
}

/// The file of an operation's part.
fn disk(backend: &FileBackend, side: usize) -> &Disk {
    if side == 0 { &backend.data } else { backend.records().map_or(&backend.data, |records| records.disk) }
}

/// What a failure in the file with the records concerns.
fn area(backend: &FileBackend) -> Area {
    if backend.pi.is_some() { Area::Metadata } else { Area::Data }
}

fn backend(volume: &Volume) -> &FileBackend {
    match volume.backend() {
        Backend::File(backend) => backend,
        Backend::Memory(_) | Backend::Null(_) => unreachable!("only operations on files come here"),
    }
}

const _: () = assert!(EDGES as usize * PAGE + ZEROS + 4 * BOUNCE <= POOL, "the pool holds what it must");
