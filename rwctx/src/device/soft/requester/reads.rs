//! Outstanding RDMA READs: one record per READ request on the wire, with the set of responses that came.
//!
//! A long READ work request is asked for in chunks, so that a burst of responses fits the receive buffer and the set fits
//! a few words. Responses are placed in any order; chunks complete in order. What is missing is asked for again from the
//! first missing response on, and because that never moves back, neither do the requests.

use super::super::psn::Psn;

/// Most responses of one chunk.
pub(in super::super) const CHUNK_PACKETS: u32 = 256;

const WORDS: usize = CHUNK_PACKETS as usize / 64;

/// One READ request on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    /// Work request that it is a part of.
    pub(super) wqe: u64,
    /// PSN of its first response.
    pub(super) first: Psn,
    /// Responses, 1 to [`CHUNK_PACKETS`].
    pub(super) packets: u32,
    /// Where it starts in the message, in bytes.
    pub(super) offset: u32,
    /// Bytes.
    pub(super) bytes: u32,
    /// Index of the first response that did not come.
    pub(super) missing: u32,
    /// Responses that came.
    came: [u64; WORDS],
    /// Streams of responses whose last packet did not come yet.
    streams: u8,
    /// Whether it was asked for again while a stream was on its way: what is left of that one tells nothing.
    again: bool,
    /// Whether it is to be asked for again.
    pub(super) wanted: bool,
}

impl Chunk {
    /// One past the PSN of its last response.
    #[inline]
    pub(super) fn end(&self) -> Psn {
        self.first.after(self.packets)
    }

    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.missing == self.packets
    }

    /// PSN of the first response that did not come.
    #[inline]
    pub(super) fn first_missing(&self) -> Psn {
        self.first.after(self.missing)
    }

    /// Whether response `index` came.
    #[inline]
    fn has(&self, index: u32) -> bool {
        self.came[index as usize / 64] >> (index % 64) & 1 == 1
    }

    #[inline]
    fn set(&mut self, index: u32) {
        self.came[index as usize / 64] |= 1 << (index % 64);
        while self.missing < self.packets && self.has(self.missing) {
            self.missing += 1;
        }
        if self.is_complete() {
            // It was late, not lost.
            self.wanted = false;
        }
    }

    /// Some response was lost, as far as one can tell: ask again, once.
    fn lost(&mut self) -> bool {
        let news = !self.is_complete() && !self.again && !self.wanted;
        self.wanted |= news;
        news
    }
}

/// What a response was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It came before.
    Before,
    /// The first time.
    New,
}

/// The outstanding READs of a queue pair, oldest first.
#[derive(Debug)]
pub(super) struct ReadRing {
    ring: Box<[Chunk]>,
    head: usize,
    length: usize,
    /// Whether some chunk may be wanted; saves looking when none is.
    any_wanted: bool,
}

impl ReadRing {
    /// Room for `most` chunks.
    pub(super) fn new(most: u8) -> Self {
        let unused = Chunk {
            wqe: 0,
            first: Psn::start(0),
            packets: 0,
            offset: 0,
            bytes: 0,
            missing: 0,
            came: [0; WORDS],
            streams: 0,
            again: false,
            wanted: false,
        };
        let ring = vec![unused; usize::from(most)].into_boxed_slice();
        Self { ring, head: 0, length: 0, any_wanted: false }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.length == self.ring.len()
    }

    /// Appends a chunk that was asked for; there is room.
    pub(super) fn push(&mut self, wqe: u64, first: Psn, packets: u32, offset: u32, bytes: u32) {
        debug_assert!(!self.is_full() && (1..=CHUNK_PACKETS).contains(&packets));
        let slot = self.slot(self.length);
        self.ring[slot] = Chunk {
            wqe,
            first,
            packets,
            offset,
            bytes,
            missing: 0,
            came: [0; WORDS],
            streams: 1,
            again: false,
            wanted: false,
        };
        self.length += 1;
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Chunk> {
        (self.length > 0).then(|| &self.ring[self.head])
    }

    #[inline]
    pub(super) fn pop(&mut self) {
        debug_assert!(self.length > 0, "callers look at the front first");
        self.head = self.slot(1);
        self.length -= 1;
    }

    /// Position of the chunk that `psn` belongs to.
    #[inline]
    pub(super) fn find(&self, psn: Psn) -> Option<usize> {
        (0..self.length).find(|&position| {
            let chunk = self.at(position);
            chunk.first <= psn && psn < chunk.end()
        })
    }

    #[inline]
    pub(super) fn at(&self, position: usize) -> &Chunk {
        &self.ring[self.slot(position)]
    }

    /// Up to where all bytes of the READ have come that the chunk at `position` is of.
    pub(super) fn came_upto(&self, position: usize, mtu: u32) -> u32 {
        let wqe = self.at(position).wqe;
        let others = (0..position).rev().take_while(|before| self.at(*before).wqe == wqe);
        let first = others.last().unwrap_or(position);
        let mut upto = 0;
        for chunk in (first..self.length).map(|index| self.at(index)).take_while(|chunk| chunk.wqe == wqe) {
            if !chunk.is_complete() {
                return chunk.offset + chunk.missing * mtu;
            }
            upto = chunk.offset + chunk.bytes;
        }
        upto
    }

    /// Whether the response came before.
    pub(super) fn came(&self, position: usize, psn: Psn) -> Came {
        let chunk = self.at(position);
        if chunk.has(psn.since(chunk.first)) { Came::Before } else { Came::New }
    }

    /// Notes a response, and what its arrival says of lost ones. Returns how many chunks turned out to miss some.
    pub(super) fn note(&mut self, position: usize, psn: Psn) -> u32 {
        let mut lost = 0;
        // The peer serves one READ at a time, in order: this chunk's stream began after the earlier ones had ended.
        for earlier in 0..position {
            let slot = self.slot(earlier);
            lost += u32::from(self.ring[slot].lost());
        }
        let slot = self.slot(position);
        let chunk = &mut self.ring[slot];
        let index = psn.since(chunk.first);
        chunk.set(index);
        if index > chunk.missing {
            lost += u32::from(chunk.lost());
        }
        if index + 1 == chunk.packets {
            chunk.streams = chunk.streams.saturating_sub(1);
            if chunk.streams == 0 && !chunk.is_complete() && !chunk.wanted {
                chunk.wanted = true;
                lost += 1;
            }
        }
        self.any_wanted |= lost > 0;
        lost
    }

    /// The peer executed everything before `upto`: what did not come of that was lost. Returns how many chunks turned out
    /// to miss some.
    pub(super) fn note_executed(&mut self, upto: Psn) -> u32 {
        let mut lost = 0;
        for position in 0..self.length {
            let slot = self.slot(position);
            let chunk = &mut self.ring[slot];
            if chunk.end() > upto {
                break;
            }
            lost += u32::from(chunk.lost());
        }
        self.any_wanted |= lost > 0;
        lost
    }

    /// Position of the oldest chunk that is to be asked for again.
    #[inline]
    pub(super) fn wanted(&mut self) -> Option<usize> {
        if !self.any_wanted {
            return None;
        }
        let wanted = (0..self.length).find(|&position| self.at(position).wanted);
        self.any_wanted = wanted.is_some();
        wanted
    }

    /// The rest of a chunk was asked for again.
    pub(super) fn note_asked_again(&mut self, position: usize) {
        let slot = self.slot(position);
        let chunk = &mut self.ring[slot];
        chunk.wanted = false;
        chunk.again = chunk.streams > 0;
        chunk.streams = chunk.streams.saturating_add(1);
    }

    /// Requests from `from` on were not executed and are sent again.
    pub(super) fn restart(&mut self, from: Psn) {
        for position in 0..self.length {
            let slot = self.slot(position);
            let chunk = &mut self.ring[slot];
            if chunk.first >= from {
                chunk.wanted = false;
                chunk.again = false;
                chunk.streams = 0;
            }
        }
    }

    /// After a timeout no stream is on its way any more.
    pub(super) fn forget_streams(&mut self) {
        for position in 0..self.length {
            let slot = self.slot(position);
            let chunk = &mut self.ring[slot];
            chunk.streams = 0;
            chunk.again = false;
        }
    }

    /// All chunks, oldest first.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        (0..self.length).map(|position| self.at(position))
    }

    #[inline]
    fn slot(&self, position: usize) -> usize {
        let slot = self.head + position;
        if slot >= self.ring.len() { slot - self.ring.len() } else { slot }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (ReadRing, Psn) {
        let first = Psn::start(0xFF_FFFE);
        let mut ring = ReadRing::new(2);
        ring.push(0, first, 6, 0, 6 * 256);
        ring.push(1, first.after(6), 2, 0, 512);
        (ring, first)
    }

    #[test]
    fn a_gap_is_asked_for_once_until_the_streams_have_ended() {
        let (mut ring, first) = ring();
        assert_eq!((ring.note(0, first), ring.note(0, first.after(1))), (0, 0));
        assert_eq!(ring.note(0, first.after(3)), 1);
        assert_eq!(ring.wanted(), Some(0));
        assert_eq!(ring.at(0).first_missing(), first.after(2));
        ring.note_asked_again(0);
        for index in 4..6 {
            assert_eq!(ring.note(0, first.after(index)), 0, "the old stream");
        }
        assert_eq!(ring.wanted(), None);
        for index in 3..5 {
            assert_eq!(ring.note(0, first.after(index)), 0, "the new stream, which lost the same response");
        }
        assert_eq!(ring.note(0, first.after(5)), 1, "both streams have ended");
        assert_eq!(ring.wanted(), Some(0));
        ring.note_asked_again(0);
        ring.note(0, first.after(2));
        assert!(ring.at(0).is_complete());
    }

    #[test]
    fn responses_of_a_later_read_or_an_acknowledge_show_that_an_earlier_one_lost_its_end() {
        let (mut ring, first) = ring();
        (0..5).for_each(|index| assert_eq!(ring.note(0, first.after(index)), 0));
        assert_eq!(ring.note(1, first.after(6)), 1);
        assert_eq!((ring.wanted(), ring.at(0).missing), (Some(0), 5));
        ring.note_asked_again(0);
        assert_eq!(ring.note_executed(first.after(7)), 0, "asked for already");
        assert_eq!(ring.note_executed(first.after(8)), 1, "the second one");
        assert_eq!(ring.wanted(), Some(1));
    }

    #[test]
    fn chunks_are_found_by_the_numbers_of_their_responses() {
        let (mut ring, first) = ring();
        assert!(ring.is_full());
        assert_eq!(
            (ring.find(first), ring.find(first.after(5)), ring.find(first.after(6))),
            (Some(0), Some(0), Some(1))
        );
        assert_eq!(ring.find(first.after(8)), None);
        ring.pop();
        assert_eq!((ring.find(first), ring.find(first.after(7))), (None, Some(0)));
        ring.push(2, first.after(8), 1, 0, 0);
        assert_eq!(ring.find(first.after(8)), Some(1));
    }
}
