//! The memory regions of one device: turns keys into bytes, and nothing else does.
//!
//! Every use of a key is checked here: that it is current, that it belongs to the protection domain of the queue pair,
//! that the range lies inside, and that the right was given. A key is an index and a byte that steps whenever the index
//! is used again, so that a stale key names nothing (IBTA 10.6.3).

use std::collections::VecDeque;
use std::sync::Arc;

use thiserror::Error;

use super::entry::{Entry, Kind};
use super::integrity::Integrity;
use super::{Access, Iov, Lkey, Mr, MrId, PageList, Pd, Region};
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
    /// The bytes lie in more pieces than there is room for.
    #[error("too many pieces")]
    Pieces,
}

/// Which right the memory that READ responses go to has to grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sinks {
    /// Local write.
    #[default]
    Local,
    /// Remote write as well: iWARP names the sink to the peer, which writes there.
    Remote,
}

/// What a peer does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remote {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
}

/// The memory regions of one device and their keys.
#[derive(Debug)]
pub struct MemTable {
    /// Index 0 is never given out, so that no key is 0.
    pub(super) entries: Vec<Entry>,
    /// First in, first out: an index rests as long as possible before it is used again.
    free: VecDeque<u32>,
    /// Memory that lost its last registration in the middle of sending, until a region is deregistered.
    pub(super) retired: Vec<Arc<Region>>,
    sinks: Sinks,
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
            pages: 0,
            more: Vec::new(),
            integrity: None,
        };
        Self {
            entries: vec![unused],
            free: VecDeque::new(),
            retired: Vec::with_capacity(64),
            sinks: Sinks::Local,
            capacity: capacity.min(MAX_REGIONS),
            next_pd: 1,
            live: 0,
        }
    }

    /// The same table with another rule for the memory that READ responses go to.
    #[must_use]
    pub fn with_sinks(self, sinks: Sinks) -> Self {
        Self { sinks, ..self }
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

    /// Makes a fast-registration region for lists of `pages` pages: its key is invalid until [`Self::fast_register`].
    ///
    /// # Errors
    /// [`DeviceError::NoResources`].
    pub fn alloc_fast_reg(&mut self, pd: Pd, pages: u32) -> Result<Mr, DeviceError> {
        let index = self.allocate(pd, Kind::FastReg)?;
        let entry = &mut self.entries[index as usize];
        entry.pages = pages;
        Ok(Self::describe(index, entry))
    }

    /// Makes an integrity region whose lists have at most `pages` pages each: its key is invalid until
    /// [`Self::register_integrity`].
    ///
    /// # Errors
    /// [`DeviceError::NoResources`].
    pub fn alloc_integrity(&mut self, pd: Pd, pages: u32) -> Result<Mr, DeviceError> {
        let index = self.allocate(pd, Kind::Integrity)?;
        let entry = &mut self.entries[index as usize];
        entry.integrity = Some(Box::new(Integrity::new(pages)));
        Ok(Self::describe(index, entry))
    }

    /// Gives a fast-registration region the memory of `list`, one piece behind the other from the address of its first byte.
    ///
    /// # Errors
    /// When `mr` or a local key is unknown in `pd`, `mr` is not invalid at the time, `key` has another index than `mr`, a piece
    /// lies outside its memory, the pieces don't fit the region's pages ([`PageList`]), or the rights exceed those of the memory.
    pub fn fast_register(
        &mut self,
        pd: Pd,
        mr: MrId,
        key: Rkey,
        access: Access,
        list: impl Iterator<Item = Sge> + Clone,
    ) -> Result<(), MemError> {
        let index = self.index_of(mr).ok_or(MemError::Key)?;
        let target = &self.entries[index as usize];
        if target.kind != Kind::FastReg || target.pd != pd || key.0 >> STEP_BITS != index {
            return Err(MemError::Key);
        }
        if target.granted {
            return Err(MemError::State);
        }
        let mut pages = PageList::default();
        for sge in list.clone() {
            let memory = self.granted(pd, sge.lkey.0)?;
            if memory.kind != Kind::Plain {
                return Err(MemError::Key);
            }
            memory.place(sge.addr, u64::from(sge.length))?;
            if (access.local_write || access.remote_write) && !memory.access.local_write {
                return Err(MemError::Rights);
            }
            if sge.length == 0 || !pages.push(sge.addr, sge.length, target.pages) {
                return Err(MemError::Range);
            }
        }
        let first = list.clone().next().ok_or(MemError::Range)?;
        self.let_go(index);
        let mut at = 0;
        for sge in list {
            let memory = self.granted(pd, sge.lkey.0)?;
            let offset = memory.place(sge.addr, u64::from(sge.length))?;
            let region = Arc::clone(memory.region.as_ref().ok_or(MemError::Key)?);
            self.entries[index as usize].append(at, region, offset);
            at += u64::from(sge.length);
        }
        let target = &mut self.entries[index as usize];
        target.granted = true;
        target.key = key.0;
        target.access = access;
        target.addr = first.addr;
        target.length = at;
        Ok(())
    }

    /// Lets go of the memory of a region. Packets may still point there; whoever else holds it keeps it mapped.
    fn let_go(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        let before = entry.region.take().into_iter().chain(entry.more.drain(..).map(|run| run.region));
        self.retired.extend(before.filter(|region| Arc::strong_count(region) == 1));
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

    /// Makes a key invalid that peers have none of: as [`Self::invalidate`], and those of integrity regions.
    ///
    /// # Errors
    /// When it is no such key in `pd`.
    pub fn invalidate_local(&mut self, pd: Pd, key: Rkey) -> Result<(), MemError> {
        let entry = self.granted(pd, key.0)?;
        if entry.kind == Kind::Plain {
            return Err(MemError::State);
        }
        self.entries[(key.0 >> STEP_BITS) as usize].granted = false;
        Ok(())
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
        entry.more.clear();
        entry.integrity = None;
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
    /// See [`MemError`]; [`MemError::Pieces`] when they lie in several.
    #[inline]
    pub fn local(&self, pd: Pd, lkey: Lkey, addr: u64, length: usize) -> Result<Iov<'_>, MemError> {
        self.granted(pd, lkey.0)?.iov(addr, length)
    }

    /// Resolves `length` bytes at `addr` for an RDMA READ of a peer: the first piece of them, if they lie in several.
    ///
    /// # Errors
    /// See [`MemError`].
    #[inline]
    pub fn remote(&self, pd: Pd, rkey: Rkey, addr: u64, length: usize) -> Result<Iov<'_>, MemError> {
        let entry = self.granted(pd, rkey.0)?;
        if !entry.access.remote_read {
            return Err(MemError::Rights);
        }
        entry.first(addr, length)
    }

    /// Whether READ responses may go to `sges`, which is looked at where that takes more than what placing them checks.
    ///
    /// # Errors
    /// See [`MemError`].
    #[inline]
    pub fn check_sinks(&self, pd: Pd, sges: &[Sge]) -> Result<(), MemError> {
        if self.sinks == Sinks::Local {
            return Ok(());
        }
        let check = |sge: &Sge| {
            let entry = self.granted(pd, sge.lkey.0)?;
            if !entry.access.remote_write {
                return Err(MemError::Rights);
            }
            entry.place(sge.addr, u64::from(sge.length)).map(drop)
        };
        sges.iter().try_for_each(check)
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
    /// See [`MemError`]; [`MemError::Pieces`] when `to` is too short.
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
            let (sge, skip, mut bytes) = piece;
            let mut addr = sge.addr.checked_add(u64::from(skip)).ok_or(MemError::Range)?;
            loop {
                let iov = self.granted(pd, sge.lkey.0)?.first(addr, bytes)?;
                *to.get_mut(pieces).ok_or(MemError::Pieces)? = iov;
                pieces += 1;
                if iov.len() == bytes {
                    break;
                }
                bytes -= iov.len();
                addr += iov.len() as u64;
            }
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
    pub(super) fn granted(&self, pd: Pd, key: u32) -> Result<&Entry, MemError> {
        match self.entries.get((key >> STEP_BITS) as usize) {
            Some(entry) if entry.granted && entry.key == key && entry.pd == pd => Ok(entry),
            _ => Err(MemError::Key),
        }
    }

    /// The entry that a key is of, whether or not it is valid.
    #[inline]
    pub(super) fn entry_of(&self, lkey: Lkey) -> Option<&Entry> {
        self.entries.get((lkey.0 >> STEP_BITS) as usize)
    }

    /// The index of a key's entry.
    #[inline]
    pub(super) fn index_of_key(key: Rkey) -> u32 {
        key.0 >> STEP_BITS
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
                pages: 0,
                more: Vec::new(),
                integrity: None,
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

    pub(super) fn index_of(&self, id: MrId) -> Option<u32> {
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
