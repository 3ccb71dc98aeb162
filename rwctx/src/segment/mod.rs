//! The segment builder: contexts from a peer's segment lists and our pages.
//!
//! A peer names its memory by segments (address, key, length). [`SegmentBuilder::build_read_segment`] and its chunk forms
//! make a context for each segment, over a page array that a cursor goes through or over any list of pieces; a
//! [`ChunkCtx`] holds the contexts that are posted and completed together. Segments, pages and limits go in, contexts
//! come out: nothing here knows a clock, a socket or a header's bytes. All of a peer's lengths, offsets and positions are
//! checked; work and memory are bounded by the page array. After a list failed, what was built before stays with its
//! [`ChunkCtx`], to be destroyed with it. Behaviour follows Linux `svc_rdma` (`net/sunrpc/xprtrdma`), but for the
//! deviations that are marked.

mod cache;
mod cc;
mod error;
mod list;
mod pages;
mod pieces;
mod read;
mod reply;
mod sizes;
#[cfg(test)]
mod testing;
mod write;

pub use self::cache::CtxCache;
pub use self::cc::{ChunkCtx, Posting};
pub use self::error::{RecvAnswer, RecvFault, ReplyAnswer, ReplyStage, SegmentError};
pub use self::list::{ReadList, ReadSegment, invalidation_key};
pub use self::pages::{PAGE, Page, PageCursor};
pub use self::pieces::{PieceCursor, SegmentCursor, XdrBuf};
pub use self::read::Message;
pub use self::reply::{SendBody, SendChain, send_body, written_lengths};
pub use self::sizes::{EndpointConfig, EndpointSizes};
pub use self::write::{Payload, WriteChunk};

use crate::plan::{Bvec, Direction};
use crate::qp::RwQp;
use crate::remote::RemoteAddr;

/// Makes contexts for segments and adds them to a chunk context.
#[derive(Debug)]
pub struct SegmentBuilder<'a> {
    /// Where the contexts will be posted.
    pub qp: &'a RwQp,
    /// Where contexts come from.
    pub cache: &'a mut CtxCache,
    /// Where they go.
    pub cc: &'a mut ChunkCtx,
}

impl SegmentBuilder<'_> {
    /// Adds a context over the pieces that `fill` lists, `length` bytes. Returns the send-queue entries that it takes.
    fn add(
        &mut self,
        length: u32,
        remote: RemoteAddr,
        direction: Direction,
        fill: impl FnOnce(&mut Vec<Bvec>) -> Result<(), SegmentError>,
    ) -> Result<u32, SegmentError> {
        let mut segment = self.cache.get();
        if let Err(error) = fill(&mut segment.bvecs) {
            self.cache.put(segment);
            return Err(error);
        }
        self.cc.add(self.cache, self.qp, segment, length, remote, direction)
    }
}
