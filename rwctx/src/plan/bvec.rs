//! Contexts over page arrays (Linux `rdma_rw_ctx_init_bvec`; spec: rw contexts 1.6).

use super::{Direction, Kind, Plan, RwError, mr, split};
use crate::qp::RwQp;
use crate::remote::RemoteAddr;
use crate::wr::Sge;

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

/// Plans a transfer over the part of `bvecs` that `iter` names. A device that only hints at registrations (`max_sgl_rd`) gets
/// none: an array's length says nothing about how many pieces its memory is in.
///
/// # Errors
/// [`RwError`]; `out` has no registration then, and the rest of it is meaningless.
pub fn plan_bvec(
    qp: &RwQp,
    bvecs: &[Bvec],
    iter: BvecIter,
    remote: RemoteAddr,
    direction: Direction,
    out: &mut Plan,
) -> Result<Kind, RwError> {
    out.clear();
    if bvecs.is_empty() || iter.size == 0 {
        return Err(RwError::InvalidList);
    }
    cut(bvecs, iter, &mut out.sges)?;
    if qp.caps().force_mr || (qp.caps().iwarp && direction == Direction::FromHost) {
        mr::register(qp, remote, direction, out)?;
        return Ok(Kind::Registered);
    }
    let kind = if bvecs.len() == 1 {
        Kind::SingleWr
    } else if are_contiguous(&out.sges) {
        out.sges[0].length = iter.size;
        out.sges.truncate(1);
        Kind::Contiguous
    } else {
        Kind::MultiWr
    };
    split(qp.limits(), remote, direction, out)?;
    Ok(kind)
}

/// The pieces that the iterator gives.
fn cut(bvecs: &[Bvec], iter: BvecIter, sges: &mut Vec<Sge>) -> Result<(), RwError> {
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
    if left == 0 { Ok(()) } else { Err(RwError::InvalidList) }
}

fn are_contiguous(sges: &[Sge]) -> bool {
    sges.windows(2).all(|pair| {
        pair[0].lkey == pair[1].lkey
            && pair[0].addr.checked_add(u64::from(pair[0].length)) == Some(pair[1].addr)
    })
}
