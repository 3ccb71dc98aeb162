//! Pure planning of contexts: device limits and local memory in, work requests out.
//!
//! Formulas follow Linux `rdma_rw` (`drivers/infiniband/core/rw.c`), so that its numeric tables are tests here. Nothing in
//! this file or below touches a device: registrations come from the queue pair's pool, and go back there when the plan that
//! has them is emptied or dropped.

mod bvec;
mod mr;
mod sizing;

use thiserror::Error;

use crate::device::{DeviceCaps, QpCap};
use crate::qp::RwQp;
use crate::remote::RemoteAddr;
use crate::wr::{SendOp, Sge};

pub use bvec::{Bvec, BvecIter, plan_bvec};
pub use mr::Registration;
pub(crate) use mr::register_signature;
pub use sizing::{can_use_mr, init_qp, max_send_wr, mr_factor, needs_mr, pages_per_mr};

/// Which way the data moves, seen from the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// RDMA WRITE: local memory to the peer.
    ToHost,
    /// RDMA READ: the peer's memory to us.
    FromHost,
}

impl Direction {
    fn op(self, remote: RemoteAddr) -> SendOp {
        match self {
            Self::ToHost => SendOp::Write(remote),
            Self::FromHost => SendOp::Read(remote),
        }
    }
}

/// Whether a queue pair executes signature contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// Plain contexts only.
    Off,
    /// Created with integrity enabled (Linux `IB_QP_CREATE_INTEGRITY_EN`).
    Enabled,
}

/// SGE limits of a queue pair, fixed at its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpLimits {
    /// SGEs of a WRITE.
    pub max_write_sge: u32,
    /// SGEs of a READ.
    pub max_read_sge: u32,
}

/// Why a context could not be made. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RwError {
    /// An empty list, a size that overflows, or pieces that don't match their iterator.
    #[error("invalid scatter list")]
    InvalidList,
    /// The offset lies at or behind the end of the list.
    #[error("offset behind the end of the scatter list")]
    OffsetBeyondEnd,
    /// The remote range passes the end of the address space.
    #[error("remote range wraps around the address space")]
    RemoteWraps,
    /// The device needs registrations for this transfer, and the queue pair has too few left; others may come back.
    #[error("no registration is left")]
    PoolEmpty,
    /// The device needs registrations for this transfer, and the list does not fit the pages of one ([`crate::mem::PageList`]).
    #[error("the scatter list does not fit the pages of a registration")]
    Unmappable,
    /// The device has no memory for it.
    #[error("no memory")]
    NoMemory,
    /// The context is in use: destroy it first.
    #[error("the context is in use")]
    Busy,
}

impl RwError {
    /// The errno that Linux's `rdma_rw` gives in the same case, positive.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            Self::InvalidList | Self::RemoteWraps | Self::Unmappable => libc::EINVAL,
            Self::OffsetBeyondEnd => libc::EIO,
            Self::PoolEmpty => libc::EAGAIN,
            Self::NoMemory => libc::ENOMEM,
            Self::Busy => libc::EBUSY,
        }
    }
}

/// What a context is made of (Linux `enum rdma_rw_ctx::type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One work request with one SGE.
    SingleWr,
    /// Work requests with several SGEs.
    MultiWr,
    /// Registrations, each with a work request.
    Registered,
    /// One integrity registration with a work request.
    Signature,
    /// One work request over pieces that are contiguous in memory (Linux: one IOVA range).
    Contiguous,
}

/// One planned READ or WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataWr {
    /// READ or WRITE with its remote address.
    pub op: SendOp,
    /// Index of its first SGE in the plan's list.
    pub first_sge: u32,
    /// Its SGEs.
    pub num_sge: u32,
}

/// Planned work requests and the SGEs they share; the buffers are reused from plan to plan.
#[derive(Debug, Default)]
pub struct Plan {
    /// All SGEs, in order.
    pub sges: Vec<Sge>,
    /// Work requests, in posting order; each takes the next SGEs.
    pub wrs: Vec<DataWr>,
    /// Instead of those, registrations: each maps the next SGEs.
    pub registrations: Vec<Registration>,
}

impl Plan {
    /// Nothing is planned; the registrations go back to their pool, the lists keep their room.
    pub fn clear(&mut self) {
        self.sges.clear();
        self.wrs.clear();
        self.registrations.clear();
    }

    /// Send-queue entries that it takes.
    #[must_use]
    pub fn wqes(&self) -> u32 {
        let wrs = u32::try_from(self.wrs.len()).expect("planned from at most 2^32 pieces");
        wrs + self.registrations.iter().map(Registration::wqes).sum::<u32>()
    }
}

impl QpLimits {
    /// Limits of a queue pair made with `cap` on a device.
    #[must_use]
    pub fn new(caps: &DeviceCaps, cap: &QpCap) -> Self {
        Self { max_write_sge: cap.max_send_sge, max_read_sge: cap.max_send_sge.min(caps.max_sge_rd) }
    }

    fn max_sge(self, direction: Direction) -> usize {
        let sges = match direction {
            Direction::ToHost => self.max_write_sge,
            Direction::FromHost => self.max_read_sge,
        };
        sges.max(1) as usize
    }
}

/// Plans a transfer over `sgl`, leaving out its first `sg_offset` bytes (Linux `rdma_rw_ctx_init`). Fills `out`, whose
/// lists keep their room.
///
/// # Errors
/// [`RwError`]; `out` has no registration then, and the rest of it is meaningless.
pub fn plan(
    qp: &RwQp,
    sgl: &[Sge],
    sg_offset: u32,
    remote: RemoteAddr,
    direction: Direction,
    out: &mut Plan,
) -> Result<Kind, RwError> {
    let mut offset = sg_offset;
    let mut rest = sgl;
    while let [first, tail @ ..] = rest
        && offset >= first.length
    {
        offset -= first.length;
        rest = tail;
    }
    if rest.is_empty() {
        return Err(RwError::OffsetBeyondEnd);
    }
    out.clear();
    out.sges.extend_from_slice(rest);
    out.sges[0].addr += u64::from(offset);
    out.sges[0].length -= offset;
    if needs_mr(qp.caps(), direction, rest.len()) {
        match mr::register(qp, remote, direction, out) {
            Ok(()) => return Ok(Kind::Registered),
            // The hint is about speed: it goes without registrations, too.
            Err(RwError::PoolEmpty) if !qp.caps().iwarp && !qp.caps().force_mr => {}
            Err(error) => return Err(error),
        }
    }
    split(qp.limits(), remote, direction, out)?;
    Ok(if out.sges.len() == 1 { Kind::SingleWr } else { Kind::MultiWr })
}

/// As [`plan`], for a list of one piece from its first byte on, which needs no lists; `None` for others.
///
/// # Errors
/// [`RwError::RemoteWraps`].
#[inline]
pub(crate) fn plan_one(
    qp: &RwQp,
    sgl: &[Sge],
    sg_offset: u32,
    remote: RemoteAddr,
    direction: Direction,
) -> Result<Option<(Sge, DataWr)>, RwError> {
    let [sge] = sgl else { return Ok(None) };
    if sge.length == 0 || sg_offset != 0 || needs_mr(qp.caps(), direction, 1) {
        return Ok(None);
    }
    remote.checked_add(u64::from(sge.length)).ok_or(RwError::RemoteWraps)?;
    Ok(Some((*sge, DataWr { op: direction.op(remote), first_sge: 0, num_sge: 1 })))
}

/// Cuts the plan's list into work requests of as many SGEs as the queue pair takes; remote addresses go on where the one
/// before ended.
fn split(limits: QpLimits, remote: RemoteAddr, direction: Direction, out: &mut Plan) -> Result<(), RwError> {
    let Plan { sges, wrs, .. } = out;
    let max_sge = limits.max_sge(direction);
    let mut at = remote;
    let mut first_sge = 0;
    for chunk in sges.chunks(max_sge) {
        let op = direction.op(at);
        let num_sge = u32::try_from(chunk.len()).map_err(|_| RwError::InvalidList)?;
        wrs.push(DataWr { op, first_sge, num_sge });
        first_sge += num_sge;
        let bytes: u64 = chunk.iter().map(|sge| u64::from(sge.length)).sum();
        at = at.checked_add(bytes).ok_or(RwError::RemoteWraps)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
