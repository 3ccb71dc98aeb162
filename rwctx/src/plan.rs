//! Pure planning of contexts: device limits and local memory in, work requests out.
//!
//! Formulas follow Linux `rdma_rw` (`drivers/infiniband/core/rw.c`), so that its numeric tables are tests here. Nothing in
//! this file touches a device. Contexts over fast registrations (iWARP READs, lists beyond `max_sgl_rd`, `force_mr`)
//! are refused with [`RwError::RegistrationNeeded`].

use thiserror::Error;

use crate::device::{DeviceCaps, QpCap};
use crate::remote::RemoteAddr;
use crate::wr::{SendOp, Sge};

/// Pages of a registration never exceed this, whatever the device offers.
const MAX_PAGES_PER_MR: u32 = 256;

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
    /// The device needs a registration for this transfer, and contexts over registrations aren't built.
    #[error("the device needs a registration for this transfer")]
    RegistrationNeeded,
    /// The context is in use: destroy it first.
    #[error("the context is in use")]
    Busy,
}

impl RwError {
    /// The errno that Linux's `rdma_rw` gives in the same case, positive.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            Self::InvalidList | Self::RemoteWraps => libc::EINVAL,
            Self::OffsetBeyondEnd => libc::EIO,
            Self::RegistrationNeeded => libc::EOPNOTSUPP,
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
}

/// A piece of memory in page-array form (Linux `struct bio_vec`): like an SGE, but cut by an iterator.
pub type Bvec = Sge;

/// Which part of a bvec array a context covers (Linux `struct bvec_iter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BvecIter {
    /// First piece.
    pub index: usize,
    /// Bytes of that piece to leave out.
    pub done: u32,
    /// Bytes covered.
    pub size: u32,
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

/// Whether contexts of this device may use registrations at all.
#[must_use]
pub fn can_use_mr(caps: &DeviceCaps) -> bool {
    caps.iwarp || caps.max_sgl_rd != 0 || caps.force_mr
}

/// Whether a transfer of `nents` scatter entries needs a registration.
#[must_use]
pub fn needs_mr(caps: &DeviceCaps, direction: Direction, nents: usize) -> bool {
    let read = direction == Direction::FromHost
        && (caps.iwarp || (caps.max_sgl_rd != 0 && nents > caps.max_sgl_rd as usize));
    read || caps.force_mr
}

/// Contexts that one request of at most `maxpages` pages may need (Linux `rdma_rw_mr_factor`).
#[must_use]
pub fn mr_factor(caps: &DeviceCaps, maxpages: u32) -> u32 {
    let pages = if can_use_mr(caps) {
        caps.max_fast_reg_page_list_len.min(MAX_PAGES_PER_MR)
    } else {
        caps.max_sge_rd
    };
    maxpages.div_ceil(pages.max(1))
}

/// Send-queue entries that one context may take, at most.
fn wqes_per_ctx(caps: &DeviceCaps, integrity: Integrity) -> u32 {
    if integrity == Integrity::Enabled || can_use_mr(caps) { 3 } else { 1 }
}

/// Send-queue entries for `ctxs` contexts (Linux `rdma_rw_max_send_wr`); `u32::MAX` when that overflows.
#[must_use]
pub fn max_send_wr(caps: &DeviceCaps, ctxs: u32, integrity: Integrity) -> u32 {
    wqes_per_ctx(caps, integrity).saturating_mul(ctxs)
}

/// Send-queue size of a queue pair that posts `own` work requests beside `ctxs` contexts, within the device's limit
/// (Linux `rdma_rw_init_qp`).
#[must_use]
pub fn init_qp(caps: &DeviceCaps, own: u32, ctxs: u32, integrity: Integrity) -> u32 {
    own.saturating_add(max_send_wr(caps, ctxs, integrity)).min(caps.max_qp_wr)
}

/// Plans a transfer over `sgl`, leaving out its first `sg_offset` bytes (Linux `rdma_rw_ctx_init`). Fills `out`,
/// which it empties first and which keeps its capacity.
///
/// # Errors
/// [`RwError`]; the contents of `out` are meaningless then.
pub fn plan(
    caps: &DeviceCaps,
    limits: QpLimits,
    sgl: &[Sge],
    sg_offset: u32,
    remote: RemoteAddr,
    direction: Direction,
    out: &mut Plan,
) -> Result<Kind, RwError> {
    let Plan { sges, wrs } = out;
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
    if needs_mr(caps, direction, rest.len()) {
        return Err(RwError::RegistrationNeeded);
    }
    sges.clear();
    sges.extend_from_slice(rest);
    sges[0].addr += u64::from(offset);
    sges[0].length -= offset;
    split(limits, remote, direction, sges, wrs)?;
    Ok(if sges.len() == 1 { Kind::SingleWr } else { Kind::MultiWr })
}

/// As [`plan`], for a list of one piece from its first byte on, which needs no lists; `None` for others.
///
/// # Errors
/// [`RwError::RemoteWraps`].
pub(crate) fn plan_one(
    caps: &DeviceCaps,
    sgl: &[Sge],
    sg_offset: u32,
    remote: RemoteAddr,
    direction: Direction,
) -> Result<Option<(Sge, DataWr)>, RwError> {
    let [sge] = sgl else { return Ok(None) };
    if sge.length == 0 || sg_offset != 0 || needs_mr(caps, direction, 1) {
        return Ok(None);
    }
    remote.checked_add(u64::from(sge.length)).ok_or(RwError::RemoteWraps)?;
    Ok(Some((*sge, DataWr { op: direction.op(remote), first_sge: 0, num_sge: 1 })))
}

/// Plans a transfer over the part of `bvecs` that `iter` names (Linux `rdma_rw_ctx_init_bvec`).
///
/// # Errors
/// [`RwError`]; the contents of `out` are meaningless then.
pub fn plan_bvec(
    caps: &DeviceCaps,
    limits: QpLimits,
    bvecs: &[Bvec],
    iter: BvecIter,
    remote: RemoteAddr,
    direction: Direction,
    out: &mut Plan,
) -> Result<Kind, RwError> {
    let Plan { sges, wrs } = out;
    if bvecs.is_empty() || iter.size == 0 {
        return Err(RwError::InvalidList);
    }
    if caps.force_mr || (caps.iwarp && direction == Direction::FromHost) {
        return Err(RwError::RegistrationNeeded);
    }
    sges.clear();
    let mut left = iter.size;
    let mut skip = iter.done;
    for bvec in bvecs.get(iter.index..).ok_or(RwError::InvalidList)? {
        if left == 0 {
            break;
        }
        let length = bvec.length.checked_sub(skip).ok_or(RwError::InvalidList)?.min(left);
        sges.push(Sge { addr: bvec.addr + u64::from(skip), length, lkey: bvec.lkey });
        left -= length;
        skip = 0;
    }
    if left != 0 {
        return Err(RwError::InvalidList);
    }
    if bvecs.len() == 1 {
        split(limits, remote, direction, sges, wrs)?;
        return Ok(Kind::SingleWr);
    }
    let contiguous = sges.windows(2).all(|pair| {
        pair[0].lkey == pair[1].lkey
            && pair[0].addr.checked_add(u64::from(pair[0].length)) == Some(pair[1].addr)
    });
    let kind = if contiguous {
        sges[0].length = iter.size;
        sges.truncate(1);
        Kind::Contiguous
    } else {
        Kind::MultiWr
    };
    split(limits, remote, direction, sges, wrs)?;
    Ok(kind)
}

/// Cuts `sges` into work requests of as many SGEs as the queue pair takes; remote addresses go on where the one before ended.
fn split(
    limits: QpLimits,
    remote: RemoteAddr,
    direction: Direction,
    sges: &[Sge],
    wrs: &mut Vec<DataWr>,
) -> Result<(), RwError> {
    wrs.clear();
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
