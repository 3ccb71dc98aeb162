//! Contexts that are used again and again, so that steady state allocates none.

use crate::ctx::RwCtx;
use crate::plan::Bvec;

/// A context for one segment, and its pieces of local memory (Linux `struct svc_rdma_rw_ctxt`).
#[derive(Debug, Default)]
pub(super) struct SegmentCtx {
    pub(super) ctx: RwCtx,
    pub(super) bvecs: Vec<Bvec>,
}

/// Contexts that nobody uses at present. It makes new ones when it has none.
#[derive(Debug)]
pub struct CtxCache {
    free: Vec<SegmentCtx>,
    kept_bvecs: usize,
    kept_contexts: usize,
    /// Pieces of what is being written.
    pub(super) pieces: Vec<Bvec>,
}

impl CtxCache {
    /// An empty cache, which will keep `kept_contexts` contexts at most. One that had more than `kept_bvecs` pieces gives
    /// the room for more back after its use.
    #[must_use]
    pub fn new(kept_bvecs: usize, kept_contexts: usize) -> Self {
        Self { free: Vec::new(), kept_bvecs, kept_contexts, pieces: Vec::new() }
    }

    /// Contexts that are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    pub(super) fn get(&mut self) -> SegmentCtx {
        self.free.pop().unwrap_or_default()
    }

    /// Takes a context back, which is destroyed.
    pub(super) fn put(&mut self, mut segment: SegmentCtx) {
        segment.ctx.destroy();
        if self.free.len() >= self.kept_contexts {
            return;
        }
        segment.ctx.shrink_to(self.kept_bvecs);
        segment.bvecs.clear();
        segment.bvecs.shrink_to(self.kept_bvecs);
        self.free.push(segment);
    }
}
