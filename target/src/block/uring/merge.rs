//! How operations meet in the sectors at their edges.
//!
//! Owns the way of a sector from its lock over its read to its writes, and the lists of operations on that way (see
//! [`super::edge`]). Each sector is by itself: an operation never holds one while it waits for another.

use std::sync::Arc;

use super::super::file::FileBackend;
use super::super::locks::{Lock, Mode};
use super::edge::{Edge, EdgeLock, MAX_ROUNDS, Member, NIL};
use super::part::{Next, Part, Work};
use super::{Files, Kept, area, backend};

impl Files {
    /// Adds the operation to the sectors at its edges. There is room for them.
    pub(super) fn join_edges(&mut self, index: u32, backend: &FileBackend) {
        let Some(records) = backend.records() else { return };
        let sector = records.disk.sector as u64;
        for edge in 0..2 {
            let Kept { operations, edges, .. } = &mut *self.kept;
            let operation = operations[index as usize].as_mut().expect("it is under way");
            let Some(range) = &operation.cover.edges[edge] else { continue };
            let offset = operation.cover.start + range.start as u64;
            let offset = offset - offset % sector;
            operation.pending += 1;
            let member = index * 2 + u32::try_from(edge).expect("0 or 1");
            if let Some(known) = edges.find(&operation.io.volume, offset) {
                operation.next[edge] = std::mem::replace(&mut edges.edge(known).0.waiting, member);
                continue;
            }
            operation.next[edge] = NIL;
            let added = edges.add(Edge {
                volume: Arc::clone(&operation.io.volume),
                offset,
                lock: EdgeLock::None,
                part: Part::on_file(Work::Sync, 0, 0),
                waiting: member,
                writing: NIL,
                rounds: 0,
            });
            self.lock_edge(added, backend);
        }
    }

    /// Takes the sector's lock, or waits for it.
    fn lock_edge(&mut self, index: u32, backend: &FileBackend) {
        let sector = backend.records().map_or(1, |records| records.disk.sector) as u64;
        let (edge, _) = self.kept.edges.edge(index);
        edge.rounds = 0;
        let name = self.wakers.get(&Arc::as_ptr(&edge.volume).addr());
        let name = *name.expect("a volume is attached before its first operation");
        match backend.sectors.lock(edge.offset / sector, 1, Mode::Write, name) {
            Lock::Held(guard) => {
                edge.lock = EdgeLock::Held(guard);
                self.read_edge(index, backend);
            }
            Lock::Waiting(wait) => {
                edge.lock = EdgeLock::Waiting(wait);
                self.kept.edges.locking += 1;
            }
        }
    }

    pub(super) fn poll_lock(&mut self, index: u32) -> bool {
        let (edge, _) = self.kept.edges.edge(index);
        let EdgeLock::Waiting(wait) = &mut edge.lock else { return false };
        let Some(guard) = wait.poll() else { return false };
        edge.lock = EdgeLock::Held(guard);
        let volume = Arc::clone(&edge.volume);
        self.kept.edges.locking -= 1;
        self.read_edge(index, backend(&volume));
        true
    }

    fn read_edge(&mut self, index: u32, backend: &FileBackend) {
        let sector = backend.records().map_or(1, |records| records.disk.sector);
        let (edge, page) = self.kept.edges.edge(index);
        // What lies beyond the file's end, of which nothing is needed, is zero.
        page.piece().fill(0);
        edge.part = Part::transfer(Work::Read, edge.offset, page.addr(), sector as u64).needing(0);
        self.kept.issue_edge(index, backend);
    }

    /// Merges all who wait into the sector, and writes it.
    fn write_edge(&mut self, index: u32, backend: &FileBackend) {
        let sector = backend.records().map_or(1, |records| records.disk.sector);
        let Kept { operations, edges, .. } = &mut *self.kept;
        let (edge, page) = edges.edge(index);
        edge.rounds += 1;
        edge.writing = std::mem::replace(&mut edge.waiting, NIL);
        let mut durable = false;
        let mut member = edge.writing;
        while member != NIL {
            let operation = operations[member as usize / 2].as_ref().expect("members are under way");
            let side = member as usize % 2;
            let range = operation.cover.edges[side].clone().expect("members have this edge");
            let place = page.piece().slice(range.start % sector, range.len());
            match &operation.bounce {
                Some(bounce) => place.copy_from(&bounce.piece().slice(range.start, range.len())),
                None => place.fill(0),
            }
            durable |= operation.io.fua;
            member = operation.next[side];
        }
        edge.part = Part::transfer(Work::Write, edge.offset, page.addr(), sector as u64).durable(durable);
        self.kept.issue_edge(index, backend);
    }

    pub(super) fn edge_completed(&mut self, index: u32, result: i32) {
        let (edge, _) = self.kept.edges.edge(index);
        let volume = Arc::clone(&edge.volume);
        let backend = backend(&volume);
        let disk = backend.records().map_or(&backend.data, |records| records.disk);
        match edge.part.advance(result, disk) {
            Next::Again => self.kept.issue_edge(index, backend),
            Next::Failed(errno) => {
                // Those who wait would meet the same sector.
                let edge = self.kept.edges.remove(index);
                let (writing, waiting) = (edge.writing, edge.waiting);
                drop(edge);
                self.members_done(writing, Some(errno), backend);
                self.members_done(waiting, Some(errno), backend);
            }
            Next::Done if edge.part.work == Work::Read => self.write_edge(index, backend),
            Next::Done => {
                let done = std::mem::replace(&mut edge.writing, NIL);
                if edge.waiting == NIL {
                    drop(self.kept.edges.remove(index));
                } else if edge.rounds < MAX_ROUNDS {
                    self.write_edge(index, backend);
                } else {
                    edge.lock = EdgeLock::None;
                    self.lock_edge(index, backend);
                }
                self.members_done(done, None, backend);
            }
        }
    }

    /// Tells the operations of a list that their edge is written, or failed.
    fn members_done(&mut self, mut member: Member, errno: Option<i32>, backend: &FileBackend) {
        while member != NIL {
            let (index, side) = (member / 2, member as usize % 2);
            let operation = self.kept.operation(index);
            member = std::mem::replace(&mut operation.next[side], NIL);
            if let Some(errno) = errno {
                let at = operation.cover.edges[side].as_ref().map_or(0, |range| range.start);
                let offset = operation.cover.start + at as u64;
                operation.fail(errno, operation.lba_of_record(offset, backend), area(backend));
            }
            self.one_done(index);
        }
    }
}
