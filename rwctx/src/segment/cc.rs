//! The chunk context: contexts of several segments that are posted as one and complete as one.

use super::SegmentError;
use super::cache::{CtxCache, SegmentCtx};
use crate::ctx::Completion;
use crate::device::{Device, Qpn};
use crate::plan::{BvecIter, Direction};
use crate::qp::RwQp;
use crate::remote::RemoteAddr;
use crate::sq::{SqCredits, Take};
use crate::wr::SendWr;

/// Contexts that belong together (Linux `struct svc_rdma_chunk_ctxt`). Life: a builder adds contexts; [`Self::take_credits`],
/// [`Self::post`], [`Self::complete`] when the completion was seen, [`Self::destroy`]. Then it is empty, and can be used again.
#[derive(Debug, Default)]
pub struct ChunkCtx {
    /// In the order of their construction, which is that of posting.
    ctxs: Vec<SegmentCtx>,
    sqecount: u32,
}

/// How much of a chunk context the device took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posting {
    /// All; one completion comes.
    All,
    /// A part: the queue pair failed meanwhile. What was posted completes as flushed; the connection is to be closed.
    Partly,
}

impl ChunkCtx {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it has no contexts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ctxs.is_empty()
    }

    /// Its contexts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ctxs.len()
    }

    /// Send-queue entries that it takes.
    #[must_use]
    pub fn sqecount(&self) -> u32 {
        self.sqecount
    }

    /// Whether the device may still use its memory.
    #[must_use]
    pub fn is_posted(&self) -> bool {
        self.ctxs.iter().any(|segment| segment.ctx.is_posted())
    }

    /// Makes a context of a segment's pieces and adds it. Returns the send-queue entries that it takes.
    pub(super) fn add(
        &mut self,
        cache: &mut CtxCache,
        qp: &RwQp,
        mut segment: SegmentCtx,
        length: u32,
        remote: RemoteAddr,
        direction: Direction,
    ) -> Result<u32, SegmentError> {
        let iter = BvecIter { index: 0, done: 0, size: length };
        let planned = segment.ctx.init_bvec(qp, &segment.bvecs, iter, remote, direction);
        let added = planned.map_err(SegmentError::Context).and_then(|wqes| {
            self.sqecount = self.sqecount.checked_add(wqes).ok_or(SegmentError::TooManyEntries)?;
            Ok(wqes)
        });
        match added {
            Ok(_) => self.ctxs.push(segment),
            Err(_) => cache.put(segment),
        }
        added
    }

    /// Takes the credits for all of its work requests, or queues `waiter` for them. Returns whether they are there.
    ///
    /// # Errors
    /// [`SegmentError::TooManyEntries`] when the send queue has not as many in all, [`SegmentError::NotConnected`] when it
    /// is closed.
    pub fn take_credits<T>(&self, credits: &mut SqCredits<T>, waiter: T) -> Result<bool, SegmentError> {
        match credits.take(waiter, self.sqecount) {
            Take::Taken => Ok(true),
            Take::Queued => Ok(false),
            Take::TooMany => Err(SegmentError::TooManyEntries),
            Take::Closed => Err(SegmentError::NotConnected),
        }
    }

    /// The work requests in posting order; call it once after building. Only the last of the last segment is signaled, if
    /// any.
    ///
    /// # Panics
    /// As [`crate::ctx::RwCtx::wrs`] when they were handed out before.
    pub fn wrs(&mut self, completion: Completion) -> impl Iterator<Item = SendWr<'_>> {
        let last = self.ctxs.len().saturating_sub(1);
        self.ctxs.iter_mut().enumerate().flat_map(move |(index, segment)| {
            segment.ctx.wrs(if index == last { completion } else { chained(completion) })
        })
    }

    /// Posts all work requests. The caller holds the credits for them.
    ///
    /// # Errors
    /// [`SegmentError::NotConnected`] when the device took nothing: the credits are to be given back, and no completion comes.
    pub fn post<D: Device>(
        &mut self,
        device: &mut D,
        qpn: Qpn,
        completion: Completion,
    ) -> Result<Posting, SegmentError> {
        let last = self.ctxs.len().saturating_sub(1);
        for (index, segment) in self.ctxs.iter_mut().enumerate() {
            let completion = if index == last { completion } else { chained(completion) };
            if segment.ctx.post(device, qpn, completion).is_err() {
                return if index > 0 || segment.ctx.is_posted() {
                    Ok(Posting::Partly)
                } else {
                    Err(SegmentError::NotConnected)
                };
            }
        }
        Ok(Posting::All)
    }

    /// Tells that the last completion was seen (or that the queue pair was destroyed, so that none will come).
    pub fn complete(&mut self) {
        for segment in &mut self.ctxs {
            segment.ctx.complete();
        }
    }

    /// Ends the use: its contexts go back to the cache. It is empty then, and destroying it again does nothing.
    ///
    /// # Panics
    /// In debug builds, when it was posted and its completion was not seen.
    pub fn destroy(&mut self, cache: &mut CtxCache) {
        self.sqecount = 0;
        for segment in self.ctxs.drain(..) {
            cache.put(segment);
        }
    }
}

/// The same name, on errors alone.
fn chained(completion: Completion) -> Completion {
    let (Completion::Own(wr_id) | Completion::Chained(wr_id)) = completion;
    Completion::Chained(wr_id)
}
