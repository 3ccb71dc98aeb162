//! WRITEs of a message to a peer's segments: payloads to Write chunks, the rest to a Reply chunk.

use std::ops::Range;

use super::pieces::REGIONS;
use super::{PieceCursor, SegmentBuilder, SegmentCursor, SegmentError, XdrBuf};
use crate::plan::Direction;
use crate::remote::RemoteSegment;

/// A part of a message that goes to a Write chunk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Where it begins.
    pub position: u32,
    /// 0 = there is none.
    pub length: u32,
}

/// A Write chunk: where the peer wants a payload.
#[derive(Clone, Copy, Debug)]
pub struct WriteChunk<'s> {
    segments: &'s [RemoteSegment],
    payload: Payload,
}

impl<'s> WriteChunk<'s> {
    /// A chunk without payload yet; a peer names at most as many segments as a message may have pages.
    ///
    /// # Errors
    /// [`SegmentError::TooManySegments`].
    pub fn new(segments: &'s [RemoteSegment], max_pages: usize) -> Result<Self, SegmentError> {
        if segments.len() > max_pages {
            return Err(SegmentError::TooManySegments);
        }
        Ok(Self { segments, payload: Payload::default() })
    }

    /// The chunk with what goes there.
    #[must_use]
    pub fn with_payload(self, payload: Payload) -> Self {
        Self { payload, ..self }
    }
}

impl Payload {
    pub(super) fn range(self) -> Range<u64> {
        let start = u64::from(self.position);
        start..start + u64::from(self.length)
    }
}

/// The chunks that get a payload: those before the first without.
pub(super) fn carried<'w, 's>(chunks: &'w [WriteChunk<'s>]) -> impl Iterator<Item = &'w WriteChunk<'s>> {
    chunks.iter().take_while(|chunk| chunk.payload.length != 0)
}

impl SegmentBuilder<'_> {
    /// Moves all that is left of `pieces` to (`ToHost`) or from the peer's segments, in order: a context for each segment,
    /// or part of one. Both cursors are behind what was built.
    ///
    /// # Errors
    /// [`SegmentError::ChunkTooSmall`] when the segments end first, or one of them is empty; [`SegmentError::NoMemory`],
    /// [`SegmentError::Context`].
    pub fn build_segments(
        &mut self,
        pieces: &mut PieceCursor<'_>,
        segments: &mut SegmentCursor<'_>,
        direction: Direction,
    ) -> Result<(), SegmentError> {
        while pieces.left() > 0 {
            let (remote, length) = segments.next(pieces.left())?;
            self.add(length, remote, direction, |bvecs| pieces.take(length, bvecs))?;
            segments.advance(length);
        }
        Ok(())
    }

    /// WRITEs of a payload of `reply` to its Write chunk.
    ///
    /// # Errors
    /// [`SegmentError::PayloadRange`] when the message does not have it, and those of [`Self::build_segments`].
    pub fn build_write_chunk(
        &mut self,
        reply: &XdrBuf<'_>,
        chunk: &WriteChunk<'_>,
    ) -> Result<(), SegmentError> {
        self.build_range(reply, &chunk.payload.range(), &mut SegmentCursor::new(chunk.segments))
    }

    /// WRITEs of all of `reply` but what goes to `write_chunks` to the segments of a Reply chunk. Returns the bytes.
    ///
    /// # Errors
    /// [`SegmentError::PayloadRange`] when payloads overlap, stand in another order or outside the message, and those of
    /// [`Self::build_segments`].
    pub fn build_reply_chunk(
        &mut self,
        reply: &XdrBuf<'_>,
        write_chunks: &[WriteChunk<'_>],
        segments: &[RemoteSegment],
    ) -> Result<u64, SegmentError> {
        let mut to = SegmentCursor::new(segments);
        let (mut start, mut written) = (0, 0);
        let payloads = carried(write_chunks).map(|chunk| chunk.payload.range());
        let end = reply.length()..reply.length();
        for payload in payloads.chain(std::iter::once(end)) {
            self.build_range(reply, &(start..payload.start), &mut to)?;
            written += payload.start - start;
            start = payload.end;
        }
        Ok(written)
    }

    /// WRITEs of a range of `reply`: head, pages and tail apart.
    fn build_range(
        &mut self,
        reply: &XdrBuf<'_>,
        range: &Range<u64>,
        to: &mut SegmentCursor<'_>,
    ) -> Result<(), SegmentError> {
        reply.check(range)?;
        for region in REGIONS {
            let mut pieces = std::mem::take(&mut self.cache.pieces);
            pieces.clear();
            reply.pieces(region, range, &mut pieces);
            let built = self.build_segments(&mut PieceCursor::new(&pieces), to, Direction::ToHost);
            self.cache.pieces = pieces;
            built?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
