//! Both sides of a transfer that is cut by the peer's segments: our pieces of memory, and the segments.

use std::ops::Range;

use super::{PAGE, Page, SegmentError};
use crate::plan::{Bvec, RwError};
use crate::remote::{RemoteAddr, RemoteSegment};

/// A place in a list of pieces of our memory, which may have any lengths.
#[derive(Clone, Copy, Debug)]
pub struct PieceCursor<'p> {
    pieces: &'p [Bvec],
    /// Bytes of the first piece that are behind us.
    offset: u32,
    left: u64,
}

impl<'p> PieceCursor<'p> {
    /// At the first byte of `pieces`.
    #[must_use]
    pub fn new(pieces: &'p [Bvec]) -> Self {
        Self { pieces, offset: 0, left: pieces.iter().map(|piece| u64::from(piece.length)).sum() }
    }

    /// Bytes ahead.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Appends the pieces of the next `length` bytes, of which there are as many, to `bvecs`.
    pub(super) fn take(&mut self, length: u32, bvecs: &mut Vec<Bvec>) -> Result<(), SegmentError> {
        debug_assert!(u64::from(length) <= self.left, "no more is taken than is there");
        let mut left = length;
        while left > 0
            && let [piece, rest @ ..] = self.pieces
        {
            let taken = left.min(piece.length - self.offset);
            if taken > 0 {
                bvecs.try_reserve(1).map_err(|_| SegmentError::NoMemory)?;
                bvecs.push(Bvec {
                    addr: piece.addr + u64::from(self.offset),
                    length: taken,
                    lkey: piece.lkey,
                });
            }
            left -= taken;
            self.offset += taken;
            if self.offset == piece.length {
                self.offset = 0;
                self.pieces = rest;
            }
        }
        self.left -= u64::from(length);
        Ok(())
    }
}

/// A place in a list of the peer's segments (Linux: `wi_seg_no` and `wi_seg_off`).
#[derive(Clone, Copy, Debug)]
pub struct SegmentCursor<'s> {
    segments: &'s [RemoteSegment],
    seg_off: u32,
}

impl<'s> SegmentCursor<'s> {
    /// At the first byte of `segments`.
    #[must_use]
    pub fn new(segments: &'s [RemoteSegment]) -> Self {
        Self { segments, seg_off: 0 }
    }

    /// Where the next at most `most` bytes go, and how many that are: not more than the segment has.
    pub(super) fn next(&self, most: u64) -> Result<(RemoteAddr, u32), SegmentError> {
        let [segment, ..] = self.segments else { return Err(SegmentError::ChunkTooSmall) };
        let length = u32::try_from(most).unwrap_or(u32::MAX).min(segment.length - self.seg_off);
        if length == 0 {
            return Err(SegmentError::ChunkTooSmall);
        }
        let wraps = SegmentError::Context(RwError::RemoteWraps);
        Ok((segment.at.checked_add(self.seg_off.into()).ok_or(wraps)?, length))
    }

    /// `length` bytes, which [`Self::next`] gave, are behind us.
    pub(super) fn advance(&mut self, length: u32) {
        let [segment, rest @ ..] = self.segments else { return };
        self.seg_off += length;
        if self.seg_off == segment.length {
            self.seg_off = 0;
            self.segments = rest;
        }
    }
}

/// A message in memory (Linux `struct xdr_buf`): a head, pages, a tail, each of which may be empty.
#[derive(Clone, Copy, Debug)]
pub struct XdrBuf<'p> {
    /// First piece.
    pub head: Bvec,
    /// Pages in between.
    pub pages: &'p [Page],
    /// Bytes of the pages to leave out at the front.
    pub page_base: u32,
    /// Bytes behind them that count.
    pub page_len: u32,
    /// Last piece.
    pub tail: Bvec,
}

/// The regions of an [`XdrBuf`], in order.
pub(super) const REGIONS: [Region; 3] = [Region::Head, Region::Pages, Region::Tail];

#[derive(Clone, Copy, Debug)]
pub(super) enum Region {
    Head,
    Pages,
    Tail,
}

impl XdrBuf<'_> {
    /// Bytes of the message.
    #[must_use]
    pub fn length(&self) -> u64 {
        u64::from(self.head.length) + u64::from(self.page_len) + u64::from(self.tail.length)
    }

    /// Whether the message has a range, and pages enough for what it says of them.
    pub(super) fn check(&self, range: &Range<u64>) -> Result<(), SegmentError> {
        let paged = u64::from(self.page_base) + u64::from(self.page_len);
        let inside = range.start <= range.end && range.end <= self.length();
        let paged = paged <= self.pages.len() as u64 * u64::from(PAGE);
        if inside && paged { Ok(()) } else { Err(SegmentError::PayloadRange) }
    }

    /// Appends to `pieces` the part of a region that lies within `range` of the message, which was checked; pages are cut
    /// at their ends.
    pub(super) fn pieces(&self, region: Region, range: &Range<u64>, pieces: &mut Vec<Bvec>) {
        let (head, paged) = (u64::from(self.head.length), u64::from(self.page_len));
        let (start, length) = match region {
            Region::Head => (0, head),
            Region::Pages => (head, paged),
            Region::Tail => (head + paged, u64::from(self.tail.length)),
        };
        let within = |at: u64| at.clamp(start, start + length) - start;
        let (from, to) = (within(range.start), within(range.end));
        if from == to {
            return;
        }
        let piece = |whole: &Bvec| {
            let length = u32::try_from(to - from).expect("a part of a u32");
            Bvec { addr: whole.addr + from, length, lkey: whole.lkey }
        };
        match region {
            Region::Head => pieces.push(piece(&self.head)),
            Region::Tail => pieces.push(piece(&self.tail)),
            Region::Pages => {
                let page_size = u64::from(PAGE);
                let (mut at, end) = (u64::from(self.page_base) + from, u64::from(self.page_base) + to);
                while at < end {
                    let page = self.pages[usize::try_from(at / page_size).expect("an index of the array")];
                    let offset = at % page_size;
                    let taken = (end - at).min(page_size - offset);
                    let length = u32::try_from(taken).expect("at most a page");
                    pieces.push(Bvec { addr: page.addr + offset, length, lkey: page.lkey });
                    at += taken;
                }
            }
        }
    }
}
