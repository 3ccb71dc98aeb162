//! The memory regions of one device: turns keys into bytes, and nothing else does.
//!
//! Every use of a key is checked here: that it is current, that it belongs to the protection domain of the queue pair,
//! that the range lies inside, and that the right was given. A key is an index and a byte that steps whenever the index
//! is used again, so that a stale key names nothing (IBTA 10.6.3).

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use thiserror::Error;

use super::{Access, Iov, Lkey, Mr, MrId, Pd, Region};
use crate::device::DeviceError;
use crate::remote::Rkey;
use crate::wr::Sge;

const STEP_BITS: u32 = 8;
const STEP_MASK: u32 = (1 << STEP_BITS) - 1;

/// Most regions of a table: 24 bits of index, of which 0 is not used.
const MAX_REGIONS: u32 = (1 << (32 - STEP_BITS)) - 1;

/// Why a key does not lead to the bytes asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MemError {
    /// The key names no region of the protection domain, or one that was invalidated.
    #[error("unknown key")]
    Key,
    /// The range does not lie inside the region.
    #[error("range outside the region")]
    Range,
    /// The region does not grant this use.
    #[error("right not granted")]
    Rights,
    /// The region is in a state that does not allow this.
    #[error("region in the wrong state")]
    State,
}

/// What a peer does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Not in use.
    Free,
    /// Registered memory.
    Plain,
    /// Granted by REG_MR work requests.
    FastReg,
}

#[derive(Debug)]
struct Entry {
    kind: Kind,
    /// Whether `key` is valid.
    granted: bool,
    key: u32,
    /// Steps on every allocation, so that an old [`MrId`] names nothing.
    generation: u8,
    pd: Pd,
    access: Access,
    /// First byte, in this process and towards peers.
    addr: u64,
    length: u64,
    /// Where `addr` lies in `region`.
    offset: usize,
    region: Option<Arc<Region>>,
}

/// The memory regions of one device and their keys.
#[derive(Debug)]
pub struct MemTable {
    /// Index 0 is never given out, so that no key is 0.
    entries: Vec<Entry>,
    /// First in, first out: an index rests as long as possible before it is used again.
    free: VecDeque<u32>,
    /// Memory that lost its last registration in the middle of sending, until a region is deregistered.
    retired: Vec<Arc<Region>>,
    capacity: u32,
    next_pd: u32,
    live: u32,
}

impl Default for MemTable {
    fn default() -> Self {
        Self::new(MAX_REGIONS)
    }
}

impl MemTable {
    /// A table of at most `capacity` regions (1 to 2^24 - 1; larger values mean that).
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        let unused = Entry {
            kind: Kind::Free,
            granted: false,
            key: 0,
            generation: 0,
            pd: Pd(0),
            access: Access::default(),
            addr: 0,
            length: 0,
            offset: 0,
            region: None,
        };
        Self {
            entries: vec![unused],
            free: VecDeque::new(),
            retired: Vec::with_capacity(64),
            capacity: capacity.min(MAX_REGIONS),
            next_pd: 1,
            live: 0,
        }
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`DeviceError::NoResources`] after 2^32 - 1 of them.
    pub fn alloc_pd(&mut self) -> Result<Pd, DeviceError> {
        let pd = Pd(self.next_pd);
        self.next_pd = self.next_pd.checked_add(1).ok_or(DeviceError::NoResources("protection domains"))?;
        Ok(pd)
    }

    /// Registers `length` bytes of `region` from `offset`.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when the range is empty or lies outside, or when peers may write what local work
    /// requests may not; [`DeviceError::NoResources`].
    pub fn register(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<Mr, DeviceError> {
        if length == 0 || region.ptr(offset, length).is_none() {
            return Err(DeviceError::Invalid("range of the region"));
        }
        if access.remote_write && !access.local_write {
            return Err(DeviceError::Invalid("access: remote write needs local write"));
        }
        let index = self.allocate(pd, Kind::Plain)?;
        let entry = &mut self.entries[index as usize];
        entry.granted = true;
        entry.access = access;
        entry.addr = region.addr() + offset as u64;
        entry.length = length as u64;
        entry.offset = offset;
        entry.region = Some(Arc::clone(region));
        Ok(Self::describe(index, entry))
    }

    /// Makes a fast-registration region: its key is invalid until [`Self::fast_register`].
    ///
    /// # Errors
    /// [`DeviceError::NoResources`].
    pub fn alloc_fast_reg(&mut self, pd: Pd) -> Result<Mr, DeviceError> {
        let index = self.allocate(pd, Kind::FastReg)?;
        Ok(Self::describe(index, &self.entries[index as usize]))
    }

    /// Gives a fast-registration region memory: `length` bytes at `addr`, which lie in the region of `lkey`.
    ///
    /// # Errors
    /// When `mr` or `lkey` is unknown in `pd`, `mr` is not invalid at the time, `key` has another index than `mr`, the
    /// range lies outside, or the rights exceed those of the memory.
    #[expect(clippy::too_many_arguments, reason = "the fields of the REG_MR work request")]
    pub fn fast_register(
        &mut self,
        pd: Pd,
        mr: MrId,
        key: Rkey,
        access: Access,
        addr: u64,
        length: u32,
        lkey: Lkey,
    ) -> Result<(), MemError> {
        let index = self.index_of(mr).ok_or(MemError::Key)?;
        let target = &self.entries[index as usize];
        if target.kind != Kind::FastReg || target.pd != pd || key.0 >> STEP_BITS != index {
            return Err(MemError::Key);
        }
        if target.granted {
            return Err(MemError::State);
        }
        let memory = self.granted(pd, lkey.0)?;
        let offset = memory.place(addr, u64::from(length))?;
        if length == 0 {
            return Err(MemError::Range);
        }
        if (access.local_write || access.remote_write) && !memory.access.local_write {
            return Err(MemError::Rights);
        }
        let region = memory.region.clone();
        let target = &mut self.entries[index as usize];
        target.granted = true;
        target.key = key.0;
        target.access = access;
        target.addr = addr;
        target.length = u64::from(length);
        target.offset = offset;
        let before = std::mem::replace(&mut target.region, region);
        // Packets may still point there; whoever else holds it keeps it mapped.
        self.retired.extend(before.filter(|region| Arc::strong_count(region) == 1));
        Ok(())
    }

    /// Makes the key of a fast-registration region invalid, for local and remote users, at once.
    ///
    /// # Errors
    /// When it is no such key in `pd`.
    pub fn invalidate(&mut self, pd: Pd, key: Rkey) -> Result<(), MemError> {
        self.invalidatable(pd, key)?;
        self.entries[(key.0 >> STEP_BITS) as usize].granted = false;
        Ok(())
    }

    /// Whether [`Self::invalidate`] would take the key.
    ///
    /// # Errors
    /// When it is no valid key of a fast-registration region in `pd`.
    pub fn invalidatable(&self, pd: Pd, key: Rkey) -> Result<(), MemError> {
        let entry = self.granted(pd, key.0)?;
        if entry.kind == Kind::FastReg { Ok(()) } else { Err(MemError::State) }
    }

    /// Forgets a region; its key is invalid at once. The memory is let go of: no packet points to it any more.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`].
    pub fn deregister(&mut self, id: MrId) -> Result<(), DeviceError> {
        let index = self.index_of(id).ok_or(DeviceError::Unknown("memory region"))?;
        let entry = &mut self.entries[index as usize];
        entry.kind = Kind::Free;
        entry.granted = false;
        entry.region = None;
        self.retired.clear();
        self.free.push_back(index);
        self.live -= 1;
        Ok(())
    }

    /// Regions in use.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.live
    }

    /// Resolves `length` bytes at `addr` for reading by a local work request.
    ///
    /// # Errors
    /// See [`MemError`].
    #[inline]
    pub fn local(&self, pd: Pd, lkey: Lkey, addr: u64, length: usize) -> Result<Iov<'_>, MemError> {
        self.granted(pd, lkey.0)?.iov(addr, length)
    }

    /// Resolves `length` bytes at `addr` for an RDMA READ of a peer.
    ///
    /// # Errors
    /// See [`MemError`].
    #[inline]
    pub fn remote(&self, pd: Pd, rkey: Rkey, addr: u64, length: usize) -> Result<Iov<'_>, MemError> {
        let entry = self.granted(pd, rkey.0)?;
        if !entry.access.remote_read {
            return Err(MemError::Rights);
        }
        entry.iov(addr, length)
    }

    /// Whether a peer may do `what` to `length` bytes at `addr`. Zero bytes need no key (IBTA 9.4.2).
    ///
    /// # Errors
    /// See [`MemError`].
    pub fn check_remote(
        &self,
        pd: Pd,
        rkey: Rkey,
        addr: u64,
        length: u32,
        what: Remote,
    ) -> Result<(), MemError> {
        if length == 0 {
            return Ok(());
        }
        let entry = self.granted(pd, rkey.0)?;
        let right = match what {
            Remote::Read => entry.access.remote_read,
            Remote::Write => entry.access.remote_write,
        };
        if !right {
            return Err(MemError::Rights);
        }
        entry.place(addr, u64::from(length)).map(|_| ())
    }

    /// Executes a piece of an RDMA WRITE of a peer.
    ///
    /// # Errors
    /// See [`MemError`]; nothing was written then.
    #[inline]
    pub fn write_remote(&self, pd: Pd, rkey: Rkey, addr: u64, from: &[u8]) -> Result<(), MemError> {
        let entry = self.granted(pd, rkey.0)?;
        if !entry.access.remote_write {
            return Err(MemError::Rights);
        }
        entry.write(addr, from)
    }

    /// Resolves bytes `offset..offset + length` of the message that `sges` describe, for reading; returns how many of
    /// `to` were filled. A range behind the end of the message is cut off there.
    ///
    /// # Errors
    /// See [`MemError`].
    #[inline]
    pub fn gather<'m>(
        &'m self,
        pd: Pd,
        sges: &[Sge],
        offset: u32,
        length: usize,
        to: &mut [Iov<'m>],
    ) -> Result<usize, MemError> {
        let mut pieces = 0;
        for piece in pieces_of(sges, offset, length) {
            let (sge, skip, bytes) = piece;
            let addr = sge.addr.checked_add(u64::from(skip)).ok_or(MemError::Range)?;
            to[pieces] = self.local(pd, sge.lkey, addr, bytes)?;
            pieces += 1;
        }
        Ok(pieces)
    }

    /// Writes `from` to the bytes of the message that `sges` describe, starting `offset` bytes into it.
    ///
    /// # Errors
    /// See [`MemError`]; the pieces before the failing one were written then.
    #[inline]
    pub fn scatter(&self, pd: Pd, sges: &[Sge], offset: u32, from: &[u8]) -> Result<(), MemError> {
        let mut rest = from;
        for piece in pieces_of(sges, offset, from.len()) {
            let (sge, skip, bytes) = piece;
            let (now, later) = rest.split_at(bytes);
            rest = later;
            let addr = sge.addr.checked_add(u64::from(skip)).ok_or(MemError::Range)?;
            let entry = self.granted(pd, sge.lkey.0)?;
            if !entry.access.local_write {
                return Err(MemError::Rights);
            }
            entry.write(addr, now)?;
        }
        if rest.is_empty() { Ok(()) } else { Err(MemError::Range) }
    }

    #[inline]
    fn granted(&self, pd: Pd, key: u32) -> Result<&Entry, MemError> {
        match self.entries.get((key >> STEP_BITS) as usize) {
            Some(entry) if entry.granted && entry.key == key && entry.pd == pd => Ok(entry),
            _ => Err(MemError::Key),
        }
    }

    fn allocate(&mut self, pd: Pd, kind: Kind) -> Result<u32, DeviceError> {
        let index = if let Some(index) = self.free.pop_front() {
            index
        } else {
            let index = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
            if index > self.capacity {
                return Err(DeviceError::NoResources("memory regions"));
            }
            self.entries.push(Entry {
                kind: Kind::Free,
                granted: false,
                key: index << STEP_BITS,
                generation: 0,
                pd,
                access: Access::default(),
                addr: 0,
                length: 0,
                offset: 0,
                region: None,
            });
            index
        };
        let entry = &mut self.entries[index as usize];
        debug_assert_eq!(entry.kind, Kind::Free, "only unused entries are on the free list");
        entry.kind = kind;
        entry.granted = false;
        entry.key = (entry.key & !STEP_MASK) | (entry.key.wrapping_add(1) & STEP_MASK);
        entry.generation = entry.generation.wrapping_add(1);
        entry.pd = pd;
        entry.access = Access::default();
        (entry.addr, entry.length, entry.offset) = (0, 0, 0);
        self.live += 1;
        Ok(index)
    }

    fn index_of(&self, id: MrId) -> Option<u32> {
        let index = id.0 >> STEP_BITS;
        let entry = self.entries.get(index as usize)?;
        let current = entry.kind != Kind::Free && u32::from(entry.generation) == id.0 & STEP_MASK;
        current.then_some(index)
    }

    fn describe(index: u32, entry: &Entry) -> Mr {
        Mr {
            id: MrId(index << STEP_BITS | u32::from(entry.generation)),
            lkey: Lkey(entry.key),
            rkey: Rkey(entry.key),
            addr: entry.addr,
            length: entry.length,
        }
    }
}

impl Entry {
    /// Where the range lies in the region's memory.
    #[inline]
    fn place(&self, addr: u64, length: u64) -> Result<usize, MemError> {
        let skip = addr.checked_sub(self.addr).ok_or(MemError::Range)?;
        let end = skip.checked_add(length).ok_or(MemError::Range)?;
        if end > self.length {
            return Err(MemError::Range);
        }
        let skip = usize::try_from(skip).map_err(|_| MemError::Range)?;
        Ok(self.offset + skip)
    }

    #[inline]
    fn iov(&self, addr: u64, length: usize) -> Result<Iov<'_>, MemError> {
        let offset = self.place(addr, length as u64)?;
        let region = self.region.as_ref().ok_or(MemError::Key)?;
        let base = region.ptr(offset, length).ok_or(MemError::Range)?;
        Ok(Iov { base, length, life: PhantomData })
    }

    #[inline]
    fn write(&self, addr: u64, from: &[u8]) -> Result<(), MemError> {
        let offset = self.place(addr, from.len() as u64)?;
        self.region.as_ref().ok_or(MemError::Key)?.write(offset, from);
        Ok(())
    }
}

/// The pieces of `sges` that hold bytes `offset..offset + length` of the message: the entry, the bytes of it to skip,
/// and the bytes of it to use.
#[inline]
fn pieces_of(sges: &[Sge], offset: u32, length: usize) -> impl Iterator<Item = (&Sge, u32, usize)> {
    let mut skip = offset;
    let mut left = length;
    sges.iter().filter_map(move |sge| {
        if left == 0 {
            return None;
        }
        if skip >= sge.length {
            skip -= sge.length;
            return None;
        }
        let start = std::mem::take(&mut skip);
        let bytes = left.min((sge.length - start) as usize);
        left -= bytes;
        Some((sge, start, bytes))
    })
}
