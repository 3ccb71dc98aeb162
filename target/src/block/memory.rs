//! Volumes in memory.
//!
//! Owns the regions that hold data and metadata, how blocks lie in them, and growth and shrinking. Metadata is in
//! its stored form (see [`super::metadata`]), so that memory which nobody touched reads as blocks that nobody wrote.
//! In the separate layout the data of blocks is contiguous and plain: it can be sent from where it lies. Never locks:
//! that nobody else uses a block is what the range lock of the caller says.
//!
//! Growing appends a *segment* with regions of its own; what exists stays where it is, for devices have it
//! registered. Shrinking keeps the segments and empties the blocks beyond the new end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rwctx::mem::Region;

use super::metadata::Metadata;
use super::shared::Piece;
use super::volume::Layout;

/// The backend of a memory volume.
#[derive(Debug)]
pub(super) struct MemoryBackend {
    block_size: usize,
    metadata: Option<(Metadata, Layout)>,
    /// In order of their blocks, without a gap.
    segments: Box<[OnceLock<Segment>]>,
    /// Blocks that the segments hold.
    capacity: AtomicU64,
}

/// Memory of a run of blocks.
#[derive(Debug)]
pub(super) struct Segment {
    first: u64,
    blocks: u64,
    /// Data, or in the interleaved layout data and metadata.
    data: Arc<Region>,
    /// Metadata, in the separate layout.
    metadata: Option<Region>,
}

/// What is done with a run of blocks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Transfer<'b> {
    /// From the volume to the buffers.
    Read { data: Option<Piece<'b>>, md: Option<Piece<'b>> },
    /// From the buffers to the volume.
    Write { data: Option<Piece<'b>>, md: Option<Piece<'b>> },
    /// Data becomes zero, metadata what the buffer has, or zero.
    Zero { md: Option<Piece<'b>> },
    /// Becomes blocks that nobody wrote.
    Deallocate,
}

/// How often a volume may grow.
const SEGMENTS: usize = 256;

impl MemoryBackend {
    pub(super) fn new(
        block_size: u32,
        metadata: Option<(Metadata, Layout)>,
        blocks: u64,
    ) -> nix::Result<Self> {
        let backend = Self {
            block_size: block_size as usize,
            metadata,
            segments: (0..SEGMENTS).map(|_| OnceLock::new()).collect(),
            capacity: AtomicU64::new(0),
        };
        if let Some(segment) = backend.prepare(blocks)? {
            backend.add(segment);
        }
        Ok(backend)
    }

    /// The memory that `blocks` blocks in all need besides what there is, to be [added](Self::add). One caller at a time.
    ///
    /// # Errors
    /// `ENOMEM` when the memory can't be mapped, `ENOSPC` after 256 times.
    pub(super) fn prepare(&self, blocks: u64) -> nix::Result<Option<Segment>> {
        let first = self.capacity.load(Ordering::Acquire);
        if blocks <= first {
            return Ok(None);
        }
        if self.segments.iter().all(|place| place.get().is_some()) {
            return Err(nix::Error::ENOSPC);
        }
        self.segment(first, blocks - first).map(Some)
    }

    /// Adds memory that was prepared, and nothing was added since.
    pub(super) fn add(&self, segment: Segment) {
        let end = segment.first + segment.blocks;
        assert_eq!(
            segment.first,
            self.capacity.load(Ordering::Acquire),
            "one caller at a time grows a volume"
        );
        let place = self.segments.iter().find(|place| place.get().is_none());
        let place = place.expect("there was a place when the segment was prepared");
        place.set(segment).expect("one caller at a time grows a volume");
        self.capacity.store(end, Ordering::Release);
    }

    /// Blocks that there is room for.
    pub(super) fn blocks(&self) -> u64 {
        self.capacity.load(Ordering::Acquire)
    }

    fn segment(&self, first: u64, blocks: u64) -> nix::Result<Segment> {
        let region = |each: usize| {
            let bytes = usize::try_from(blocks).ok().and_then(|blocks| blocks.checked_mul(each));
            Region::new(bytes.ok_or(nix::Error::ENOMEM)?)
        };
        let (data, metadata) = match &self.metadata {
            None => (region(self.block_size)?, None),
            Some((metadata, Layout::Interleaved)) => (region(self.block_size + metadata.size)?, None),
            Some((metadata, Layout::Separate)) => (region(self.block_size)?, Some(region(metadata.size)?)),
        };
        Ok(Segment { first, blocks, data: Arc::new(data), metadata })
    }

    /// Carries out `transfer` on `blocks` blocks from `slba`. The caller's range lock covers them, and they exist.
    pub(super) fn transfer(&self, slba: u64, blocks: u64, transfer: Transfer<'_>) {
        let mut done = 0;
        for segment in self.segments.iter().map_while(OnceLock::get) {
            let at = slba + done;
            if done == blocks || at >= segment.first + segment.blocks {
                continue;
            }
            let here = (blocks - done).min(segment.first + segment.blocks - at);
            let run = Run { first: index(at - segment.first), blocks: index(here) };
            self.in_segment(segment, run, self.part(transfer, index(done), run.blocks));
            done += here;
        }
        assert_eq!(done, blocks, "the caller checked that the blocks exist");
    }

    /// The part of the buffers for `blocks` blocks after `done` blocks.
    fn part<'b>(&self, transfer: Transfer<'b>, done: usize, blocks: usize) -> Transfer<'b> {
        let cut = |piece: Option<Piece<'b>>, each: usize| {
            piece.map(|piece| piece.slice(done * each, blocks * each))
        };
        let (block, meta) = (self.block_size, self.metadata.map_or(0, |(metadata, _)| metadata.size));
        match transfer {
            Transfer::Read { data, md } => Transfer::Read { data: cut(data, block), md: cut(md, meta) },
            Transfer::Write { data, md } => Transfer::Write { data: cut(data, block), md: cut(md, meta) },
            Transfer::Zero { md } => Transfer::Zero { md: cut(md, meta) },
            Transfer::Deallocate => Transfer::Deallocate,
        }
    }

    fn in_segment(&self, segment: &Segment, run: Run, transfer: Transfer<'_>) {
        match (&self.metadata, &segment.metadata) {
            (None, _) => self.data_run(segment, run, transfer),
            (Some((metadata, _)), Some(region)) => {
                self.data_run(segment, run, transfer);
                let stored = Piece::new(region, run.first * metadata.size, run.blocks * metadata.size);
                self.metadata_run(*metadata, &stored, transfer);
            }
            (Some((metadata, _)), None) => self.interleaved_run(segment, *metadata, run, transfer),
        }
    }

    fn data_run(&self, segment: &Segment, run: Run, transfer: Transfer<'_>) {
        let stored = Piece::new(&segment.data, run.first * self.block_size, run.blocks * self.block_size);
        match transfer {
            Transfer::Read { data: Some(data), .. } => data.copy_from(&stored),
            Transfer::Write { data: Some(data), .. } => stored.copy_from(&data),
            Transfer::Read { data: None, .. } | Transfer::Write { data: None, .. } => {}
            Transfer::Zero { .. } | Transfer::Deallocate => self.empty(&stored),
        }
    }

    fn metadata_run(&self, metadata: Metadata, stored: &Piece<'_>, transfer: Transfer<'_>) {
        match transfer {
            Transfer::Read { md: Some(md), .. } => metadata.copy_inverted(stored, &md),
            Transfer::Write { md: Some(md), .. } | Transfer::Zero { md: Some(md) } => {
                metadata.copy_inverted(&md, stored);
            }
            Transfer::Read { md: None, .. } | Transfer::Write { md: None, .. } => {}
            // All zero as hosts see it is, stored, what a block that nobody wrote is to hosts.
            Transfer::Zero { md: None } => metadata.fill_unwritten(stored),
            Transfer::Deallocate => self.empty(stored),
        }
    }

    fn interleaved_run(&self, segment: &Segment, metadata: Metadata, run: Run, transfer: Transfer<'_>) {
        let stride = self.block_size + metadata.size;
        if matches!(transfer, Transfer::Deallocate) {
            self.empty(&Piece::new(&segment.data, run.first * stride, run.blocks * stride));
            return;
        }
        for block in 0..run.blocks {
            let at = (run.first + block) * stride;
            let one = self.part(transfer, block, 1);
            let data = Piece::new(&segment.data, at, self.block_size);
            match one {
                Transfer::Read { data: Some(to), .. } => to.copy_from(&data),
                Transfer::Write { data: Some(from), .. } => data.copy_from(&from),
                Transfer::Zero { .. } => data.fill(0),
                Transfer::Read { .. } | Transfer::Write { .. } | Transfer::Deallocate => {}
            }
            let stored = Piece::new(&segment.data, at + self.block_size, metadata.size);
            self.metadata_run(metadata, &stored, one);
        }
    }

    fn empty(&self, stored: &Piece<'_>) {
        if stored.len() < DISCARD_FROM {
            stored.fill(0);
        } else {
            stored.discard();
        }
    }

    fn segment_of(&self, slba: u64) -> Option<&Segment> {
        let mut segments = self.segments.iter().map_while(OnceLock::get);
        segments.find(|segment| slba >= segment.first && slba - segment.first < segment.blocks)
    }

    /// Where the data of blocks lies, if contiguous and without metadata between: region, offset, bytes.
    pub(super) fn contiguous(&self, slba: u64, blocks: u64) -> Option<(&Arc<Region>, usize, usize)> {
        if matches!(self.metadata, Some((_, Layout::Interleaved))) {
            return None;
        }
        let segment = self.segment_of(slba)?;
        let first = slba - segment.first;
        (blocks <= segment.blocks - first)
            .then(|| (&segment.data, index(first) * self.block_size, index(blocks) * self.block_size))
    }

    /// The metadata of blocks of one segment, of the separate layout, as hosts see it.
    pub(super) fn read_metadata(&self, slba: u64, blocks: u64, to: &mut Vec<u8>) {
        let segment = self.segment_of(slba).expect("the caller looked for shared data");
        let (Some(region), Some((metadata, _))) = (&segment.metadata, &self.metadata) else {
            panic!("metadata lies apart where data is shared");
        };
        let first = index(slba - segment.first);
        to.resize(index(blocks) * metadata.size, 0);
        Piece::new(region, first * metadata.size, to.len()).read(to);
        metadata.invert(0, to);
    }

    /// Asks the processor for the metadata of blocks where that lies apart.
    pub(super) fn prefetch_metadata(&self, slba: u64, blocks: u64) {
        if let Some(segment) = self.segment_of(slba)
            && let (Some((metadata, _)), Some(region)) = (&self.metadata, &segment.metadata)
        {
            let first = index(slba - segment.first);
            let blocks = index(blocks.min(segment.blocks - (slba - segment.first)));
            Piece::new(region, first * metadata.size, blocks * metadata.size).prefetch();
        }
    }

    /// Flips bits of a stored block, as a failing medium would.
    #[cfg(feature = "_fault")]
    pub(super) fn corrupt(&self, lba: u64, place: super::fault::Place, mask: u8) {
        let (region, at) = self.place(lba, place);
        let mut byte = [0];
        region.read(at, &mut byte);
        region.write(at, &[byte[0] ^ mask]);
    }

    /// Copies a stored block, and its metadata in the form that hosts see.
    #[cfg(feature = "_fault")]
    pub(super) fn stored(&self, lba: u64, data: &mut [u8], md: &mut [u8]) {
        use super::fault::Place;
        let (region, at) = self.place(lba, Place::Data(0));
        region.read(at, data);
        if let Some((metadata, _)) = &self.metadata {
            let (region, at) = self.place(lba, Place::Metadata(0));
            region.read(at, md);
            metadata.invert(0, md);
        }
    }

    /// Makes a stored block that; `md` is in the form that hosts see, and is inverted.
    #[cfg(feature = "_fault")]
    pub(super) fn store(&self, lba: u64, data: &[u8], md: &mut [u8]) {
        use super::fault::Place;
        let (region, at) = self.place(lba, Place::Data(0));
        region.write(at, data);
        if let Some((metadata, _)) = &self.metadata {
            metadata.invert(0, md);
            let (region, at) = self.place(lba, Place::Metadata(0));
            region.write(at, md);
        }
    }

    /// Where a byte of a stored block is.
    #[cfg(feature = "_fault")]
    fn place(&self, lba: u64, place: super::fault::Place) -> (&Region, usize) {
        use super::fault::Place;
        let segment = self.segment_of(lba).expect("the block exists");
        let block = index(lba - segment.first);
        match (place, &self.metadata, &segment.metadata) {
            (Place::Data(byte), Some((metadata, Layout::Interleaved)), _) => {
                (&*segment.data, block * (self.block_size + metadata.size) + byte)
            }
            (Place::Data(byte), _, _) => (&*segment.data, block * self.block_size + byte),
            (Place::Metadata(byte), Some((metadata, _)), Some(region)) => {
                (region, block * metadata.size + byte)
            }
            (Place::Metadata(byte), Some((metadata, _)), None) => {
                (&*segment.data, block * (self.block_size + metadata.size) + self.block_size + byte)
            }
            (Place::Metadata(_), None, _) => panic!("the volume has no metadata"),
        }
    }
}

/// Below this many bytes clearing is cheaper than giving pages back and faulting them in again.
const DISCARD_FROM: usize = 256 * 1024;

#[derive(Clone, Copy)]
struct Run {
    first: usize,
    blocks: usize,
}

fn index(blocks: u64) -> usize {
    usize::try_from(blocks).expect("blocks of a region fit the address space")
}
