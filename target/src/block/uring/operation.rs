//! An operation on a file volume, and the row of its stages.
//!
//! Owns what an operation is while it is under way, and which stage follows which. Starts nothing.

#[cfg(feature = "_fault")]
use super::super::fault::PartFault;
use super::super::file::FileBackend;
use super::super::io::{Area, Io, IoError, IoOp};
use super::super::pool::Buf;
use super::super::volume::Layout;
use super::cover::Cover;
use super::edge::{Member, NIL};
use super::part::{Part, Work};

/// An operation under way.
pub(super) struct Operation {
    pub(super) io: Io,
    pub(super) stage: Stage,
    /// Blocks that earlier chunks of the Transfer stage have done.
    pub(super) done: u32,
    /// Blocks of this chunk.
    pub(super) chunk: u32,
    pub(super) cover: Cover,
    pub(super) bounce: Option<Buf>,
    /// On the data file, and on the file with the records.
    pub(super) parts: [Part; 2],
    /// Parts and edges that are not complete.
    pub(super) pending: u32,
    pub(super) error: Option<IoError>,
    /// The next member of the list that each edge is in.
    pub(super) next: [Member; 2],
    #[cfg(feature = "_fault")]
    pub(super) fault: Option<PartFault>,
}

/// A step of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Data and records move, or are written with a pattern.
    Transfer,
    /// Metadata becomes a hole.
    EmptyRecords,
    /// Data becomes a hole.
    EmptyData,
    /// Data becomes zero.
    ZeroData,
    /// What was written becomes durable.
    Sync,
}

impl Stage {
    /// The first step of an operation.
    pub(super) fn first(io: &Io) -> Self {
        match (io.op, layout(io)) {
            (IoOp::Flush, _) => Self::Sync,
            (IoOp::Read | IoOp::Write, _) | (_, Some(Layout::Interleaved)) => Self::Transfer,
            (IoOp::WriteZeroes, _) => Self::ZeroData,
            (IoOp::Deallocate, Some(Layout::Separate)) => Self::EmptyRecords,
            (IoOp::Deallocate, None) => Self::EmptyData,
        }
    }

    /// The step after this one; none after the last.
    pub(super) fn next(self, io: &Io) -> Option<Self> {
        let sync = io.fua.then_some(Self::Sync);
        match self {
            Self::ZeroData if layout(io).is_some() => Some(Self::Transfer),
            Self::ZeroData | Self::EmptyData => sync,
            // Its writes are durable one by one; what ZeroData did before is not.
            Self::Transfer if io.op == IoOp::WriteZeroes && layout(io) == Some(Layout::Separate) => sync,
            Self::EmptyRecords => Some(Self::EmptyData),
            Self::Transfer | Self::Sync => None,
        }
    }
}

impl Operation {
    /// An operation of which nothing is under way yet.
    pub(super) fn new(io: Io) -> Self {
        Self {
            stage: Stage::first(&io),
            io,
            done: 0,
            chunk: 0,
            cover: Cover::default(),
            bounce: None,
            parts: [Part::on_file(Work::Sync, 0, 0); 2],
            pending: 0,
            error: None,
            next: [NIL; 2],
            #[cfg(feature = "_fault")]
            fault: None,
        }
    }

    /// The block whose record is at `offset` of the file, or the chunk's first for what lies before it.
    pub(super) fn lba_of_record(&self, offset: u64, backend: &FileBackend) -> u64 {
        let first = self.io.slba + u64::from(self.done);
        let block = backend
            .records()
            .map_or(first, |records| offset.saturating_sub(records.base) / records.stride as u64);
        block.max(first)
    }

    /// Notes a failure, if it is the first by address.
    pub(super) fn fail(&mut self, errno: i32, lba: u64, area: Area) {
        if self.error.is_none_or(|error| lba < error.lba) {
            self.error = Some(IoError::from_errno(errno, lba, area));
        }
    }
}

fn layout(io: &Io) -> Option<Layout> {
    io.volume.protection().map(|protection| protection.layout)
}
