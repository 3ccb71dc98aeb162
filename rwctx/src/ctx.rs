//! A context: the READs or WRITEs of one request, from planning to the last completion.
//!
//! Life: [`RwCtx::init`] (or a sibling) plans, [`RwCtx::wrs`] or [`RwCtx::post`] hands the work requests out once,
//! [`RwCtx::complete`] tells of the completion, [`RwCtx::destroy`] makes it ready for the next request. A context keeps its
//! buffers from one use to the next, so steady state allocates nothing. It belongs to one thread.

use crate::device::{Device, DeviceCaps, PostError, Qpn};
use crate::plan::{self, Bvec, BvecIter, DataWr, Direction, Kind, Plan, QpLimits, RwError};
use crate::remote::RemoteAddr;
use crate::wr::{Fence, SendWr, Sge, Signal, WrId};

/// Where a context's completion shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Its last work request is signaled with this id.
    Own(WrId),
    /// Nowhere of its own: the caller chains a signaled work request behind it, and on error any of its work requests
    /// completes with this id.
    Chained(WrId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Ready(Kind),
    Posted(Kind),
    Done(Kind),
}

/// A READ/WRITE context (Linux `struct rdma_rw_ctx`).
#[derive(Debug)]
pub struct RwCtx {
    plan: Plan,
    /// Instead of the plan, for the transfer that is nearly every one: one piece, one work request.
    one: Option<(Sge, DataWr)>,
    state: State,
}

impl Default for RwCtx {
    fn default() -> Self {
        Self::new()
    }
}

impl RwCtx {
    /// An idle context without buffers.
    #[must_use]
    pub fn new() -> Self {
        Self { plan: Plan::default(), one: None, state: State::Idle }
    }

    /// Plans a transfer over `sgl` without its first `sg_offset` bytes. Returns the number of send-queue entries it takes.
    ///
    /// # Errors
    /// [`RwError`]; the context is idle then.
    pub fn init(
        &mut self,
        caps: &DeviceCaps,
        limits: QpLimits,
        sgl: &[Sge],
        sg_offset: u32,
        remote: RemoteAddr,
        direction: Direction,
    ) -> Result<u32, RwError> {
        self.check_idle()?;
        if let Some(one) = plan::plan_one(caps, sgl, sg_offset, remote, direction)? {
            self.one = Some(one);
            return self.planned(Ok(Kind::SingleWr));
        }
        let planned = plan::plan(caps, limits, sgl, sg_offset, remote, direction, &mut self.plan);
        self.planned(planned)
    }

    /// Plans a transfer over the part of `bvecs` that `iter` names. Returns the number of send-queue entries it takes.
    ///
    /// # Errors
    /// [`RwError`]; the context is idle then.
    pub fn init_bvec(
        &mut self,
        caps: &DeviceCaps,
        limits: QpLimits,
        bvecs: &[Bvec],
        iter: BvecIter,
        remote: RemoteAddr,
        direction: Direction,
    ) -> Result<u32, RwError> {
        self.check_idle()?;
        let planned = plan::plan_bvec(caps, limits, bvecs, iter, remote, direction, &mut self.plan);
        self.planned(planned)
    }

    /// The work requests in posting order; call it once per init. All but the last are unsignaled.
    ///
    /// # Panics
    /// When the context is not freshly initialised: handing the requests out twice would post them twice.
    pub fn wrs(&mut self, completion: Completion) -> impl Iterator<Item = SendWr<'_>> {
        let State::Ready(kind) = self.state else { panic!("work requests are taken once, after init") };
        self.state = State::Posted(kind);
        let (sges, wrs) = self.pieces_and_wrs();
        let last = wrs.len() - 1;
        wrs.iter().enumerate().map(move |(index, wr)| {
            let (wr_id, signal) = match completion {
                Completion::Own(wr_id) if index == last => (wr_id, Signal::Signaled),
                Completion::Own(wr_id) | Completion::Chained(wr_id) => (wr_id, Signal::Unsignaled),
            };
            let first = wr.first_sge as usize;
            let sges = &sges[first..first + wr.num_sge as usize];
            SendWr { wr_id, op: wr.op, sges, signal, fence: Fence::None }
        })
    }

    /// Posts the work requests. The caller holds send-queue credits for all of them.
    ///
    /// # Errors
    /// The device's refusal, when the queue pair is gone or failed; completions of what was posted before it come as
    /// flushes. The context counts as done when nothing was posted.
    pub fn post<D: Device>(
        &mut self,
        device: &mut D,
        qpn: Qpn,
        completion: Completion,
    ) -> Result<(), PostError> {
        let mut posted = 0;
        let mut result = Ok(());
        for wr in self.wrs(completion) {
            result = device.post_send(qpn, &wr);
            if result.is_err() {
                break;
            }
            posted += 1;
        }
        if result.is_err() && posted == 0 {
            self.complete();
        }
        result
    }

    /// Tells that the last completion was seen (or that the queue pair was destroyed, so that none will come).
    pub fn complete(&mut self) {
        if let State::Posted(kind) = self.state {
            self.state = State::Done(kind);
        }
    }

    /// Ends the use: the context is idle again and keeps its buffers.
    ///
    /// # Panics
    /// In debug builds, when it was posted and its completion was not seen: its memory is still in use by the device.
    pub fn destroy(&mut self) {
        debug_assert!(!matches!(self.state, State::Posted(_)), "a context lives until its completion");
        self.one = None;
        self.plan.sges.clear();
        self.plan.wrs.clear();
        self.state = State::Idle;
    }

    /// Gives memory back beyond what a transfer of `sges` pieces needs, for a context that saw a much larger one.
    pub fn shrink_to(&mut self, sges: usize) {
        self.plan.sges.shrink_to(sges);
        self.plan.wrs.shrink_to(sges);
    }

    /// Send-queue entries that it takes; 0 when idle.
    #[must_use]
    pub fn wqes(&self) -> u32 {
        let (_, wrs) = self.pieces_and_wrs();
        u32::try_from(wrs.len()).expect("planned from at most 2^32 pieces")
    }

    /// What it is made of, unless idle.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        match self.state {
            State::Idle => None,
            State::Ready(kind) | State::Posted(kind) | State::Done(kind) => Some(kind),
        }
    }

    /// Whether the device may still use its memory.
    #[must_use]
    pub fn is_posted(&self) -> bool {
        matches!(self.state, State::Posted(_))
    }

    /// What is planned, wherever it stands.
    fn pieces_and_wrs(&self) -> (&[Sge], &[DataWr]) {
        match &self.one {
            Some((sge, wr)) => (std::slice::from_ref(sge), std::slice::from_ref(wr)),
            None => (&self.plan.sges, &self.plan.wrs),
        }
    }

    fn check_idle(&self) -> Result<(), RwError> {
        if self.state == State::Idle { Ok(()) } else { Err(RwError::Busy) }
    }

    /// A plan was made, or failed half way: then nothing of it stays, or an idle context would claim queue entries.
    fn planned(&mut self, planned: Result<Kind, RwError>) -> Result<u32, RwError> {
        match planned {
            Ok(kind) => {
                self.state = State::Ready(kind);
                Ok(self.wqes())
            }
            Err(error) => {
                self.plan.sges.clear();
                self.plan.wrs.clear();
                Err(error)
            }
        }
    }
}

impl Drop for RwCtx {
    fn drop(&mut self) {
        debug_assert!(
            !self.is_posted() || std::thread::panicking(),
            "a context is not dropped before its completion"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::QpCap;
    use crate::device::soft::endpoint::CAPS;
    use crate::mem::Lkey;
    use crate::remote::Rkey;

    #[test]
    fn a_plan_that_failed_leaves_nothing_to_post() {
        let cap = QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1 };
        let limits = QpLimits::new(&CAPS, &cap);
        let sges = [Sge { addr: 0x1000, length: 4096, lkey: Lkey(1) }; 3];
        let mut ctx = RwCtx::new();
        let mut init = |addr: u64| {
            let remote = RemoteAddr { addr, rkey: Rkey(1) };
            let planned = ctx.init(&CAPS, limits, &sges, 0, remote, Direction::ToHost);
            (planned, ctx.wqes(), ctx.kind())
        };
        // The first work request fits, the second wraps around.
        assert_eq!(init(u64::MAX - 5000), (Err(RwError::RemoteWraps), 0, None));
        assert_eq!(init(0x1000), (Ok(3), 3, Some(Kind::MultiWr)));
    }
}
