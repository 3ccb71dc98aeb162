//! READs of a message's segments into pages: one segment, a chunk, a Call chunk with Read chunks in between.

use std::ops::Range;

use super::{PageCursor, ReadList, ReadSegment, SegmentBuilder, SegmentError};
use crate::plan::{Bvec, Direction, RwError};
use crate::remote::RemoteSegment;

/// How a message stands when its READs are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// No segments: all of it came inline.
    Inline,
    /// The pages hold the only Read chunk. The head is what came inline before it, the tail what came inline behind.
    DataItem {
        /// Inline bytes of the head.
        head: Range<u32>,
        /// Inline bytes of the tail.
        tail: Range<u32>,
    },
    /// The pages hold all of it, one run of bytes.
    Pages,
}

impl SegmentBuilder<'_> {
    /// A READ of one segment to the pages that come next. Returns the send-queue entries that it takes.
    ///
    /// # Errors
    /// [`SegmentError::LengthOverflow`], [`SegmentError::PageOverrun`], [`SegmentError::NoMemory`]; whatever is wrong with
    /// its context, also a length of 0, is [`SegmentError::Context`]. The cursor is where it was then.
    ///
    /// # Examples
    /// A segment of 5000 bytes fills one page and begins the next (rw-contexts 3.3), on a device that moves nothing:
    ///
    /// ```
    /// use rwctx::ctx::Completion;
    /// use rwctx::device::null::NullDevice;
    /// use rwctx::device::soft::endpoint::CAPS;
    /// use rwctx::device::{Device, QpCap};
    /// use rwctx::mem::Lkey;
    /// use rwctx::plan::Integrity;
    /// use rwctx::qp::RwQp;
    /// use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};
    /// use rwctx::segment::{ChunkCtx, CtxCache, Page, PageCursor, Posting, SegmentBuilder};
    /// use rwctx::wr::WrId;
    ///
    /// let mut device = NullDevice::new(CAPS);
    /// let pd = device.alloc_pd()?;
    /// let cap = QpCap {
    ///     max_send_wr: 16,
    ///     max_recv_wr: 1,
    ///     max_send_sge: 4,
    ///     max_recv_sge: 1,
    ///     integrity: Integrity::Off,
    /// };
    /// let qpn = device.create_qp(pd, &cap)?;
    /// let qp = RwQp::init_mrs(&mut device, pd, &cap, 2)?;
    ///
    /// let pages = [0x10_0000, 0x20_0000].map(|addr| Page { addr, lkey: Lkey(7) });
    /// let mut cursor = PageCursor::new(&pages);
    /// let (mut cache, mut cc) = (CtxCache::new(16, 8), ChunkCtx::new());
    /// let at = RemoteAddr { addr: 0x1000, rkey: Rkey(0x42) };
    /// let wqes = SegmentBuilder { qp: &qp, cache: &mut cache, cc: &mut cc }
    ///     .build_read_segment(&mut cursor, &RemoteSegment { at, length: 5000 })?;
    /// assert_eq!((wqes, cursor.curpage(), cursor.pageoff()), (1, 1, 904));
    ///
    /// assert_eq!(cc.post(&mut device, qpn, Completion::Own(WrId(5)))?, Posting::All);
    /// // When work request 5 has completed:
    /// cc.complete();
    /// cc.destroy(&mut cache);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_read_segment(
        &mut self,
        pages: &mut PageCursor<'_>,
        segment: &RemoteSegment,
    ) -> Result<u32, SegmentError> {
        let (before, length) = (*pages, segment.length);
        let built = self.add(length, segment.at, Direction::FromHost, |bvecs| pages.take(length, bvecs));
        if built.is_err() {
            *pages = before;
        }
        built
    }

    /// READs of all segments of a chunk, one behind the other.
    ///
    /// # Errors
    /// [`SegmentError::EmptyChunk`], and those of [`Self::build_read_segment`] at the first segment that has one.
    pub fn build_read_chunk(
        &mut self,
        pages: &mut PageCursor<'_>,
        chunk: &[ReadSegment],
    ) -> Result<(), SegmentError> {
        if chunk.is_empty() {
            return Err(SegmentError::EmptyChunk);
        }
        for ReadSegment { segment, .. } in chunk {
            self.build_read_segment(pages, segment)?;
            pages.count(segment.length);
        }
        Ok(())
    }

    /// READs of a range of the bytes that a chunk's segments hold together. An empty range needs none. Deviation: where a
    /// range begins at a segment's end or behind, or ends before the last one, Linux reads too much or fails.
    ///
    /// # Errors
    /// [`SegmentError::Position`] when the chunk has fewer bytes, and those of [`Self::build_read_segment`].
    pub fn build_read_chunk_range(
        &mut self,
        pages: &mut PageCursor<'_>,
        chunk: &[ReadSegment],
        range: Range<u64>,
    ) -> Result<(), SegmentError> {
        let mut offset = range.start;
        let mut left = range.end.checked_sub(range.start).ok_or(SegmentError::Position)?;
        for ReadSegment { segment, .. } in chunk {
            if left == 0 {
                break;
            }
            let Some(rest) = u64::from(segment.length).checked_sub(offset).filter(|&rest| rest > 0) else {
                offset -= u64::from(segment.length);
                continue;
            };
            let length = u32::try_from(left.min(rest)).expect("at most a segment's length");
            let wraps = SegmentError::Context(RwError::RemoteWraps);
            let at = segment.at.checked_add(offset).ok_or(wraps)?;
            self.build_read_segment(pages, &RemoteSegment { at, length })?;
            pages.count(length);
            left -= u64::from(length);
            offset = 0;
        }
        if left == 0 { Ok(()) } else { Err(SegmentError::Position) }
    }

    /// READs of everything that a message refers to, of whose bytes `inline` came with it (behind the transport's header).
    /// Where inline bytes belong between chunks, `copy` is called with which of them go to which piece.
    ///
    /// # Errors
    /// [`SegmentError::Position`] when a chunk lies outside the message or in what stands before it, and those of the
    /// parts.
    pub fn build_read_list(
        &mut self,
        pages: &mut PageCursor<'_>,
        list: &ReadList,
        inline: u32,
        mut copy: impl FnMut(Range<usize>, Bvec),
    ) -> Result<Message, SegmentError> {
        let call = list.call();
        let mut chunks = list.chunks();
        match (call.is_empty(), chunks.next(), chunks.next()) {
            (true, None, _) => return Ok(Message::Inline),
            (true, Some(chunk), None) => {
                let position = chunk[0].position;
                if position > inline {
                    return Err(SegmentError::Position);
                }
                self.build_read_chunk(pages, chunk)?;
                return Ok(Message::DataItem { head: 0..position, tail: position..inline });
            }
            (true, Some(_), Some(_)) => {
                self.interleave(pages, list, u64::from(inline), |_, pages, range| {
                    pages.copy_inline(range, &mut copy)
                })?;
            }
            (false, None, _) => self.build_read_chunk(pages, call)?,
            (false, Some(_), _) => {
                let length: u64 = call.iter().map(|segment| u64::from(segment.segment.length)).sum();
                self.interleave(pages, list, length, |builder, pages, range| {
                    builder.build_read_chunk_range(pages, call, range)
                })?;
            }
        }
        Ok(Message::Pages)
    }

    /// Read chunks at their positions, and what `between` brings in front of each and behind the last: `length` bytes in
    /// all.
    fn interleave(
        &mut self,
        pages: &mut PageCursor<'_>,
        list: &ReadList,
        length: u64,
        mut between: impl FnMut(&mut Self, &mut PageCursor<'_>, Range<u64>) -> Result<(), SegmentError>,
    ) -> Result<(), SegmentError> {
        let mut start = 0;
        for chunk in list.chunks() {
            let gap = u64::from(chunk[0].position).checked_sub(pages.readbytes());
            let end = start + gap.ok_or(SegmentError::Position)?;
            if end > length {
                return Err(SegmentError::Position);
            }
            between(self, pages, start..end)?;
            self.build_read_chunk(pages, chunk)?;
            start = end;
        }
        between(self, pages, start..length)
    }
}

#[cfg(test)]
mod tests;
