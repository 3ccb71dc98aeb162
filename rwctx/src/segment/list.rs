//! Segment lists as a message carries them, put in order: the Read list with its Call chunk, and the key that may be
//! invalidated.

use super::SegmentError;
use crate::remote::{RemoteSegment, Rkey};

/// An entry of a Read list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// Where in the message its chunk belongs, in bytes: a multiple of 4. 0 = the Call chunk, which is the message itself.
    pub position: u32,
    /// The peer's memory.
    pub segment: RemoteSegment,
}

/// A Read list by chunks (Linux `svc_rdma_pcl`). Segments of one position are one chunk, in the order of their arrival;
/// chunks stand in ascending order of their positions.
#[derive(Debug, Default)]
pub struct ReadList {
    segments: Vec<ReadSegment>,
}

impl ReadList {
    /// Without segments.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties it; it keeps its room.
    pub fn clear(&mut self) {
        self.segments.clear();
    }

    /// Adds the next segment of the list. There are no more of them than `max_pages`, the number of pages that a message
    /// may have. (Deviation: Linux has no bound of its own for Read segments, only that of the header that brings them.)
    ///
    /// # Errors
    /// [`SegmentError::Position`], [`SegmentError::TooManySegments`].
    pub fn push(&mut self, segment: ReadSegment, max_pages: usize) -> Result<(), SegmentError> {
        if !segment.position.is_multiple_of(4) {
            return Err(SegmentError::Position);
        }
        if self.segments.len() >= max_pages {
            return Err(SegmentError::TooManySegments);
        }
        let at = self.segments.partition_point(|other| other.position <= segment.position);
        self.segments.insert(at, segment);
        Ok(())
    }

    /// The Call chunk: the segments at position 0. Empty when there is none.
    #[must_use]
    pub fn call(&self) -> &[ReadSegment] {
        &self.segments[..self.calls()]
    }

    /// The Read chunks, in ascending order of position. None is empty.
    pub fn chunks(&self) -> impl Iterator<Item = &[ReadSegment]> {
        self.segments[self.calls()..].chunk_by(|one, other| one.position == other.position)
    }

    fn calls(&self) -> usize {
        self.segments.partition_point(|segment| segment.position == 0)
    }
}

/// The key that a reply invalidates, when remote invalidation was agreed on: that of *all* segments of all lists of the
/// message. None when they have several. A key of 0 at the front counts as none.
#[must_use]
pub fn invalidation_key<'s>(segments: impl IntoIterator<Item = &'s RemoteSegment>) -> Option<Rkey> {
    let mut key = Rkey(0);
    for segment in segments {
        if key == Rkey(0) {
            key = segment.at.rkey;
        } else if segment.at.rkey != key {
            return None;
        }
    }
    (key != Rkey(0)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::super::testing::segment;
    use super::*;

    fn list(positions: &[u32]) -> ReadList {
        let mut list = ReadList::new();
        for (number, &position) in (0..).zip(positions) {
            list.push(ReadSegment { position, segment: segment(number, 100 + number) }, 100).unwrap();
        }
        list
    }

    fn lengths(chunk: &[ReadSegment]) -> Vec<u32> {
        chunk.iter().map(|segment| segment.segment.length).collect()
    }

    #[test]
    fn segments_of_a_position_are_a_chunk_and_chunks_ascend() {
        let list = list(&[80, 0, 40, 80, 0, 4, 40]);
        assert_eq!(lengths(list.call()), [101, 104]);
        let chunks: Vec<(u32, Vec<u32>)> =
            list.chunks().map(|chunk| (chunk[0].position, lengths(chunk))).collect();
        assert_eq!(chunks, [(4, vec![105]), (40, vec![102, 106]), (80, vec![100, 103])]);
    }

    #[test]
    fn a_list_without_segments_has_no_chunks() {
        let mut list = list(&[0, 4]);
        list.clear();
        assert!(list.call().is_empty() && list.chunks().next().is_none());
    }

    #[test]
    fn positions_that_no_item_can_have_and_endless_lists_are_refused() {
        let mut list = ReadList::new();
        for position in [1, 2, 3, 5, u32::MAX] {
            let pushed = list.push(ReadSegment { position, segment: segment(0, 1) }, 9);
            assert_eq!(pushed, Err(SegmentError::Position), "{position}");
        }
        for _ in 0..2 {
            assert_eq!(list.push(ReadSegment { position: 8, segment: segment(0, 1) }, 2), Ok(()));
        }
        let third = list.push(ReadSegment { position: 8, segment: segment(0, 1) }, 2);
        assert_eq!(third, Err(SegmentError::TooManySegments));
    }

    #[test]
    fn a_key_is_invalidated_only_when_all_segments_have_it() {
        let key = |keys: &[u32]| {
            let segments: Vec<RemoteSegment> = keys
                .iter()
                .map(|&key| {
                    let mut segment = segment(0, 1);
                    segment.at.rkey = Rkey(key);
                    segment
                })
                .collect();
            invalidation_key(&segments)
        };
        assert_eq!(key(&[]), None);
        assert_eq!(key(&[7]), Some(Rkey(7)));
        assert_eq!(key(&[7, 7, 7]), Some(Rkey(7)));
        assert_eq!(key(&[7, 7, 8]), None);
        assert_eq!(key(&[0, 0, 7]), Some(Rkey(7)), "0 counts as unset");
        assert_eq!(key(&[0, 0]), None);
    }
}
