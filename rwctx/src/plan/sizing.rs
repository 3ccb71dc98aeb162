//! How large queues and pools have to be for a number of contexts (spec: rw contexts 1.1, 1.10).

use super::{Direction, Integrity};
use crate::device::DeviceCaps;

/// Pages of a registration never exceed this, whatever the device offers.
const MAX_PAGES_PER_MR: u32 = 256;

/// Whether contexts of this device may use registrations at all.
#[must_use]
pub fn can_use_mr(caps: &DeviceCaps) -> bool {
    caps.iwarp || caps.max_sgl_rd != 0 || caps.force_mr
}

/// Whether a transfer of `nents` scatter entries needs a registration.
#[must_use]
#[inline]
pub fn needs_mr(caps: &DeviceCaps, direction: Direction, nents: usize) -> bool {
    let read = direction == Direction::FromHost
        && (caps.iwarp || (caps.max_sgl_rd != 0 && nents > caps.max_sgl_rd as usize));
    read || caps.force_mr
}

/// Scatter entries, and pages, of one registration (Linux `rdma_rw_fr_page_list_len`): on a queue pair with integrity the
/// limit of integrity registrations counts for all.
#[must_use]
pub fn pages_per_mr(caps: &DeviceCaps, integrity: Integrity) -> u32 {
    let pages = match integrity {
        Integrity::Off => caps.max_fast_reg_page_list_len,
        Integrity::Enabled => caps.max_pi_fast_reg_page_list_len,
    };
    pages.min(MAX_PAGES_PER_MR)
}

/// Contexts that one request of at most `maxpages` pages may need (Linux `rdma_rw_mr_factor`).
#[must_use]
pub fn mr_factor(caps: &DeviceCaps, maxpages: u32) -> u32 {
    let pages = if can_use_mr(caps) { pages_per_mr(caps, Integrity::Off) } else { caps.max_sge_rd };
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
