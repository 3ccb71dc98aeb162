//! Data that comes over registrations: blocks and tuples in turn, as on the wire, in a buffer of their own.
//!
//! Pages of a registration can't hold blocks and tuples that lie in two buffers. So they come to a third and are split then. A
//! registration with a signature can: its data needs none of this.

use rwctx::device::Device;
use rwctx::plan::{Direction, needs_mr};

use super::exec::Work;
use super::queue::Request;
use crate::nvmf::validate::{BlockOp, WireForm};
use crate::transport::core::Core;

impl Request {
    /// Whether its data comes over registrations, whose pages can't hold blocks and tuples in turn: then it comes to a buffer of
    /// its own.
    pub(super) fn needs_stream<D: Device>(&self, core: &Core<D>) -> bool {
        let Work::Io(io) = &self.work else { return false };
        let Some(plan) = io.blocks() else { return false };
        plan.wire == WireForm::Interleaved
            && !self.is_signed()
            && matches!(plan.op, BlockOp::Write | BlockOp::Compare)
            && self.dptr.is_in_host_memory()
            && needs_mr(&core.caps, Direction::FromHost, 2 * plan.blocks as usize)
    }

    /// Moves what came as on the wire to the buffers for data and metadata.
    pub(super) fn split_stream(&mut self) {
        let (Some(stream), Work::Io(io)) = (&self.stream, &self.work) else { return };
        let (bs, ms) = (io.volume().block_size() as usize, usize::from(io.volume().metadata_size()));
        let (Some(data), Some(md)) = (&mut self.data, &mut self.md) else { return };
        let blocks = data.bytes_mut().chunks_exact_mut(bs).zip(md.bytes_mut().chunks_exact_mut(ms));
        for ((block, tuple), from) in blocks.zip(stream.bytes().chunks_exact(bs + ms)) {
            block.copy_from_slice(&from[..bs]);
            tuple.copy_from_slice(&from[bs..]);
        }
    }
}
