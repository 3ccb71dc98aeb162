//! Integrity registrations: a data list and a protection list that are one message on the wire, and the signature that runs over
//! their blocks while they move.
//!
//! Blocks are checked, and their tuples made, in order and once: those of a WRITE just before the first packet that holds a byte
//! of them, those of a READ when all bytes up to their end have come. Metadata that is on the wire alone is held apart, so that
//! a packet that is sent again is the same. The lists follow the rule of page lists: between their pieces are page boundaries.
#![allow(unsafe_code, reason = "checks registered memory in place")]

use std::marker::PhantomData;
use std::sync::Arc;

use t10pi::PiMismatch;

use super::entry::{Entry, Kind};
use super::table::{MemError, MemTable};
use super::{Access, Iov, Lkey, MrId, PAGE, PageList, Pd, Region};
use crate::device::{DeviceError, Qpn};
use crate::plan::Direction;
use crate::remote::Rkey;
use crate::signature::{Operation, Place, Shape, SigLayout, SigStatus, Signature, Span, cut};
use crate::wr::Sge;

/// User data of a block that a packet's and a batch's room is made for.
pub(crate) const BLOCK: std::ops::RangeInclusive<u32> = 512..=64 << 10;

/// Pieces of the blocks of a batch, on any of its lists.
const MANY: u32 = 64;

/// As [`MANY`], where no list has more entries.
const FEW: u32 = 2;

/// Blocks of a batch at most.
const BATCH: u32 = 16;

/// A work request on its queue pair, which uses a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Queue pair.
    pub qpn: Qpn,
    /// Number on its send queue.
    pub number: u64,
    /// Which way its data moves.
    pub direction: Direction,
}

/// What an integrity region has beside its key.
#[derive(Debug)]
pub(super) struct Integrity {
    /// Pages of each list.
    pages: u32,
    /// For the next registration.
    next: Mapping,
    /// What is, or was last, registered.
    now: Mapping,
    status: Status,
    /// Who uses the registration.
    user: Option<Use>,
    /// Blocks that the signature ran over.
    done: u32,
    mismatch: Option<PiMismatch>,
}

/// Whether there is something to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// It was asked for, or never registered.
    Asked,
    /// Of this key.
    Open(Rkey),
}

/// Two lists and a signature.
#[derive(Debug, Default)]
struct Mapping {
    of: Option<(Signature, SigLayout, Shape)>,
    data: Vec<Sge>,
    protection: Vec<Sge>,
    /// Metadata that is held apart.
    apart: Option<Arc<Region>>,
}

impl Integrity {
    pub(super) fn new(pages: u32) -> Self {
        // Nearly all lists are one piece; longer ones get their room when they first come, and keep it.
        let list = || Vec::with_capacity(FEW as usize);
        let mapping = || Mapping { of: None, data: list(), protection: list(), apart: None };
        let (next, now) = (mapping(), mapping());
        Self { pages, next, now, status: Status::Asked, user: None, done: 0, mismatch: None }
    }

    /// Runs the signature over the blocks before `upto` that it did not run over.
    fn advance(&mut self, table: &MemTable, pd: Pd, upto: u32) -> Result<(), MemError> {
        let Some((signature, layout, shape)) = &self.now.of else { return Err(MemError::State) };
        let few = !shape.is_interleaved()
            && [&self.now.data, &self.now.protection].iter().all(|list| list.len() <= FEW as usize);
        // Pieces of a block: pages that it touches at most, and as many more as there are ends.
        let batch = if few { BATCH } else { BATCH.min(MANY / (shape.block / PAGE + 2)) };
        let upto = upto.min(layout.blocks);
        while self.done < upto {
            let count = batch.min(upto - self.done);
            let found = if few {
                self.now.run::<{ FEW as usize }>(table, pd, signature, shape, self.done, count)?
            } else {
                self.now.run::<{ MANY as usize }>(table, pd, signature, shape, self.done, count)?
            };
            self.mismatch = self.mismatch.or(found);
            self.done += count;
        }
        Ok(())
    }
}

impl Mapping {
    /// Runs the signature over `count` blocks from `first` on, whose lists have at most `N` pieces each.
    fn run<const N: usize>(
        &self,
        table: &MemTable,
        pd: Pd,
        signature: &Signature,
        shape: &Shape,
        first: u32,
        count: u32,
    ) -> Result<Option<PiMismatch>, MemError> {
        let mut data = Pieces::<N>::new();
        let mut given = Pieces::<N>::new();
        let mut made = Pieces::<N>::new();
        for span in shape.data(first, count) {
            self.resolve(table, pd, span, READ, &mut data)?;
        }
        let (operation, to_host) = (signature.operation(), signature.direction() == Direction::ToHost);
        // Tuples come in from the memory of a WRITE and from the wire of a READ, and go out to the other.
        let (from_memory, to_memory) = match operation {
            Operation::Insert => (None, Some(!to_host)),
            Operation::Strip => (Some(to_host), None),
            Operation::Verify => (Some(true), None),
            Operation::Rewrite => (Some(to_host), Some(!to_host)),
        };
        for (memory, access, list) in [(from_memory, READ, &mut given), (to_memory, WRITTEN, &mut made)] {
            match memory {
                None => {}
                Some(false) => self.resolve(table, pd, shape.apart(first, count), access, list)?,
                Some(true) => {
                    for span in shape.metadata(first, count) {
                        self.resolve(table, pd, span, access, list)?;
                    }
                }
            }
        }
        // SAFETY: memory of a posted work request is left alone by its owner until the completion, and this thread, which is
        // the device, writes nothing during this call but what is in `made`, which overlaps none of it (`map_integrity`).
        let [data_bytes, given_bytes] =
            [&data, &given].map(|list| list.pieces.map(|piece| unsafe { piece.bytes() }));
        // SAFETY: as above; the pieces of `made` are of different spans of lists whose entries do not overlap, or of memory
        // that nobody else knows.
        let mut made_bytes = made.pieces.map(|piece| unsafe { piece.bytes_mut() });
        let (data, given) = (&data_bytes[..data.count], &given_bytes[..given.count]);
        Ok(signature.run(u64::from(first), data, given, &mut made_bytes[..made.count]).err())
    }

    /// Appends the memory of a span to `to`.
    fn resolve<'m, const N: usize>(
        &'m self,
        table: &'m MemTable,
        pd: Pd,
        span: Span,
        access: Access,
        to: &mut Pieces<'m, N>,
    ) -> Result<(), MemError> {
        let list = match span.place {
            Place::Apart => return to.push(self.apart(span)?),
            Place::Data => &self.data,
            Place::Protection => &self.protection,
        };
        for piece in cut(list, span) {
            to.push(table.piece(pd, &piece, access)?)?;
        }
        Ok(())
    }

    /// The memory of a span of the metadata that is held apart.
    fn apart(&self, span: Span) -> Result<Iov<'_>, MemError> {
        let region = self.apart.as_ref().ok_or(MemError::Range)?;
        let base = region.ptr(span.offset as usize, span.length as usize).ok_or(MemError::Range)?;
        Ok(Iov { base, length: span.length as usize, life: PhantomData })
    }
}

/// Pieces of memory, at most `N`.
#[derive(Debug)]
struct Pieces<'m, const N: usize> {
    pieces: [Iov<'m>; N],
    count: usize,
}

impl<'m, const N: usize> Pieces<'m, N> {
    fn new() -> Self {
        Self { pieces: [Iov::EMPTY; N], count: 0 }
    }

    fn push(&mut self, piece: Iov<'m>) -> Result<(), MemError> {
        // There is room: see `Integrity::advance`.
        *self.pieces.get_mut(self.count).ok_or(MemError::Range)? = piece;
        self.count += 1;
        Ok(())
    }
}

impl MemTable {
    /// Maps two lists and a signature to an integrity region, for its next registration.
    ///
    /// # Errors
    /// See [`Device::map_integrity`](crate::device::Device::map_integrity).
    pub fn map_integrity(
        &mut self,
        id: MrId,
        signature: &Signature,
        data: &[Sge],
        protection: &[Sge],
    ) -> Result<SigLayout, DeviceError> {
        let index = self.index_of(id).ok_or(DeviceError::Unknown("memory region"))?;
        let integrity = self.entries[index as usize].integrity.as_deref_mut();
        let Integrity { pages, next, .. } =
            integrity.ok_or(DeviceError::Invalid("use: no integrity region"))?;
        next.of = None;
        let format = signature.format();
        if !BLOCK.contains(&format.block_size()) || u32::from(format.metadata_size()) > format.block_size() {
            return Err(DeviceError::Invalid("signature: sizes of a block"));
        }
        let bytes = |list: &[Sge]| list.iter().map(|sge| u64::from(sge.length)).sum::<u64>();
        let layout = signature.layout(bytes(data), bytes(protection));
        let layout = layout.map_err(|_| DeviceError::Invalid("lengths of the lists"))?;
        for (list, to) in [(data, &mut next.data), (protection, &mut next.protection)] {
            join(list, *pages, to).ok_or(DeviceError::Invalid("list: its pages"))?;
        }
        let writes_metadata = matches!(signature.operation(), Operation::Insert | Operation::Rewrite);
        let into_memory = writes_metadata && signature.direction() == Direction::FromHost;
        if into_memory && overlap(&next.data, &next.protection) {
            return Err(DeviceError::Invalid("lists: their pieces overlap"));
        }
        let needed = signature.apart_bytes(layout.blocks) as usize;
        if needed > next.apart.as_ref().map_or(0, |region| region.len()) {
            let region = Region::new(needed.next_power_of_two().max(PAGE as usize));
            let region = region.map_err(|_| DeviceError::NoResources("memory"))?;
            // Packets may still point there.
            self.retired.extend(next.apart.replace(Arc::new(region)));
        }
        next.of = Some((*signature, layout, signature.shape_of(bytes(protection))));
        Ok(layout)
    }

    /// Whether a registration of the region may be posted: it was mapped, and there is nothing to ask for.
    #[must_use]
    pub fn is_integrity_ready(&self, id: MrId) -> bool {
        let integrity = self.index_of(id).and_then(|index| self.entries[index as usize].integrity.as_deref());
        integrity.is_some_and(|integrity| integrity.next.of.is_some() && integrity.status == Status::Asked)
    }

    /// Whether a local key names an integrity region, whether or not it is valid now.
    #[inline]
    #[must_use]
    pub fn is_integrity(&self, lkey: Lkey) -> bool {
        self.entry_of(lkey).is_some_and(|entry| entry.integrity.is_some())
    }

    /// Gives an integrity region the key under which what was mapped can be used.
    ///
    /// # Errors
    /// When `mr` is unknown in `pd` or not invalid at the time, `key` has another index, nothing new was mapped, the status of
    /// the registration before was not asked for, or the lists name memory that `pd` has not, or has without the rights.
    pub fn register_integrity(
        &mut self,
        pd: Pd,
        mr: MrId,
        key: Rkey,
        access: Access,
    ) -> Result<(), MemError> {
        let index = self.index_of(mr).ok_or(MemError::Key)?;
        let entry = &self.entries[index as usize];
        let integrity = entry.integrity.as_deref().ok_or(MemError::Key)?;
        if entry.pd != pd || Self::index_of_key(key) != index {
            return Err(MemError::Key);
        }
        let Some((signature, ..)) = &integrity.next.of else { return Err(MemError::State) };
        if entry.granted || integrity.status != Status::Asked {
            return Err(MemError::State);
        }
        if access.remote_read || access.remote_write {
            return Err(MemError::Rights);
        }
        let rights = if signature.direction() == Direction::FromHost { WRITTEN } else { READ };
        for sge in integrity.next.data.iter().chain(&integrity.next.protection) {
            self.piece(pd, sge, rights)?;
        }
        let entry = &mut self.entries[index as usize];
        let Some(integrity) = entry.integrity.as_deref_mut() else { return Err(MemError::Key) };
        std::mem::swap(&mut integrity.next, &mut integrity.now);
        integrity.next.of = None;
        integrity.status = Status::Open(key);
        (integrity.user, integrity.done, integrity.mismatch) = (None, 0, None);
        entry.granted = true;
        entry.key = key.0;
        entry.access = access;
        Ok(())
    }

    /// What the signature of the last registration found; once.
    ///
    /// # Errors
    /// See [`Device::sig_status`](crate::device::Device::sig_status).
    pub fn sig_status(&mut self, id: MrId) -> Result<SigStatus, DeviceError> {
        let index = self.index_of(id).ok_or(DeviceError::Unknown("memory region"))?;
        let integrity = self.entries[index as usize].integrity.as_deref_mut();
        let integrity = integrity.ok_or(DeviceError::Invalid("use: no integrity region"))?;
        let (Status::Open(key), Some((signature, layout, _))) = (integrity.status, &integrity.now.of) else {
            return Err(DeviceError::Invalid("query: nothing was registered since the last"));
        };
        if integrity.done < layout.blocks {
            return Err(DeviceError::Busy("the transfer of the registration"));
        }
        integrity.status = Status::Asked;
        Ok(signature.status(key, integrity.mismatch))
    }

    /// Lets a work request use a registration: one that is of its direction and length, as the only one.
    ///
    /// # Errors
    /// When it is not, or the key names no registration.
    pub fn use_integrity(&mut self, pd: Pd, sge: &Sge, by: Use) -> Result<(), MemError> {
        self.granted(pd, sge.lkey.0)?;
        let (integrity, direction, layout, _) = self.registered_mut(sge.lkey)?;
        if direction != by.direction || integrity.user.is_some_and(|user| user != by) {
            return Err(MemError::State);
        }
        if sge.addr != 0 || sge.length != layout.wire {
            return Err(MemError::Range);
        }
        integrity.user = Some(by);
        Ok(())
    }

    /// Who used the registration that a key is of; whether or not it is valid now.
    #[must_use]
    pub fn integrity_user(&self, lkey: Lkey) -> Option<Use> {
        let entry = self.entry_of(lkey).filter(|entry| entry.key == lkey.0)?;
        entry.integrity.as_deref()?.user
    }

    /// Runs the signature over all blocks of which bytes are in the first `bytes` on the wire, which are going to be sent.
    ///
    /// # Errors
    /// When memory of the lists is gone.
    pub fn sign_outgoing(&mut self, pd: Pd, lkey: Lkey, bytes: u32) -> Result<(), MemError> {
        self.sign(pd, lkey, |shape| bytes.div_ceil(shape.wire_block()))
    }

    /// Runs the signature over all blocks that are whole in the first `bytes` on the wire, which have come.
    ///
    /// # Errors
    /// When memory of the lists is gone.
    pub fn sign_incoming(&mut self, pd: Pd, lkey: Lkey, bytes: u32) -> Result<(), MemError> {
        self.sign(pd, lkey, |shape| bytes / shape.wire_block())
    }

    fn sign(&mut self, pd: Pd, lkey: Lkey, upto: impl Fn(&Shape) -> u32) -> Result<(), MemError> {
        self.granted(pd, lkey.0)?;
        let (integrity, _, _, shape) = self.registered_mut(lkey)?;
        let upto = upto(&shape);
        if upto <= integrity.done {
            return Ok(());
        }
        // Out of the table, which the lists are looked up in.
        let index = Self::index_of_key(Rkey(lkey.0)) as usize;
        let mut integrity = self.entries[index].integrity.take().ok_or(MemError::Key)?;
        let ran = integrity.advance(self, pd, upto);
        self.entries[index].integrity = Some(integrity);
        ran
    }

    /// As [`Self::gather`], of `length` bytes from `offset` on of what a registration has on the wire.
    ///
    /// # Errors
    /// See [`MemError`].
    pub fn gather_integrity<'m>(
        &'m self,
        pd: Pd,
        lkey: Lkey,
        offset: u32,
        length: u32,
        to: &mut [Iov<'m>],
    ) -> Result<usize, MemError> {
        let (mapping, shape) = self.registered(pd, lkey, offset, length)?;
        let mut pieces = to.iter_mut();
        let mut count = 0;
        let mut put = |piece| {
            // Blocks have at least 512 bytes and interior pieces a page: a packet has at most 22 pieces.
            *pieces.next().ok_or(MemError::Range)? = piece;
            count += 1;
            Ok(())
        };
        for span in shape.on_wire(offset, length) {
            let list = match span.place {
                Place::Apart => {
                    put(mapping.apart(span)?)?;
                    continue;
                }
                Place::Data => &mapping.data,
                Place::Protection => &mapping.protection,
            };
            for piece in cut(list, span) {
                put(self.piece(pd, &piece, READ)?)?;
            }
        }
        Ok(count)
    }

    /// As [`Self::scatter`], to what a registration has on the wire.
    ///
    /// # Errors
    /// See [`MemError`]; the pieces before the failing one were written then.
    pub fn scatter_integrity(&self, pd: Pd, lkey: Lkey, offset: u32, from: &[u8]) -> Result<(), MemError> {
        let length = u32::try_from(from.len()).map_err(|_| MemError::Range)?;
        let (mapping, shape) = self.registered(pd, lkey, offset, length)?;
        let mut rest = from;
        for span in shape.on_wire(offset, length) {
            let (now, later) = rest.split_at(span.length as usize);
            rest = later;
            match span.place {
                Place::Data => self.scatter(pd, &mapping.data, span.offset, now)?,
                Place::Protection => self.scatter(pd, &mapping.protection, span.offset, now)?,
                Place::Apart => {
                    let region = mapping.apart.as_ref().ok_or(MemError::Range)?;
                    region.write(span.offset as usize, now);
                }
            }
        }
        Ok(())
    }

    /// What an integrity registration, if the key is of one, takes from `from` it takes from `to` from now on. Of a fast
    /// registration it is checked that it has nothing there.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when it takes bytes of `from` in a piece that is larger (pieces in a row are one), or in a fast
    /// registration.
    pub fn replace_registered_source(
        &mut self,
        pd: Pd,
        lkey: Lkey,
        from: &Sge,
        to: &Sge,
    ) -> Result<(), DeviceError> {
        let index = Self::index_of_key(Rkey(lkey.0)) as usize;
        let Some(entry) = self.entries.get(index).filter(|entry| entry.pd == pd) else { return Ok(()) };
        if entry.kind == Kind::FastReg && self.may_map(entry, lkey, from) {
            return Err(DeviceError::Invalid("range: in a fast registration"));
        }
        let Some(integrity) = self.entries[index].integrity.as_deref_mut() else { return Ok(()) };
        let mut replaced = Ok(());
        for mapping in [&mut integrity.next, &mut integrity.now].into_iter().filter(|it| it.of.is_some()) {
            for sge in mapping.data.iter_mut().chain(&mut mapping.protection) {
                let here = sge.replace(from, to);
                replaced = replaced.and(here);
            }
        }
        replaced
    }

    /// Whether a fast registration has bytes of `sge` under a key, or may have some once that is valid.
    fn may_map(&self, registration: &Entry, lkey: Lkey, sge: &Sge) -> bool {
        if !registration.granted || registration.key != lkey.0 {
            return true;
        }
        let Ok(memory) = self.granted(registration.pd, sge.lkey.0) else { return false };
        let place = memory.place(sge.addr, u64::from(sge.length));
        let (Ok(offset), Some(region)) = (place, &memory.region) else { return false };
        registration.maps(region, &(offset..offset + sge.length as usize))
    }

    /// What is registered under a valid key, when it has these bytes.
    fn registered(
        &self,
        pd: Pd,
        lkey: Lkey,
        offset: u32,
        length: u32,
    ) -> Result<(&Mapping, Shape), MemError> {
        let integrity = self.granted(pd, lkey.0)?.integrity.as_deref().ok_or(MemError::Key)?;
        let Some((_, layout, shape)) = &integrity.now.of else { return Err(MemError::State) };
        let end = offset.checked_add(length).ok_or(MemError::Range)?;
        if end > layout.wire {
            return Err(MemError::Range);
        }
        Ok((&integrity.now, *shape))
    }

    fn registered_mut(
        &mut self,
        lkey: Lkey,
    ) -> Result<(&mut Integrity, Direction, SigLayout, Shape), MemError> {
        let index = Self::index_of_key(Rkey(lkey.0)) as usize;
        let integrity = self.entries[index].integrity.as_deref_mut().ok_or(MemError::Key)?;
        let Some((signature, layout, shape)) = &integrity.now.of else { return Err(MemError::State) };
        let (direction, layout, shape) = (signature.direction(), *layout, *shape);
        Ok((integrity, direction, layout, shape))
    }

    /// The memory of a piece of a list.
    #[inline]
    fn piece(&self, pd: Pd, piece: &Sge, access: Access) -> Result<Iov<'_>, MemError> {
        let entry = self.granted(pd, piece.lkey.0)?;
        if !entry.is_plain() {
            return Err(MemError::Key);
        }
        if access.local_write && !entry.access.local_write {
            return Err(MemError::Rights);
        }
        entry.iov(piece.addr, piece.length as usize)
    }
}

const READ: Access = Access { local_write: false, remote_read: false, remote_write: false };
const WRITTEN: Access = Access { local_write: true, ..READ };

/// Copies a list to `to`, pieces that are one in memory joined; `None` when it doesn't fit `pages` pages ([`PageList`]), or keys
/// change inside a page.
fn join(list: &[Sge], pages: u32, to: &mut Vec<Sge>) -> Option<()> {
    to.clear();
    let mut mapped = PageList::default();
    for sge in list.iter().filter(|sge| sge.length > 0) {
        if !mapped.push(sge.addr, sge.length, pages) {
            return None;
        }
        match to.last_mut() {
            // As many bytes as there are pages for.
            Some(last) if last.ends_at(sge) => last.length += sge.length,
            Some(_) if !sge.addr.is_multiple_of(u64::from(PAGE)) => return None,
            Some(_) | None => to.push(*sge),
        }
    }
    Some(())
}

/// Whether any two pieces of the lists share a byte.
fn overlap(data: &[Sge], protection: &[Sge]) -> bool {
    let ends = |sge: &Sge| sge.addr + u64::from(sge.length);
    let all = || data.iter().chain(protection);
    // Nearly all lists go up in memory.
    let ascending = |list: &[Sge]| list.windows(2).all(|pair| ends(&pair[0]) <= pair[1].addr);
    let apart = |one: &[Sge], other: &[Sge]| match (one.last(), other.first()) {
        (Some(last), Some(first)) => ends(last) <= first.addr,
        _ => true,
    };
    if ascending(data) && ascending(protection) && (apart(data, protection) || apart(protection, data)) {
        return false;
    }
    all().enumerate().any(|(index, one)| {
        all().skip(index + 1).any(|other| one.addr < ends(other) && other.addr < ends(one))
    })
}
