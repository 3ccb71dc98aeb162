//! A queue pair of a rig with its registrations, and what cases do with it.

use super::{MEMORY, Rig, Side};
use crate::ctx::{Completion, RwCtx};
use crate::device::{Device, DeviceCaps, QpCap, Qpn};
use crate::plan::{Direction, Integrity, init_qp};
use crate::qp::RwQp;
use crate::remote::RemoteAddr;
use crate::wc::{Wc, WcStatus};
use crate::wr::{Sge, WrId};

/// Bytes of a page.
pub(super) const PAGE: usize = crate::mem::PAGE as usize;

/// Under this name contexts complete.
pub(super) const OWN: Completion = Completion::Own(WrId(5));

/// A connection and what memory must hold.
pub(super) struct Bench<R: Rig> {
    pub(super) rig: R,
    pub(super) qpn: Qpn,
    pub(super) qp: RwQp,
    pub(super) cap: QpCap,
    ctxs: u32,
    models: [Vec<u8>; 2],
    mrs: u64,
}

impl<R: Rig> Bench<R> {
    /// A queue pair for `ctxs` contexts at once.
    pub(super) fn new(rig: R, ctxs: u32) -> Self {
        Self::with_entries(rig, ctxs, |caps, integrity| init_qp(caps, 8, ctxs.max(32), integrity))
    }

    /// A queue pair with registrations for `ctxs` contexts, and a send queue as long as `entries` says.
    pub(super) fn with_entries(
        mut rig: R,
        ctxs: u32,
        entries: impl FnOnce(&DeviceCaps, Integrity) -> u32,
    ) -> Self {
        let caps = *rig.device().caps();
        let integrity =
            if caps.max_pi_fast_reg_page_list_len > 0 { Integrity::Enabled } else { Integrity::Off };
        let cap = QpCap {
            max_send_wr: entries(&caps, integrity),
            max_recv_wr: 8,
            max_send_sge: caps.max_send_sge,
            max_recv_sge: 1,
            integrity,
        };
        let mrs = rig.live_mrs();
        let qpn = rig.connect(&cap);
        let pd = rig.pd();
        let qp = RwQp::init_mrs(rig.device(), pd, &cap, ctxs).expect("registrations for a few contexts");
        let models = [Side::Ours, Side::Peer].map(|side| rig.bytes(side, 0, MEMORY));
        Self { rig, qpn, qp, cap, ctxs, models, mrs }
    }

    pub(super) fn sge(&self, offset: usize, length: usize) -> Sge {
        let mr = self.rig.memory(Side::Ours);
        let length = u32::try_from(length).expect("memory is small");
        Sge { addr: mr.addr + offset as u64, length, lkey: mr.lkey }
    }

    /// The peer's memory.
    pub(super) fn remote(&self, offset: usize) -> RemoteAddr {
        let mr = self.rig.memory(Side::Peer);
        RemoteAddr { addr: mr.addr + offset as u64, rkey: mr.rkey }
    }

    /// Writes memory, which must stay so until [`Self::expect`].
    pub(super) fn put(&mut self, side: Side, offset: usize, bytes: &[u8]) {
        self.rig.put(side, offset, bytes);
        self.expect(side, offset, bytes);
    }

    /// A transfer is to leave these bytes.
    pub(super) fn expect(&mut self, side: Side, offset: usize, bytes: &[u8]) {
        self.models[side as usize][offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Asserts that both memories hold what was put and expected, and nothing else.
    pub(super) fn check_memory(&self, what: &str) {
        for side in [Side::Ours, Side::Peer] {
            let found = self.rig.bytes(side, 0, MEMORY);
            let model = &self.models[side as usize];
            if let Some(at) = (0..MEMORY).find(|&at| found[at] != model[at]) {
                panic!("{what}: byte {at} of {side:?} is {:#x}, not {:#x}", found[at], model[at]);
            }
        }
    }

    /// What happens by design to memory that is half written by transfers that fail: nobody says what it holds.
    pub(super) fn forget(&mut self, side: Side, offset: usize, length: usize) {
        let now = self.rig.bytes(side, offset, length);
        self.expect(side, offset, &now);
    }

    /// Plans, posts and waits for the completion, which succeeds; the context is done then.
    pub(super) fn carry_out(&mut self, ctx: &mut RwCtx) {
        assert_eq!(self.post(ctx), [WcStatus::Success]);
    }

    /// Posts and waits for the completion, or what comes instead.
    pub(super) fn post(&mut self, ctx: &mut RwCtx) -> Vec<WcStatus> {
        ctx.post(self.rig.device(), self.qpn, OWN).expect("a queue with room");
        let done = self.rig.completions(1);
        assert!(done.iter().all(|wc| wc.qpn == self.qpn && wc.wr_id == WrId(5)), "{done:?}");
        ctx.complete();
        statuses(&done)
    }

    /// Moves `list` between memories by a context of its own, and says how that went.
    pub(super) fn try_move(&mut self, list: &[Sge], at: RemoteAddr, direction: Direction) -> Vec<WcStatus> {
        let mut ctx = RwCtx::new();
        ctx.init(&self.qp, list, 0, at, direction).expect("a plan");
        let statuses = self.post(&mut ctx);
        ctx.destroy();
        statuses
    }

    /// Replaces a connection that failed by a fresh one, with registrations of its own.
    pub(super) fn reconnect(&mut self) {
        let Self { rig, qp, qpn, cap, ctxs, .. } = self;
        rig.disconnect(*qpn);
        qp.cleanup_mrs(rig.device());
        *qpn = rig.connect(cap);
        let pd = rig.pd();
        *qp = RwQp::init_mrs(rig.device(), pd, cap, *ctxs).expect("registrations for a few contexts");
    }

    /// Asserts that nothing is left of what was done, and hands the rig back.
    pub(super) fn end(mut self) -> R {
        assert_eq!((self.qp.rdma_mrs().used(), self.qp.sig_mrs().used()), (0, 0), "registrations in use");
        let Self { rig, qp, qpn, .. } = &mut self;
        rig.disconnect(*qpn);
        qp.cleanup_mrs(rig.device());
        assert_eq!(rig.live_mrs(), self.mrs, "regions of the device");
        self.rig
    }
}

pub(super) fn statuses(done: &[Wc]) -> Vec<WcStatus> {
    done.iter().map(|wc| wc.status).collect()
}

/// Bytes that a seed decides.
pub(super) fn random(rng: &mut fastrand::Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes);
    bytes
}

/// Where `n` pages lie, one every other page from the last to the first: no two touch.
pub(super) fn scattered(n: usize) -> impl Iterator<Item = usize> {
    (0..n).rev().map(|page| 2 * page * PAGE)
}
