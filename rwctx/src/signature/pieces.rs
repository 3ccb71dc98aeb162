//! Where the bytes of a transfer lie: positions on the wire, and blocks, as spans of the lists that describe memory.

use crate::wr::Sge;

/// How memory holds the blocks of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Data alone.
    Bare,
    /// Data in one list, metadata in another.
    Separate,
    /// Each block's metadata behind it, in one list.
    Interleaved,
}

/// Where the metadata on the wire comes from, or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireMetadata {
    /// There is none.
    None,
    /// It is that in memory.
    OfMemory,
    /// It is held apart, one block's behind the other's.
    Apart,
}

/// Where a span lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the data list.
    Data,
    /// In the protection list.
    Protection,
    /// In the metadata that is held apart.
    Apart,
}

/// Bytes of one place, in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) place: Place,
    /// From the start of the place, in bytes.
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// How the blocks of a transfer lie in memory and on the wire. A transfer has at most 2^31 bytes on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// User data of a block.
    pub(crate) block: u32,
    /// Metadata of a block.
    pub(crate) metadata: u32,
    pub(crate) memory: Memory,
    pub(crate) wire: WireMetadata,
}

impl Shape {
    /// Whether data and metadata lie in one list.
    pub(crate) fn is_interleaved(&self) -> bool {
        self.memory == Memory::Interleaved
    }

    /// Bytes of a block on the wire.
    pub(crate) fn wire_block(&self) -> u32 {
        if self.wire == WireMetadata::None { self.block } else { self.block + self.metadata }
    }

    /// Bytes `offset..offset + length` of what is on the wire, in order.
    pub(crate) fn on_wire(self, offset: u32, length: u32) -> impl Iterator<Item = Span> {
        let end = offset + length;
        let mut at = offset;
        std::iter::from_fn(move || {
            if at == end {
                return None;
            }
            let span = self.span_at(at, end - at);
            at += span.length;
            Some(span)
        })
    }

    /// At most `most` bytes from position `at` of the wire on, as far as they lie in a row.
    fn span_at(&self, at: u32, most: u32) -> Span {
        let in_a_row = match self.wire {
            WireMetadata::None => self.memory != Memory::Interleaved,
            WireMetadata::OfMemory => self.memory == Memory::Interleaved,
            WireMetadata::Apart => false,
        };
        if in_a_row {
            return Span { place: Place::Data, offset: at, length: most };
        }
        let (block, within) = (at / self.wire_block(), at % self.wire_block());
        let span = match within.checked_sub(self.block) {
            None => self.data_of(block, within),
            Some(skip) if self.wire == WireMetadata::Apart => self.apart(block, 1).skip(skip),
            Some(skip) => self.metadata_of(block).skip(skip),
        };
        Span { length: span.length.min(most), ..span }
    }

    /// The user data of `count` blocks from `first` on, in order.
    pub(crate) fn data(self, first: u32, count: u32) -> impl Iterator<Item = Span> {
        let interleaved = self.memory == Memory::Interleaved;
        let (spans, unit) = if interleaved { (count, 1) } else { (1, count) };
        (0..spans).map(move |index| {
            let span = self.data_of(first + index, 0);
            Span { length: unit * self.block, ..span }
        })
    }

    /// The metadata in memory of `count` blocks from `first` on, in order.
    pub(crate) fn metadata(self, first: u32, count: u32) -> impl Iterator<Item = Span> {
        let interleaved = self.memory == Memory::Interleaved;
        let (spans, unit) = if interleaved { (count, 1) } else { (1, count) };
        (0..spans).map(move |index| {
            let span = self.metadata_of(first + index);
            Span { length: unit * self.metadata, ..span }
        })
    }

    /// The metadata that is held apart, of `count` blocks from `first` on.
    pub(crate) fn apart(self, first: u32, count: u32) -> Span {
        Span { place: Place::Apart, offset: first * self.metadata, length: count * self.metadata }
    }

    /// The user data of a block without its first `skip` bytes.
    fn data_of(&self, block: u32, skip: u32) -> Span {
        let stride = if self.memory == Memory::Interleaved { self.block + self.metadata } else { self.block };
        Span { place: Place::Data, offset: block * stride + skip, length: self.block - skip }
    }

    /// The metadata in memory of a block.
    fn metadata_of(&self, block: u32) -> Span {
        let (place, offset) = match self.memory {
            Memory::Interleaved => (Place::Data, block * (self.block + self.metadata) + self.block),
            Memory::Separate | Memory::Bare => (Place::Protection, block * self.metadata),
        };
        Span { place, offset, length: self.metadata }
    }
}

/// The pieces of `list` that a span covers, in order.
pub(crate) fn cut(list: &[Sge], span: Span) -> impl Iterator<Item = Sge> {
    let (mut skip, mut left) = (span.offset, span.length);
    list.iter().filter_map(move |sge| {
        if skip >= sge.length {
            skip -= sge.length;
            return None;
        }
        let length = left.min(sge.length - skip);
        let piece = Sge { addr: sge.addr + u64::from(skip), length, lkey: sge.lkey };
        (skip, left) = (0, left - length);
        (length > 0).then_some(piece)
    })
}

impl Span {
    /// Without its first `bytes`.
    fn skip(self, bytes: u32) -> Self {
        Self { offset: self.offset + bytes, length: self.length - bytes, ..self }
    }
}
