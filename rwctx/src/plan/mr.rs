//! Contexts over registrations: which memory each maps, and the work requests around it (spec: rw contexts 1.5, 1.7).
//!
//! A record is [LOCAL_INV,] REG_MR, and the READ or WRITE over what was mapped. Pages-per-registration counts entries of the
//! list, but a registration has room for as many *pages*: lists of larger pieces, or of pieces that pages can't hold, do not fit
//! and are refused as a whole.

use super::{Direction, Plan, RwError};
use crate::device::{Device, DeviceCaps, DeviceError};
use crate::mem::{Access, PageList};
use crate::mr_pool::PooledMr;
use crate::qp::RwQp;
use crate::remote::{RemoteAddr, Rkey};
use crate::signature::{SigStatus, Signature};
use crate::wr::{SendOp, Sge};

/// One registration of a context, with its READ or WRITE.
#[derive(Debug)]
pub struct Registration {
    form: Form,
    mr: PooledMr,
    /// The key that a LOCAL_INV takes away first.
    stale: Option<Rkey>,
    access: Access,
    /// Its memory in the plan's list: first entry, entries.
    memory: (u32, u32),
    /// What it maps as the READ or WRITE names it.
    sge: Sge,
    op: SendOp,
}

/// What registers the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// REG_MR, which names the memory.
    Plain,
    /// REG_MR_INTEGRITY of what was mapped before, with its signature.
    Integrity,
}

impl Registration {
    /// Send-queue entries that it takes.
    pub(crate) fn wqes(&self) -> u32 {
        2 + u32::from(self.stale.is_some())
    }

    /// Goes to the key under which it is about to be posted.
    pub(crate) fn step(&mut self) {
        self.mr.step(!matches!(self.op, SendOp::ReadWithInv(_)));
        self.mr.set_unasked(self.form == Form::Integrity);
        self.sge.lkey = self.mr.lkey();
    }

    /// Only the first `posted` of its work requests were posted: its region remembers what is valid of it.
    pub(crate) fn cut_short(&mut self, posted: u32) {
        let invalidated = u32::from(self.stale.is_some());
        if posted <= invalidated {
            self.mr.step_back(self.stale.is_some() && posted == 0);
            self.mr.set_unasked(false);
        } else if posted < self.wqes() {
            self.mr.stays_valid();
        }
    }

    /// What its signature found.
    ///
    /// # Errors
    /// See [`Device::sig_status`].
    pub(crate) fn sig_status<D: Device>(&mut self, device: &mut D) -> Result<SigStatus, DeviceError> {
        let status = device.sig_status(self.mr.id())?;
        self.mr.set_unasked(false);
        Ok(status)
    }

    /// Its work requests in posting order; `memory` is the plan's list.
    pub(crate) fn wrs<'p>(&'p self, memory: &'p [Sge]) -> impl Iterator<Item = (SendOp, &'p [Sge])> {
        let invalidate = self.stale.map(|key| (SendOp::LocalInv(key), &[][..]));
        let (mr, key, access) = (self.mr.id(), self.mr.rkey(), self.access);
        let register = match self.form {
            Form::Plain => SendOp::RegMr { mr, key, access },
            Form::Integrity => SendOp::RegMrIntegrity { mr, key, access },
        };
        let (first, count) = self.memory;
        let mapped = &memory[first as usize..(first + count) as usize];
        invalidate.into_iter().chain([(register, mapped), (self.op, std::slice::from_ref(&self.sge))])
    }
}

/// Plans one integrity registration over two lists, which the device maps to it.
///
/// # Errors
/// [`RwError::InvalidList`] for lists longer than a registration, [`RwError::PoolEmpty`], what [`refusal`] says of the device's
/// errors, [`RwError::RemoteWraps`]; no registration is kept then.
pub(crate) fn register_signature<D: Device>(
    qp: &RwQp,
    device: &mut D,
    lists: [&[Sge]; 2],
    signature: &Signature,
    remote: RemoteAddr,
    out: &mut Plan,
) -> Result<(), RwError> {
    out.clear();
    let most = qp.pages_per_mr() as usize;
    if lists.iter().any(|list| list.len() > most) {
        return Err(RwError::InvalidList);
    }
    let mut mr = qp.sig_mrs().take().ok_or(RwError::PoolEmpty)?;
    if mr.is_unasked() {
        // Nobody wants to know any more; the device wants to be asked before it takes the next.
        let _ = device.sig_status(mr.id());
        mr.set_unasked(false);
    }
    let [data, protection] = lists;
    let layout = device.map_integrity(mr.id(), signature, data, protection).map_err(refusal)?;
    remote.checked_add(u64::from(layout.wire)).ok_or(RwError::RemoteWraps)?;
    let sge = Sge { addr: 0, length: layout.wire, lkey: mr.lkey() };
    let op = signature.direction().op(remote);
    let access = Access { local_write: true, ..Access::default() };
    let (form, stale, memory) = (Form::Integrity, mr.stale(), (0, 0));
    out.registrations.push(Registration { form, mr, stale, access, memory, sge, op });
    Ok(())
}

/// Why a device did not map lists.
fn refusal(error: DeviceError) -> RwError {
    match error {
        DeviceError::NoResources(_) => RwError::NoMemory,
        DeviceError::Unknown(_) | DeviceError::Invalid(_) | DeviceError::Busy(_) => RwError::Unmappable,
    }
}

/// Plans registrations over the plan's whole list.
///
/// # Errors
/// [`RwError::PoolEmpty`], [`RwError::Unmappable`], [`RwError::RemoteWraps`]; no registration is kept then.
pub(super) fn register(
    qp: &RwQp,
    remote: RemoteAddr,
    direction: Direction,
    out: &mut Plan,
) -> Result<(), RwError> {
    let registered = register_all(qp, remote, direction, out);
    if registered.is_err() {
        // The first one taken is put back last, and so is the next to be taken.
        while out.registrations.pop().is_some() {}
    }
    registered
}

fn register_all(qp: &RwQp, remote: RemoteAddr, direction: Direction, out: &mut Plan) -> Result<(), RwError> {
    let Plan { sges, registrations, .. } = out;
    let mut at = remote;
    let mut first = 0;
    for entries in sges.chunks(qp.pages_per_mr().max(1) as usize) {
        let mr = qp.rdma_mrs().take().ok_or(RwError::PoolEmpty)?;
        let (addr, length) = map(entries, qp.rdma_mrs().pages())?;
        let sge = Sge { addr, length, lkey: mr.lkey() };
        let op = match direction {
            Direction::ToHost => SendOp::Write(at),
            Direction::FromHost if qp.caps().iwarp => SendOp::ReadWithInv(at),
            Direction::FromHost => SendOp::Read(at),
        };
        let count = u32::try_from(entries.len()).map_err(|_| RwError::InvalidList)?;
        let access = access(qp.caps());
        let (form, stale, memory) = (Form::Plain, mr.stale(), (first, count));
        registrations.push(Registration { form, mr, stale, access, memory, sge, op });
        first += count;
        at = at.checked_add(u64::from(length)).ok_or(RwError::RemoteWraps)?;
    }
    Ok(())
}

/// What a registration of `entries` shows: the address of the first byte, and all bytes.
///
/// # Errors
/// [`RwError::Unmappable`] when pages can't hold all of them.
fn map(entries: &[Sge], pages: u32) -> Result<(u64, u32), RwError> {
    let mut list = PageList::default();
    if !entries.iter().all(|sge| list.push(sge.addr, sge.length, pages)) {
        return Err(RwError::Unmappable);
    }
    let first = entries.first().ok_or(RwError::InvalidList)?;
    Ok((first.addr, u32::try_from(list.length).map_err(|_| RwError::Unmappable)?))
}

/// Rights of a registration: the sink of a READ over iWARP is named to the peer.
fn access(caps: &DeviceCaps) -> Access {
    Access { local_write: true, remote_read: false, remote_write: caps.iwarp }
}
