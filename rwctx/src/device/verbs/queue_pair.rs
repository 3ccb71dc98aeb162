//! Queue pairs of libibverbs, and the batches of work requests that they are given.
//!
//! Calls C, as `handles` does, and makes no decision of its own. Manual pages: ibv_create_qp(3), ibv_modify_qp(3),
//! ibv_post_send(3), ibv_post_recv(3).
#![allow(unsafe_code, reason = "the objects of a C library, and the memory that its device reads and writes")]

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{
    bind_mw_tso_union_t, ibv_ah_attr, ibv_create_qp, ibv_destroy_qp, ibv_gid, ibv_global_route,
    ibv_modify_qp, ibv_post_recv, ibv_post_send, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr,
    ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode,
    imm_data_invalidated_rkey_union_t, qp_type_t, rdma_t, tso_t, wr_t, xrc_t,
};

use super::handles::{CompletionQueue, ProtectionDomain, access_flags, check};
#[cfg(feature = "mlx5")]
use crate::device::mlx5::{INLINE_DATA, QueueSize, SigQueue, WRS_PER_WR};
use crate::device::{PathMtu, QpCap, QpConnect, Qpn, Route};
use crate::mem::Access;
use crate::remote::{RemoteAddr, Rkey};
use crate::wr::{Fence, SendOp, SendWr, Sge, Signal};

/// SGEs of a receive, at most.
pub(super) const MAX_RECV_SGE: usize = 8;

/// A reliable connection's queue pair. It is destroyed by [`Self::destroy`], which may fail.
#[derive(Debug)]
pub(super) struct QueuePair {
    raw: NonNull<ibv_qp>,
    _pd: Arc<ProtectionDomain>,
    _cq: Arc<CompletionQueue>,
}

// SAFETY: libibverbs may be called from any thread, with any of its objects; the pointer is handed to nothing else.
unsafe impl Send for QueuePair {}

/// Send work requests that leave together, and their SGEs. The buffers are reused.
#[derive(Debug, Default)]
pub(super) struct SendBatch {
    wrs: Vec<RawWr>,
    sges: Vec<RawSge>,
}

struct RawWr {
    wr: ibv_send_wr,
    first_sge: usize,
}

#[repr(transparent)]
struct RawSge(ibv_sge);

// SAFETY: the pointers inside are null until a call sets and uses them, within the call.
unsafe impl Send for SendBatch {}

impl std::fmt::Debug for RawWr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RawWr(id {:#x}, opcode {})", self.wr.wr_id, self.wr.opcode)
    }
}

impl std::fmt::Debug for RawSge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RawSge({:#x}+{})", self.0.addr, self.0.length)
    }
}

impl QueuePair {
    /// A queue pair in state RESET.
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        cq: &Arc<CompletionQueue>,
        cap: &QpCap,
    ) -> io::Result<Self> {
        // SAFETY: plain numbers and pointers, for which zeroes are values.
        let mut attr: ibv_qp_init_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.send_cq = cq.as_ptr();
        attr.recv_cq = cq.as_ptr();
        attr.cap.max_send_wr = cap.max_send_wr;
        attr.cap.max_recv_wr = cap.max_recv_wr;
        attr.cap.max_send_sge = cap.max_send_sge;
        attr.cap.max_recv_sge = cap.max_recv_sge;
        attr.qp_type = ibv_qp_type::IBV_QPT_RC;
        // SAFETY: protection domain and queue exist; `attr` is filled, and may be written.
        let raw = unsafe { ibv_create_qp(pd.as_ptr(), &raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, _pd: Arc::clone(pd), _cq: Arc::clone(cq) })
    }

    /// A queue pair in state RESET that runs signatures, and what posts them. Entries of its send queue stand for several.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] when the device was not opened for signatures; what the library says.
    #[cfg(feature = "mlx5")]
    pub(super) fn with_signatures(
        pd: &Arc<ProtectionDomain>,
        cq: &Arc<CompletionQueue>,
        cap: &QpCap,
    ) -> io::Result<(Self, SigQueue)> {
        let size = QueueSize {
            max_send_wr: cap.max_send_wr.saturating_mul(WRS_PER_WR),
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: INLINE_DATA,
        };
        let library = pd.library()?;
        let raw_pd = NonNull::new(pd.as_ptr()).expect("a protection domain").cast();
        let raw_cq = NonNull::new(cq.as_ptr()).expect("a completion queue").cast();
        // SAFETY: the library has opened the device, of which all are; what is made here holds them.
        let (raw, inline) = unsafe { library.create_qp(pd.context_ptr().cast(), raw_pd, raw_cq, &size) }?;
        let pair = Self { raw: raw.cast(), _pd: Arc::clone(pd), _cq: Arc::clone(cq) };
        // SAFETY: made above, with so much inline data, and asked for once; its owner drops the queue before the protection
        // domain and uses it as long as the queue pair exists.
        match unsafe { library.queue(raw, raw_pd, inline) } {
            Ok(queue) => Ok((pair, SigQueue::new(queue))),
            Err(error) => pair.destroy().and(Err(error)),
        }
    }

    /// Its number.
    pub(super) fn qpn(&self) -> Qpn {
        // SAFETY: the queue pair exists.
        Qpn(unsafe { (*self.raw.as_ptr()).qp_num })
    }

    /// To INIT, from RESET or INIT.
    pub(super) fn to_init(&self, port: u8, pkey_index: u16, access: Access) -> io::Result<()> {
        let mut attr = no_attr();
        attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = port;
        attr.pkey_index = pkey_index;
        attr.qp_access_flags = access_flags(access).0;
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
            | ibv_qp_attr_mask::IBV_QP_PORT
            | ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attr, mask)
    }

    /// From INIT to RTR.
    pub(super) fn to_rtr(&self, to: &QpConnect, route: &Route) -> io::Result<()> {
        let mut attr = no_attr();
        attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
        attr.path_mtu = u32::from(mtu_code(to.path_mtu));
        attr.dest_qp_num = to.dest_qpn.0;
        attr.rq_psn = to.rq_psn;
        attr.max_dest_rd_atomic = to.max_dest_rd_atomic;
        attr.min_rnr_timer = to.min_rnr_timer;
        attr.ah_attr = address_handle(route, to.tos);
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_AV
            | ibv_qp_attr_mask::IBV_QP_PATH_MTU
            | ibv_qp_attr_mask::IBV_QP_DEST_QPN
            | ibv_qp_attr_mask::IBV_QP_RQ_PSN
            | ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask)
    }

    /// From RTR to RTS. `timeout` is the exponent of the retransmission timer (4.096 us * 2^timeout).
    pub(super) fn to_rts(&self, to: &QpConnect, timeout: u8) -> io::Result<()> {
        let mut attr = no_attr();
        attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
        attr.timeout = timeout;
        attr.retry_cnt = to.retry_cnt;
        attr.rnr_retry = to.rnr_retry;
        attr.sq_psn = to.sq_psn;
        attr.max_rd_atomic = to.max_rd_atomic;
        let mask = ibv_qp_attr_mask::IBV_QP_STATE
            | ibv_qp_attr_mask::IBV_QP_TIMEOUT
            | ibv_qp_attr_mask::IBV_QP_RETRY_CNT
            | ibv_qp_attr_mask::IBV_QP_RNR_RETRY
            | ibv_qp_attr_mask::IBV_QP_SQ_PSN
            | ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, mask)
    }

    /// To ERROR, from any state.
    pub(super) fn to_error(&self) -> io::Result<()> {
        let mut attr = no_attr();
        attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
        self.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE)
    }

    fn modify(&self, attr: &mut ibv_qp_attr, mask: ibv_qp_attr_mask) -> io::Result<()> {
        let mask = i32::try_from(mask.0).expect("the bits of a mask are few");
        // SAFETY: the queue pair exists; `attr` has what the mask names.
        check(unsafe { ibv_modify_qp(self.raw.as_ptr(), attr, mask) })
    }

    /// Posts a receive of at most [`MAX_RECV_SGE`] pieces.
    pub(super) fn post_recv(&self, wr_id: u64, sges: &[Sge]) -> io::Result<()> {
        let mut list = [ibv_sge { addr: 0, length: 0, lkey: 0 }; MAX_RECV_SGE];
        let list = list.get_mut(..sges.len()).ok_or(io::ErrorKind::InvalidInput)?;
        for (to, from) in list.iter_mut().zip(sges) {
            *to = raw_sge(from);
        }
        let num_sge = i32::try_from(list.len()).expect("a few");
        let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: list.as_mut_ptr(), num_sge };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair exists; the list, which the call copies, outlives it. The device writes only memory that is
        // registered with that right, and regions keep theirs mapped.
        check(unsafe { ibv_post_recv(self.raw.as_ptr(), &raw mut wr, &raw mut bad) })
    }

    /// Posts all of a batch and empties it.
    ///
    /// # Errors
    /// What the library says; some of the batch may have been posted.
    pub(super) fn post_send(&self, batch: &mut SendBatch) -> io::Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let first = batch.link();
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair exists; the list is linked, and it and all that it names but registered memory are the batch's, which
        // nobody touches during the call; the call copies them. The device touches only registered memory, which regions keep mapped.
        let posted = check(unsafe { ibv_post_send(self.raw.as_ptr(), first, &raw mut bad) });
        batch.clear();
        posted
    }

    /// Ends it: when this returns, the device touches no memory for it any more.
    ///
    /// # Errors
    /// What the library says: then the device may still do so.
    pub(super) fn destroy(self) -> io::Result<()> {
        // SAFETY: made once, destroyed once: this takes the value.
        check(unsafe { ibv_destroy_qp(self.raw.as_ptr()) })
    }
}

impl SendBatch {
    /// Whether it has no work requests.
    pub(super) fn is_empty(&self) -> bool {
        self.wrs.is_empty()
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.wrs.clear();
        self.sges.clear();
    }

    /// Appends a work request; `false` for operations that user space doesn't have.
    pub(super) fn push(&mut self, wr: &SendWr<'_>) -> bool {
        let none = RemoteAddr { addr: 0, rkey: Rkey(0) };
        let (opcode, word, remote) = match wr.op {
            SendOp::Send => (ibv_wr_opcode::IBV_WR_SEND, 0, none),
            SendOp::SendWithImm(imm) => (ibv_wr_opcode::IBV_WR_SEND_WITH_IMM, u32::from_ne_bytes(imm), none),
            SendOp::SendWithInv(rkey) => (ibv_wr_opcode::IBV_WR_SEND_WITH_INV, rkey.0, none),
            SendOp::Write(at) => (ibv_wr_opcode::IBV_WR_RDMA_WRITE, 0, at),
            SendOp::WriteWithImm(at, imm) => {
                (ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, u32::from_ne_bytes(imm), at)
            }
            SendOp::Read(at) => (ibv_wr_opcode::IBV_WR_RDMA_READ, 0, at),
            SendOp::ReadWithInv(_)
            | SendOp::LocalInv(_)
            | SendOp::RegMr { .. }
            | SendOp::RegMrIntegrity { .. } => return false,
        };
        let mut flags = ibv_send_flags(0);
        if wr.signal == Signal::Signaled {
            flags |= ibv_send_flags::IBV_SEND_SIGNALED;
        }
        if wr.fence == Fence::Reads {
            flags |= ibv_send_flags::IBV_SEND_FENCE;
        }
        let first_sge = self.sges.len();
        self.sges.extend(wr.sges.iter().map(|sge| RawSge(raw_sge(sge))));
        let raw = ibv_send_wr {
            wr_id: wr.wr_id.0,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: i32::try_from(wr.sges.len()).unwrap_or(i32::MAX),
            opcode,
            send_flags: flags.0,
            imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t { invalidated_rkey: word },
            wr: wr_t { rdma: rdma_t { remote_addr: remote.addr, rkey: remote.rkey.0 } },
            qp_type: qp_type_t { xrc: xrc_t { remote_srqn: 0 } },
            bind_mw_tso_union: bind_mw_tso_union_t { tso: tso_t { hdr: ptr::null_mut(), hdr_sz: 0, mss: 0 } },
        };
        self.wrs.push(RawWr { wr: raw, first_sge });
        true
    }

    /// Links the work requests, of which there are some, and their lists; returns the first. What that leads to stays as it is until
    /// the batch is touched again.
    fn link(&mut self) -> *mut ibv_send_wr {
        let count = self.wrs.len();
        let (wrs, sges) = (self.wrs.as_mut_ptr(), self.sges.as_mut_ptr());
        // From here on the lists are reached by these pointers alone: a reference would end what they may do.
        // SAFETY: there is a first one.
        let first = unsafe { &raw mut (*wrs).wr };
        for index in 0..count {
            // SAFETY: one of `count` entries.
            let at = unsafe { wrs.add(index) };
            // SAFETY: an entry, to which there is no other reference.
            let entry = unsafe { &mut *at };
            // SAFETY: the list has an SGE of this number, or ends there where the request has none.
            entry.wr.sg_list = unsafe { sges.add(entry.first_sge) }.cast::<ibv_sge>();
            entry.wr.next = if index + 1 < count {
                // SAFETY: one of `count` entries.
                let next = unsafe { at.add(1) };
                // SAFETY: its request lies within it.
                unsafe { &raw mut (*next).wr }
            } else {
                ptr::null_mut()
            };
        }
        first
    }
}

fn raw_sge(sge: &Sge) -> ibv_sge {
    ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey.0 }
}

fn no_attr() -> ibv_qp_attr {
    // SAFETY: plain numbers, for which zeroes are values.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// `enum ibv_mtu` has IBTA's codes.
fn mtu_code(mtu: PathMtu) -> u8 {
    mtu as u8
}

fn address_handle(route: &Route, tos: u8) -> ibv_ah_attr {
    let grh = ibv_global_route {
        dgid: ibv_gid { raw: route.dgid },
        flow_label: route.flow_label,
        sgid_index: route.sgid_index,
        hop_limit: route.hop_limit,
        traffic_class: tos,
    };
    ibv_ah_attr {
        grh,
        dlid: route.dlid,
        sl: route.sl,
        src_path_bits: route.src_path_bits,
        static_rate: route.static_rate,
        is_global: u8::from(route.is_global),
        port_num: route.port,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Lkey;
    use crate::wr::WrId;

    /// What C finds when it walks the list: identifier, and of each piece the address and length.
    fn walk(batch: &mut SendBatch) -> Vec<(u64, Vec<(u64, u32)>)> {
        let mut found = Vec::new();
        let mut at = batch.link();
        while !at.is_null() {
            // SAFETY: linked above, and nobody has touched the batch since.
            let wr = unsafe { at.read() };
            let pieces = (0..usize::try_from(wr.num_sge).unwrap()).map(|number| {
                // SAFETY: as above; the request has so many.
                let piece = unsafe { wr.sg_list.add(number) };
                // SAFETY: as above.
                let sge = unsafe { piece.read() };
                (sge.addr, sge.length)
            });
            found.push((wr.wr_id, pieces.collect()));
            at = wr.next;
        }
        found
    }

    fn send(id: u64, op: SendOp, sges: &[Sge]) -> SendWr<'_> {
        SendWr { wr_id: WrId(id), op, sges, signal: Signal::Unsignaled, fence: Fence::None }
    }

    #[test]
    fn a_batch_is_a_list_as_c_walks_it() {
        let sge = |addr| Sge { addr, length: 8, lkey: Lkey(3) };
        let remote = RemoteAddr { addr: 0x9000, rkey: Rkey(7) };
        let mut batch = SendBatch::default();
        for round in 0..3_u64 {
            let at = round * 0x100;
            assert!(batch.push(&send(1, SendOp::Write(remote), &[sge(at), sge(at + 8), sge(at + 16)])));
            assert!(batch.push(&send(3, SendOp::Send, &[])));
            assert!(!batch.push(&send(4, SendOp::LocalInv(Rkey(1)), &[])), "not in user space");
            assert!(batch.push(&send(5, SendOp::Read(remote), &[sge(at + 24)])));
            assert_eq!(
                walk(&mut batch),
                [(1, vec![(at, 8), (at + 8, 8), (at + 16, 8)]), (3, vec![]), (5, vec![(at + 24, 8)])]
            );
            batch.clear();
            assert!(batch.is_empty());
        }
    }
}
