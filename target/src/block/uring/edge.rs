//! Sectors that several operations write parts of.
//!
//! Owns, for each such sector, the lock that keeps other reactors out, its bytes, and the operations of this reactor
//! whose records lie in it: those that wait to be merged and those in the write under way. All that came while a write
//! was under way go out with the next one, so that neighbours cost one write, not one each.
//!
//! ```text
//! free -> locking -> reading -> writing -> (more came) writing -> free
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use super::super::locks::{RangeGuard, RangeWait};
use super::super::pool::{Buf, BufPool, PAGE};
use super::super::volume::Volume;
use super::part::Part;

/// The end of a list.
pub(super) const NIL: u32 = u32::MAX;

/// An operation's part in a sector: `operation * 2 + edge`.
pub(super) type Member = u32;

/// A sector that is being merged.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) volume: Arc<Volume>,
    /// File offset of the sector.
    pub(super) offset: u64,
    pub(super) lock: EdgeLock,
    pub(super) part: Part,
    /// First member that waits to be merged, and first in the write under way; the members link to the next.
    pub(super) waiting: Member,
    pub(super) writing: Member,
    /// Writes since the lock was taken.
    pub(super) rounds: u8,
}

/// The lock on a sector.
#[derive(Debug)]
pub(super) enum EdgeLock {
    Waiting(RangeWait),
    Held(#[expect(dead_code, reason = "held for its drop, which releases the sector")] RangeGuard),
    /// Between the two.
    None,
}

/// The sectors of one reactor.
#[derive(Debug)]
pub(super) struct Edges {
    slots: Vec<Option<Edge>>,
    pages: Vec<Buf>,
    free: Vec<u32>,
    by_place: HashMap<(usize, u64), u32>,
    /// Those whose lock is waited for.
    pub(super) locking: u32,
}

/// Writes after which the lock is given up once, for other reactors' sake.
pub(super) const MAX_ROUNDS: u8 = 8;

impl Edges {
    /// Room for `count` sectors, with pages of `pool`.
    pub(super) fn new(count: u32, pool: &BufPool) -> Self {
        let page = |_| pool.take(PAGE).expect("the pool was made large enough for them");
        Self {
            slots: (0..count).map(|_| None).collect(),
            pages: (0..count).map(page).collect(),
            free: (0..count).rev().collect(),
            by_place: HashMap::with_capacity(2 * count as usize),
            locking: 0,
        }
    }

    /// Sectors that can still be added.
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// The sector at `offset` of the volume's records, if it is being merged.
    pub(super) fn find(&self, volume: &Arc<Volume>, offset: u64) -> Option<u32> {
        self.by_place.get(&place(volume, offset)).copied()
    }

    /// Adds a sector. There is room.
    pub(super) fn add(&mut self, edge: Edge) -> u32 {
        let index = self.free.pop().expect("room was checked");
        self.by_place.insert(place(&edge.volume, edge.offset), index);
        self.slots[index as usize] = Some(edge);
        index
    }

    /// Removes a sector; dropping it releases its lock.
    pub(super) fn remove(&mut self, index: u32) -> Edge {
        let edge = self.slots[index as usize].take().expect("only live sectors are removed");
        self.by_place.remove(&place(&edge.volume, edge.offset));
        self.free.push(index);
        edge
    }

    /// A sector and its bytes.
    pub(super) fn edge(&mut self, index: u32) -> (&mut Edge, &Buf) {
        let edge = self.slots[index as usize].as_mut().expect("only live sectors are looked at");
        (edge, &self.pages[index as usize])
    }

    /// Sectors at most; those in use have lower indices or not.
    pub(super) fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("made from a u32")
    }

    /// Whether the sector waits for its lock.
    pub(super) fn is_locking(&self, index: u32) -> bool {
        let edge = self.slots[index as usize].as_ref();
        edge.is_some_and(|edge| matches!(edge.lock, EdgeLock::Waiting(_)))
    }
}

fn place(volume: &Arc<Volume>, offset: u64) -> (usize, u64) {
    (Arc::as_ptr(volume).addr(), offset)
}
