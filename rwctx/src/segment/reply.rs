//! What surrounds the WRITEs of a reply: the chain that ends in its Send, the Send's body, the lengths that its header
//! gives back.

use super::write::carried;
use super::{ChunkCtx, CtxCache, Posting, SegmentBuilder, SegmentError, WriteChunk, XdrBuf};
use crate::ctx::Completion;
use crate::device::{Device, Qpn};
use crate::qp::RwQp;
use crate::remote::RemoteSegment;
use crate::wr::{SendWr, WrId};

/// Replies shorter than this are copied behind their header: half of the version 1 inline size.
const PULLUP_THRESHOLD: u32 = 512;

/// The WRITEs of a reply in front of its Send: one chain, one completion. What is built later is posted earlier, as in
/// Linux: the Reply chunk, then the last Write chunk, at last the first.
#[derive(Debug)]
pub struct SendChain {
    /// The first `used` are.
    ccs: Vec<ChunkCtx>,
    used: usize,
    sqecount: u32,
}

impl Default for SendChain {
    fn default() -> Self {
        Self { ccs: Vec::new(), used: 0, sqecount: 1 }
    }
}

impl SendChain {
    /// The Send alone.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Send-queue entries of the chain, the Send included.
    #[must_use]
    pub fn sqecount(&self) -> u32 {
        self.sqecount
    }

    /// WRITEs of the payloads of `reply` to `chunks`, up to the first chunk without payload.
    ///
    /// # Errors
    /// [`SegmentError::TooManyEntries`] when the chain gets longer than `sq_depth`, and those of
    /// [`SegmentBuilder::build_write_chunk`].
    pub fn build_write_list(
        &mut self,
        qp: &RwQp,
        cache: &mut CtxCache,
        reply: &XdrBuf<'_>,
        chunks: &[WriteChunk<'_>],
        sq_depth: u32,
    ) -> Result<(), SegmentError> {
        for chunk in carried(chunks) {
            let cc = self.next();
            SegmentBuilder { qp, cache, cc }.build_write_chunk(reply, chunk)?;
            self.count(sq_depth)?;
        }
        Ok(())
    }

    /// WRITEs of the rest of `reply` to the Reply chunk. Returns its bytes. Deviation: Linux does not look whether the
    /// chain is too long then, and waits for ever.
    ///
    /// # Errors
    /// [`SegmentError::TooManyEntries`] when the chain gets longer than `sq_depth`, and those of
    /// [`SegmentBuilder::build_reply_chunk`].
    pub fn build_reply_chunk(
        &mut self,
        qp: &RwQp,
        cache: &mut CtxCache,
        reply: &XdrBuf<'_>,
        write_chunks: &[WriteChunk<'_>],
        segments: &[RemoteSegment],
        sq_depth: u32,
    ) -> Result<u64, SegmentError> {
        let cc = self.next();
        let written = SegmentBuilder { qp, cache, cc }.build_reply_chunk(reply, write_chunks, segments)?;
        self.count(sq_depth)?;
        Ok(written)
    }

    /// The work requests in front of the Send that completes as `send`, in posting order; none is signaled.
    ///
    /// # Panics
    /// When they were handed out before.
    pub fn wrs(&mut self, send: WrId) -> impl Iterator<Item = SendWr<'_>> {
        let ccs = self.ccs[..self.used].iter_mut().rev();
        ccs.flat_map(move |cc| cc.wrs(Completion::Chained(send)))
    }

    /// Posts the chain and `send` behind it. The caller holds the credits for [`Self::sqecount`] entries.
    ///
    /// # Errors
    /// [`SegmentError::NotConnected`] when the device took nothing.
    pub fn post<D: Device>(
        &mut self,
        device: &mut D,
        qpn: Qpn,
        send: &SendWr<'_>,
    ) -> Result<Posting, SegmentError> {
        let mut posted = false;
        for cc in self.ccs[..self.used].iter_mut().rev().filter(|cc| !cc.is_empty()) {
            match cc.post(device, qpn, Completion::Chained(send.wr_id)) {
                Ok(Posting::All) => posted = true,
                Ok(Posting::Partly) => return Ok(Posting::Partly),
                Err(_) if posted => return Ok(Posting::Partly),
                Err(error) => return Err(error),
            }
        }
        match device.post_send(qpn, send) {
            Ok(()) => Ok(Posting::All),
            Err(_) if posted => Ok(Posting::Partly),
            Err(_) => Err(SegmentError::NotConnected),
        }
    }

    /// Tells that the Send's completion was seen, or that none will come.
    pub fn complete(&mut self) {
        self.ccs[..self.used].iter_mut().for_each(ChunkCtx::complete);
    }

    /// Ends the use, also of a chain that was never posted: the Send alone is left.
    ///
    /// # Panics
    /// In debug builds, when it was posted and its completion was not seen.
    pub fn destroy(&mut self, cache: &mut CtxCache) {
        for cc in &mut self.ccs[..self.used] {
            cc.destroy(cache);
        }
        *self = Self { ccs: std::mem::take(&mut self.ccs), ..Self::default() };
    }

    fn next(&mut self) -> &mut ChunkCtx {
        if self.used == self.ccs.len() {
            self.ccs.push(ChunkCtx::new());
        }
        self.used += 1;
        &mut self.ccs[self.used - 1]
    }

    /// Counts what was built last.
    fn count(&mut self, sq_depth: u32) -> Result<(), SegmentError> {
        let sqecount = self.sqecount.checked_add(self.ccs[self.used - 1].sqecount());
        self.sqecount = sqecount.filter(|&all| all <= sq_depth).ok_or(SegmentError::TooManyEntries)?;
        Ok(())
    }
}

/// How the bytes of a reply that go with its Send get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendBody {
    /// Copied behind the header: one SGE.
    Copied,
    /// Sent from where they are, each piece an SGE behind the header's.
    Mapped,
}

/// Decides on it. `header` and `body` are bytes, `body` without what chunks carry; `pieces` are the pieces of memory that
/// the body lies in, pages counted singly.
///
/// # Errors
/// [`SegmentError::ReplyTooLong`] when it has too many pieces to be sent from where it is, and is too long to be copied.
pub fn send_body(
    sizes: &super::EndpointSizes,
    header: u32,
    body: u32,
    pieces: u32,
) -> Result<SendBody, SegmentError> {
    let total = header.saturating_add(body);
    if total < PULLUP_THRESHOLD {
        Ok(SendBody::Copied)
    } else if pieces.saturating_add(1) < sizes.max_send_sges {
        Ok(SendBody::Mapped)
    } else if total > sizes.max_req_size {
        Err(SegmentError::ReplyTooLong)
    } else {
        Ok(SendBody::Copied)
    }
}

/// What a reply's header says of a chunk's segments: how many of `length` bytes were written to each.
pub fn written_lengths(segments: &[RemoteSegment], length: u64) -> impl Iterator<Item = u32> {
    segments.iter().scan(length, |left, segment| {
        let written = u32::try_from(*left).unwrap_or(u32::MAX).min(segment.length);
        *left -= u64::from(written);
        Some(written)
    })
}

#[cfg(test)]
mod tests;
