//! One memory region: what its key grants, and where its bytes lie.
//!
//! Registered memory is one piece. A fast registration maps pieces that stand one behind the other in its addresses: *runs*.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::integrity::Integrity;
use super::{Access, Iov, MemError, Pd, Region};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Not in use.
    Free,
    /// Registered memory.
    Plain,
    /// Granted by REG_MR work requests.
    FastReg,
    /// Granted by REG_MR_INTEGRITY work requests; without memory of its own.
    Integrity,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// Whether `key` is valid.
    pub(super) granted: bool,
    pub(super) key: u32,
    /// Steps on every allocation, so that an old `MrId` names nothing.
    pub(super) generation: u8,
    pub(super) pd: Pd,
    pub(super) access: Access,
    /// First byte, in this process and towards peers.
    pub(super) addr: u64,
    pub(super) length: u64,
    /// Where `addr` lies in `region`.
    pub(super) offset: usize,
    pub(super) region: Option<Arc<Region>>,
    /// Of a fast registration: pages of its list at most, and the runs of memory behind the first.
    pub(super) pages: u32,
    pub(super) more: Vec<Run>,
    /// Of an integrity region.
    pub(super) integrity: Option<Box<Integrity>>,
}

/// Memory in one piece that a fast registration maps behind other memory. Lists of pages lie in at most one per page, so that
/// the bytes of a packet lie in [`PACKET_PIECES`] at most.
#[derive(Debug)]
pub(super) struct Run {
    /// Where it begins, in bytes from the start of the registration.
    pub(super) at: u64,
    /// Where that lies in `region`.
    pub(super) offset: usize,
    pub(super) region: Arc<Region>,
}

/// Pieces that up to a page of bytes of one registration lie in: only its first and last may be shorter than a page.
pub(crate) const PACKET_PIECES: usize = 2;

impl Entry {
    /// Whether it is registered memory, and no registration over such.
    pub(super) fn is_plain(&self) -> bool {
        self.kind == Kind::Plain
    }

    /// Where the range lies in the region's memory.
    #[inline]
    pub(super) fn place(&self, addr: u64, length: u64) -> Result<usize, MemError> {
        let skip = addr.checked_sub(self.addr).ok_or(MemError::Range)?;
        let end = skip.checked_add(length).ok_or(MemError::Range)?;
        if end > self.length {
            return Err(MemError::Range);
        }
        let skip = usize::try_from(skip).map_err(|_| MemError::Range)?;
        Ok(self.offset + skip)
    }

    #[inline]
    pub(super) fn iov(&self, addr: u64, length: usize) -> Result<Iov<'_>, MemError> {
        let iov = self.first(addr, length)?;
        if iov.len() == length { Ok(iov) } else { Err(MemError::Pieces) }
    }

    /// The first piece of the range.
    #[inline]
    pub(super) fn first(&self, addr: u64, length: usize) -> Result<Iov<'_>, MemError> {
        let offset = self.place(addr, length as u64)?;
        if !self.more.is_empty() {
            let (region, offset, length) = self.piece(addr - self.addr, length)?;
            let base = region.ptr(offset, length).ok_or(MemError::Range)?;
            return Ok(Iov { base, length, life: PhantomData });
        }
        let region = self.region.as_ref().ok_or(MemError::Key)?;
        let base = region.ptr(offset, length).ok_or(MemError::Range)?;
        Ok(Iov { base, length, life: PhantomData })
    }

    #[inline]
    pub(super) fn write(&self, addr: u64, from: &[u8]) -> Result<(), MemError> {
        let offset = self.place(addr, from.len() as u64)?;
        if !self.more.is_empty() {
            return self.write_pieces(addr - self.addr, from);
        }
        self.region.as_ref().ok_or(MemError::Key)?.write(offset, from);
        Ok(())
    }

    #[cold]
    fn write_pieces(&self, mut skip: u64, mut from: &[u8]) -> Result<(), MemError> {
        while !from.is_empty() {
            let (region, offset, length) = self.piece(skip, from.len())?;
            let (now, later) = from.split_at(length);
            region.write(offset, now);
            skip += length as u64;
            from = later;
        }
        Ok(())
    }

    /// The run that has byte `skip`, where that lies in its memory, and how many of the `length` bytes from there on it has.
    fn piece(&self, skip: u64, length: usize) -> Result<(&Region, usize, usize), MemError> {
        let index = self.more.partition_point(|run| run.at <= skip);
        let end = self.more.get(index).map_or(self.length, |next| next.at);
        let (at, offset, region) = match index.checked_sub(1).map(|index| &self.more[index]) {
            None => (0, self.offset, self.region.as_ref().ok_or(MemError::Key)?),
            Some(run) => (run.at, run.offset, &run.region),
        };
        let within = usize::try_from(skip - at).map_err(|_| MemError::Range)?;
        let here = usize::try_from(end - skip).map_or(length, |here| here.min(length));
        Ok((region, offset + within, here))
    }

    /// Whether it maps a byte of this range of a region.
    pub(super) fn maps(&self, region: &Arc<Region>, range: &Range<usize>) -> bool {
        let first = self.region.iter().map(|region| (0, self.offset, region));
        let runs = || first.clone().chain(self.more.iter().map(|run| (run.at, run.offset, &run.region)));
        let ends = runs().skip(1).map(|(at, ..)| at).chain([self.length]);
        runs().zip(ends).any(|((at, offset, of), end)| {
            let end = offset as u64 + (end - at);
            Arc::ptr_eq(of, region) && (offset as u64) < range.end as u64 && (range.start as u64) < end
        })
    }

    /// Appends memory behind the `at` bytes that it has.
    pub(super) fn append(&mut self, at: u64, region: Arc<Region>, offset: usize) {
        let Some(first) = &self.region else {
            (self.region, self.offset) = (Some(region), offset);
            return;
        };
        let (last, end) = match self.more.last() {
            None => (first, self.offset as u64 + at),
            Some(run) => (&run.region, run.offset as u64 + (at - run.at)),
        };
        if !Arc::ptr_eq(last, &region) || end != offset as u64 {
            self.more.push(Run { at, offset, region });
        }
    }
}
