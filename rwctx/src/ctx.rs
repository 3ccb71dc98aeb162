//! A context: the READs or WRITEs of one request, from planning to the last completion.
//!
//! Life: [`RwCtx::init`] (or a sibling) plans, [`RwCtx::wrs`] or [`RwCtx::post`] hands the work requests out once,
//! [`RwCtx::complete`] tells of the completion, [`RwCtx::destroy`] makes it ready for the next request. A context keeps its
//! buffers from one use to the next, so steady state allocates nothing. Registrations that it took from its queue pair's pool go
//! back when it is destroyed or dropped, valid or not: whoever takes one next invalidates it first. It belongs to one thread.

use crate::device::{Device, DeviceError, PostError, Qpn};
use crate::plan::{self, Bvec, BvecIter, DataWr, Direction, Kind, Plan, Registration, RwError};
use crate::qp::RwQp;
use crate::remote::RemoteAddr;
use crate::signature::{SigStatus, Signature};
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

impl Completion {
    /// Name and signal of a work request by whether it is the last one.
    fn of(self, last: bool) -> (WrId, Signal) {
        match self {
            Self::Own(wr_id) if last => (wr_id, Signal::Signaled),
            Self::Own(wr_id) | Self::Chained(wr_id) => (wr_id, Signal::Unsignaled),
        }
    }
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

    /// Plans a transfer over `sgl` without its first `sg_offset` bytes, fewer than the list has. `remote` is where the first byte goes
    /// or comes from; all lie in one range there. Returns the number of send-queue entries it takes, from 1 on. (Linux
    /// `rdma_rw_ctx_init`; rw-contexts 1.3 to 1.5.)
    ///
    /// # Errors
    /// [`RwError`]; the context is idle then.
    ///
    /// # Examples
    /// Two pages without the first 100 bytes, on a device that moves nothing:
    ///
    /// ```
    /// use rwctx::ctx::{Completion, RwCtx};
    /// use rwctx::device::null::NullDevice;
    /// use rwctx::device::soft::endpoint::CAPS;
    /// use rwctx::device::{Device, QpCap};
    /// use rwctx::mem::Lkey;
    /// use rwctx::plan::{Direction, Integrity, Kind};
    /// use rwctx::qp::RwQp;
    /// use rwctx::remote::{RemoteAddr, Rkey};
    /// use rwctx::wr::{Sge, WrId};
    ///
    /// let mut device = NullDevice::new(CAPS);
    /// let pd = device.alloc_pd()?;
    /// let cap = QpCap {
    ///     max_send_wr: 16,
    ///     max_recv_wr: 1,
    ///     max_send_sge: 4,
    ///     max_recv_sge: 1,
    ///     integrity: Integrity::Off,
    /// };
    /// let qpn = device.create_qp(pd, &cap)?;
    /// let qp = RwQp::init_mrs(&mut device, pd, &cap, 2)?;
    ///
    /// let pages = [0x10_0000, 0x20_0000].map(|addr| Sge { addr, length: 4096, lkey: Lkey(7) });
    /// let remote = RemoteAddr { addr: 0x1000, rkey: Rkey(0x42) };
    /// let mut ctx = RwCtx::new();
    /// let wqes = ctx.init(&qp, &pages, 100, remote, Direction::ToHost)?;
    /// assert_eq!((wqes, ctx.kind()), (1, Some(Kind::MultiWr)));
    ///
    /// ctx.post(&mut device, qpn, Completion::Own(WrId(5)))?;
    /// // When work request 5 has completed:
    /// ctx.complete();
    /// ctx.destroy();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn init(
        &mut self,
        qp: &RwQp,
        sgl: &[Sge],
        sg_offset: u32,
        remote: RemoteAddr,
        direction: Direction,
    ) -> Result<u32, RwError> {
        self.check_idle()?;
        if let Some(one) = plan::plan_one(qp, sgl, sg_offset, remote, direction)? {
            self.one = Some(one);
            return self.planned(Ok(Kind::SingleWr));
        }
        let planned = plan::plan(qp, sgl, sg_offset, remote, direction, &mut self.plan);
        self.planned(planned)
    }

    /// Plans a transfer over the part of `bvecs` that `iter` names, at least one byte. Returns the number of send-queue entries it
    /// takes, from 1 on. (Linux `rdma_rw_ctx_init_bvec`; rw-contexts 1.6.)
    ///
    /// # Errors
    /// [`RwError`]; the context is idle then.
    pub fn init_bvec(
        &mut self,
        qp: &RwQp,
        bvecs: &[Bvec],
        iter: BvecIter,
        remote: RemoteAddr,
        direction: Direction,
    ) -> Result<u32, RwError> {
        self.check_idle()?;
        let planned = plan::plan_bvec(qp, bvecs, iter, remote, direction, &mut self.plan);
        self.planned(planned)
    }

    /// Plans a transfer between a peer and two lists: of data, and of protection information (empty where memory has none, or has
    /// it between the data). The device checks and makes what `signature` says while it moves the data; what it found is
    /// [`Self::sig_status`]. Each list has at most [`RwQp::pages_per_mr`] entries; ask [`Device::executes`] before a signature is first
    /// used. Returns the number of send-queue entries it takes, 2 or 3. (Linux `rdma_rw_ctx_signature_init`; rw-contexts 1.7.)
    ///
    /// # Errors
    /// [`RwError`]; the context is idle then.
    ///
    /// # Examples
    /// Eight blocks of 512 bytes and their tuples, which are checked and go no further, on a device that moves nothing:
    ///
    /// ```
    /// use rwctx::ctx::{Completion, RwCtx};
    /// use rwctx::device::null::NullDevice;
    /// use rwctx::device::soft::endpoint::CAPS;
    /// use rwctx::device::{Device, QpCap};
    /// use rwctx::mem::Lkey;
    /// use rwctx::plan::{Direction, Integrity};
    /// use rwctx::qp::RwQp;
    /// use rwctx::remote::{RemoteAddr, Rkey};
    /// use rwctx::signature::{CopyMask, SigAttrs, SigDomain, SigStatus, Signature, T10Dif};
    /// use rwctx::wr::{Sge, WrId};
    /// use t10pi::{Checks, Format, Guard, PiType, Tags};
    ///
    /// let mut device = NullDevice::new(CAPS);
    /// let pd = device.alloc_pd()?;
    /// let cap = QpCap {
    ///     max_send_wr: 16,
    ///     max_recv_wr: 1,
    ///     max_send_sge: 1,
    ///     max_recv_sge: 1,
    ///     integrity: Integrity::Enabled,
    /// };
    /// let qpn = device.create_qp(pd, &cap)?;
    /// let qp = RwQp::init_mrs(&mut device, pd, &cap, 2)?;
    ///
    /// let format = Format::new(Guard::Crc16, 512, 8)?;
    /// let tags = Tags { ref_tag: 77, ..Tags::default() };
    /// let attrs = SigAttrs {
    ///     mem: SigDomain::T10Dif(T10Dif::of_type(format, PiType::Type1, tags)),
    ///     wire: SigDomain::None,
    ///     check_mask: Checks::ALL,
    ///     copy_mask: CopyMask::Equal,
    /// };
    /// let strip = Signature::new(&attrs, Direction::ToHost)?;
    /// device.executes(&strip)?;
    ///
    /// let data = Sge { addr: 0x10_0000, length: 4096, lkey: Lkey(7) };
    /// let tuples = Sge { addr: 0x20_0000, length: 64, lkey: Lkey(7) };
    /// let remote = RemoteAddr { addr: 0x1000, rkey: Rkey(0x42) };
    /// let mut ctx = RwCtx::new();
    /// let wqes = ctx.signature_init(&qp, &mut device, &[data], &[tuples], &strip, remote)?;
    /// assert_eq!(wqes, 2, "a registration and a WRITE of 4096 bytes");
    ///
    /// ctx.post(&mut device, qpn, Completion::Own(WrId(5)))?;
    /// // When work request 5 has completed:
    /// ctx.complete();
    /// assert_eq!(ctx.sig_status(&mut device)?, SigStatus::Clean);
    /// ctx.destroy();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn signature_init<D: Device>(
        &mut self,
        qp: &RwQp,
        device: &mut D,
        data: &[Sge],
        protection: &[Sge],
        signature: &Signature,
        remote: RemoteAddr,
    ) -> Result<u32, RwError> {
        self.check_idle()?;
        let lists = [data, protection];
        let planned = plan::register_signature(qp, device, lists, signature, remote, &mut self.plan);
        self.planned(planned.map(|()| Kind::Signature))
    }

    /// What the signature of the transfer found; to be asked once, after its completion. What is never asked for is forgotten
    /// with the context.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] without a signature, or before the completion; the device's.
    pub fn sig_status<D: Device>(&mut self, device: &mut D) -> Result<SigStatus, DeviceError> {
        match (self.state, self.plan.registrations.first_mut()) {
            (State::Done(Kind::Signature), Some(registration)) => registration.sig_status(device),
            _ => Err(DeviceError::Invalid("query: no transfer with a signature completed")),
        }
    }

    /// The work requests in posting order; call it once per init. All but the last are unsignaled. Registrations go to their
    /// next key.
    ///
    /// # Panics
    /// When the context is not freshly initialised: handing the requests out twice would post them twice.
    pub fn wrs(&mut self, completion: Completion) -> impl Iterator<Item = SendWr<'_>> {
        self.hand_out();
        self.plan.registrations.iter_mut().for_each(Registration::step);
        let Self { plan: Plan { sges: list, wrs: planned, registrations }, one, .. } = &*self;
        let (sges, wrs): (&[Sge], &[DataWr]) = match one {
            Some((sge, wr)) => (std::slice::from_ref(sge), std::slice::from_ref(wr)),
            None => (list, planned),
        };
        let last = wrs.len() + registrations.iter().map(|it| it.wqes() as usize).sum::<usize>() - 1;
        let plain = wrs.iter().map(move |wr| {
            let first = wr.first_sge as usize;
            (wr.op, &sges[first..first + wr.num_sge as usize])
        });
        let registered = registrations.iter().flat_map(move |registration| registration.wrs(list));
        plain.chain(registered).enumerate().map(move |(index, (op, sges))| {
            let (wr_id, signal) = completion.of(index == last);
            SendWr { wr_id, op, sges, signal, fence: Fence::None }
        })
    }

    /// Posts the work requests. The caller holds send-queue credits for all of them.
    ///
    /// # Errors
    /// The device's refusal, when the queue pair is gone or failed; completions of what was posted before it come as
    /// flushes. The context counts as done when nothing was posted.
    #[inline]
    pub fn post<D: Device>(
        &mut self,
        device: &mut D,
        qpn: Qpn,
        completion: Completion,
    ) -> Result<(), PostError> {
        let Some((sge, wr)) = self.one else { return self.post_all(device, qpn, completion) };
        self.hand_out();
        let (wr_id, signal) = completion.of(true);
        let posted =
            device.post_send(qpn, &SendWr { wr_id, op: wr.op, sges: &[sge], signal, fence: Fence::None });
        if posted.is_err() {
            self.complete();
        }
        posted
    }

    fn post_all<D: Device>(
        &mut self,
        device: &mut D,
        qpn: Qpn,
        completion: Completion,
    ) -> Result<(), PostError> {
        let mut posted: u32 = 0;
        let mut result = Ok(());
        for wr in self.wrs(completion) {
            result = device.post_send(qpn, &wr);
            if result.is_err() {
                break;
            }
            posted += 1;
        }
        if result.is_err() {
            if posted == 0 {
                self.complete();
            }
            for registration in &mut self.plan.registrations {
                let of_it = posted.min(registration.wqes());
                registration.cut_short(of_it);
                posted -= of_it;
            }
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
        self.plan.clear();
        self.state = State::Idle;
    }

    /// Gives memory back beyond what a transfer of `sges` pieces needs, for a context that saw a much larger one.
    pub fn shrink_to(&mut self, sges: usize) {
        self.plan.sges.shrink_to(sges);
        self.plan.wrs.shrink_to(sges);
        self.plan.registrations.shrink_to(sges);
    }

    /// Send-queue entries that it takes; 0 when idle.
    #[must_use]
    pub fn wqes(&self) -> u32 {
        if self.one.is_some() { 1 } else { self.plan.wqes() }
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

    /// READs or WRITEs among them (Linux `nr_ops`); 0 when idle.
    #[must_use]
    pub fn ops(&self) -> usize {
        if self.one.is_some() { 1 } else { self.plan.wrs.len() + self.plan.registrations.len() }
    }

    /// The work requests leave its hands.
    #[inline]
    fn hand_out(&mut self) {
        let State::Ready(kind) = self.state else { panic!("work requests are taken once, after init") };
        self.state = State::Posted(kind);
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
                self.plan.clear();
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
mod tests;
