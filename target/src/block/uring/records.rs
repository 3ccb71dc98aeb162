//! Records between a bounce buffer, as the file stores them, and the buffers of an operation.
//!
//! Owns the two stored forms: metadata of the separate layout (tuples inverted) and blocks of the interleaved layout
//! (plain, each with its metadata). Copies, and decides nothing.

use super::super::file::FileBackend;
use super::super::io::{Io, IoOp};
use super::super::metadata::Metadata;
use super::super::pool::Buf;
use super::super::shared::Piece;
use super::super::volume::Layout;

/// A run of blocks of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Blocks of the operation before it.
    pub(super) skip: u32,
    /// Its blocks.
    pub(super) blocks: u32,
}

impl Run {
    fn cut<'b>(self, buf: Option<&'b Buf>, each: usize) -> Option<Piece<'b>> {
        buf.map(|buf| buf.piece().slice(self.skip as usize * each, self.blocks as usize * each))
    }
}

/// Fills `records` with what the operation writes there.
pub(super) fn fill(backend: &FileBackend, io: &Io, run: Run, records: &Piece<'_>) {
    let Some((metadata, layout)) = backend.metadata else {
        unreachable!("only volumes with metadata have records");
    };
    let data = run.cut(io.data.as_ref(), backend.block_size);
    let md = run.cut(io.md.as_ref(), metadata.size);
    match layout {
        Layout::Separate => match md {
            Some(md) => metadata.copy_inverted(&md, records),
            // Zero as hosts see it: stored, the tuple is all ones.
            None => metadata.fill_unwritten(records),
        },
        Layout::Interleaved => {
            for (block, md_of) in blocks(backend.block_size, metadata, run, records) {
                match &data {
                    Some(data) => block.data.copy_from(&data.slice(md_of.0, backend.block_size)),
                    None => block.data.fill(0),
                }
                match (&md, io.op) {
                    (Some(md), _) => block.md.copy_from(&md.slice(md_of.1, metadata.size)),
                    (None, IoOp::Deallocate) => metadata.fill_unwritten(&block.md),
                    (None, _) => block.md.fill(0),
                }
            }
        }
    }
}

/// Gives the operation what was read of `records`.
pub(super) fn extract(backend: &FileBackend, io: &Io, run: Run, records: &Piece<'_>) {
    let Some((metadata, layout)) = backend.metadata else {
        unreachable!("only volumes with metadata have records");
    };
    let data = run.cut(io.data.as_ref(), backend.block_size);
    let md = run.cut(io.md.as_ref(), metadata.size);
    match layout {
        Layout::Separate => {
            if let Some(md) = md {
                metadata.copy_inverted(records, &md);
            }
        }
        Layout::Interleaved => {
            for (block, at) in blocks(backend.block_size, metadata, run, records) {
                if let Some(data) = &data {
                    data.slice(at.0, backend.block_size).copy_from(&block.data);
                }
                if let Some(md) = &md {
                    md.slice(at.1, metadata.size).copy_from(&block.md);
                }
            }
        }
    }
}

/// A block and its metadata, interleaved.
struct Block<'r> {
    data: Piece<'r>,
    md: Piece<'r>,
}

/// Each block of interleaved records, and where its data and metadata are in buffers of their own.
fn blocks<'r>(
    block_size: usize,
    metadata: Metadata,
    run: Run,
    records: &Piece<'r>,
) -> impl Iterator<Item = (Block<'r>, (usize, usize))> {
    let stride = block_size + metadata.size;
    (0..run.blocks as usize).map(move |block| {
        let at = block * stride;
        let data = records.slice(at, block_size);
        let md = records.slice(at + block_size, metadata.size);
        (Block { data, md }, (block * block_size, block * metadata.size))
    })
}
