//! One NVMe queue pair on one RDMA queue pair: its capsules, its requests, its credits.
//!
//! Owns command intake (capsule slots, command identifiers in use, requests free) and the way back (responses, data before
//! them, send-queue credits). What a command does is decided in `exec`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rwctx::ctx::{Completion, RwCtx};
use rwctx::device::{Device, DeviceCaps, DeviceError, QpCap, QpConnect, Qpn};
use rwctx::plan::Integrity;
use rwctx::qp::RwQp;
use rwctx::remote::Rkey;
use rwctx::segment::{ChunkCtx, CtxCache, Posting};
use rwctx::sq::{SqCredits, Take};
use rwctx::wc::Wc;
use rwctx::wr::{Fence, RecvWr, SendOp, SendWr, Sge, Signal};

use super::capsules::Capsules;
use super::role::Role;
use super::signed::Signing;
use crate::block::{Buf, BufPin, Promise, RangeGuard, RangeWait};
use crate::nvmf::command::{DataPointer, SglList};
use crate::nvmf::wire::cqe::{Cqe, SQHD_DISABLED};
use crate::nvmf::wire::private_data::QueueRequest;
use crate::nvmf::wire::sqe::admin_opcode;
use crate::nvmf::wire::status::Status;
use crate::request::{Progress, Step};
use crate::transport::core::{Core, KEPT_SUMS, Token, slots};
use crate::transport::in_place::InPlace;
use crate::transport::share::{Charge, Share};
use crate::transport::size::{Held, QueueSize};
use crate::transport::wr_id::Posted;

use super::exec::Work;

/// How long a queue may stay without Connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a host may take to give or take a command's data, and to acknowledge its completion: it holds a buffer all
/// the time. The RDMA connection fails sooner when the host is silent, but not when it says "not ready" for ever.
const STUCK: Duration = Duration::from_secs(15);
/// How often that is looked at.
const STUCK_CHECK: Duration = Duration::from_secs(1);

/// Pieces of a transfer that a request's context keeps room for. Longer lists are rare (more than 512 blocks with their
/// tuples); kept by every request of every queue they would be most of the process.
const KEPT_SGES: usize = 1024;

/// A queue pair of a controller, or one that did not send Connect yet.
#[derive(Debug)]
pub(super) struct Queue {
    /// Its index in the transport's table.
    pub(super) index: u32,
    /// Its RDMA queue pair.
    pub(super) qpn: Qpn,
    /// Who it talks to.
    pub(super) peer: IpAddr,
    /// The address that the host connected to.
    pub(super) local: SocketAddr,
    /// What the host asked for when it connected.
    pub(super) request: QueueRequest,
    /// What Connect made of it.
    pub(super) role: Role,
    /// SQE flow control and head pointer.
    pub(super) sq_head: SqHead,
    /// Its limits and registrations, as contexts see them.
    pub(super) rw: RwQp,
    /// What it takes of the device.
    size: QueueSize,
    pub(super) requests: Vec<Request>,
    state: State,
    /// When it closes for lack of a Connect.
    connect_by: Instant,
    /// When commands are next looked at that the host keeps waiting.
    check_stuck: Instant,
    /// What its peer holds of the reactor's buffers.
    pub(super) share: Rc<Share>,
    /// Requests whose data is sent from where it lies.
    pub(super) in_place: Rc<Cell<u32>>,
    capsules: Capsules,
    free: Vec<u32>,
    /// Capsules that wait: for the connection to be established, or for a free request.
    waiting: VecDeque<Capsule>,
    credits: SqCredits<u32>,
    /// Command identifiers in use, a bit each.
    cids: Box<[u64; 1024]>,
    /// Requests whose response was not posted yet.
    inflight: u32,
    /// Requests that the engine holds.
    pub(super) engine_busy: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The host may not have seen our REP: commands wait.
    Connecting,
    Live,
    /// Commands under way are finished, others wait.
    Draining,
    /// The RDMA queue pair is gone; requests that the engine holds are waited for.
    Closing,
}

/// A received capsule in its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capsule {
    pub(super) slot: u32,
    /// Bytes received, the submission queue entry included.
    pub(super) length: u32,
}

/// Submission queue head: what the host learns from responses.
#[derive(Clone, Copy, Debug)]
pub(super) struct SqHead {
    /// Entries of the submission queue.
    pub(super) entries: u32,
    head: u32,
    /// Connect asked for no flow control: responses carry FFFFh.
    disabled: bool,
}

/// One command from its capsule to its response.
#[derive(Debug)]
pub(super) struct Request {
    /// Where it stands; meaningless while the slot is free.
    pub(super) progress: Option<Progress>,
    pub(super) cid: u16,
    pub(super) dptr: DataPointer,
    /// The pieces of its data, when the data pointer names several.
    pub(super) sgl: SglList,
    /// The capsule, as long as its in-capsule data is needed.
    pub(super) capsule: Option<Capsule>,
    pub(super) work: Work,
    pub(super) signing: Signing,
    pub(super) status: Status,
    pub(super) result: u64,
    /// Bytes of the data to send, when it is less than was asked for.
    pub(super) send_length: u32,
    pub(super) data: Option<Buf>,
    /// Of `data`, when that will hardly be needed.
    pub(super) promise: Option<Promise>,
    pub(super) md: Option<Buf>,
    /// Checksums of the data to send, when its check made them ([`Device::note_sums`]).
    pub(super) sums: Vec<u32>,
    /// Data and metadata as they stand on the wire, where the device can't fetch them into two buffers.
    pub(super) stream: Option<Buf>,
    /// The medium's side of a Compare.
    pub(super) medium_data: Option<Buf>,
    pub(super) medium_md: Option<Buf>,
    pub(super) range: Option<RangeGuard>,
    pub(super) range_wait: Option<RangeWait>,
    /// Its data, when that is not in `data`.
    pub(super) in_place: Option<InPlace>,
    /// What moves its data.
    pub(super) ctx: RwCtx,
    /// The same, of several pieces.
    pub(super) cc: ChunkCtx,
    pins: [Option<BufPin>; 2],
    /// Credits taken and not given back: something is posted.
    credits: u32,
    /// When that was posted.
    posted_at: Option<Instant>,
    /// Its part of what its peer holds of the buffers.
    pub(super) charge: Option<Charge>,
    /// Its response was not posted yet, and its identifier is in use.
    inflight: bool,
    /// The engine holds its buffers.
    pub(super) with_engine: bool,
    /// Its failure is in the error log already.
    pub(super) error_logged: bool,
    pub(super) opcode: u8,
    pub(super) nsid: u32,
}

impl SqHead {
    fn new(entries: u32) -> Self {
        Self { entries, head: 0, disabled: false }
    }

    /// Connect stated the size, and whether there is flow control.
    pub(super) fn connect(&mut self, entries: u32, flow_control: bool) {
        self.entries = entries;
        self.head %= entries.max(1);
        self.disabled = !flow_control;
    }

    /// A command was taken from the queue.
    fn advance(&mut self) {
        self.head += 1;
        if self.head >= self.entries {
            self.head = 0;
        }
    }

    fn value(&self) -> u16 {
        if self.disabled { SQHD_DISABLED } else { u16::try_from(self.head).unwrap_or(0) }
    }
}

impl Request {
    fn new() -> Self {
        Self {
            progress: None,
            cid: 0,
            dptr: DataPointer::None,
            sgl: SglList::new(),
            capsule: None,
            work: Work::None,
            signing: Signing::Software,
            status: Status::SUCCESS,
            result: 0,
            send_length: 0,
            data: None,
            promise: None,
            md: None,
            sums: Vec::with_capacity(KEPT_SUMS),
            stream: None,
            medium_data: None,
            medium_md: None,
            range: None,
            range_wait: None,
            in_place: None,
            ctx: RwCtx::new(),
            cc: ChunkCtx::new(),
            pins: [None, None],
            credits: 0,
            posted_at: None,
            charge: None,
            inflight: false,
            with_engine: false,
            error_logged: false,
            opcode: 0,
            nsid: 0,
        }
    }

    /// Lets go of everything but its slot.
    fn clear(&mut self, contexts: &mut CtxCache) {
        self.pins = [None, None];
        self.complete();
        self.unplan(contexts);
        self.ctx.shrink_to(KEPT_SGES);
        self.sgl.clear();
        self.sums.clear();
        self.sums.shrink_to(KEPT_SUMS);
        self.progress = None;
        self.posted_at = None;
        self.capsule = None;
        self.work = Work::None;
        self.signing = Signing::Software;
        self.dptr = DataPointer::None;
        self.release_memory();
    }

    /// Send-queue entries of what moves its data.
    fn wqes(&self) -> u32 {
        if self.cc.is_empty() { self.ctx.wqes() } else { self.cc.sqecount() }
    }

    /// Posts what moves its data; whether all of it was posted.
    fn post<D: Device>(&mut self, device: &mut D, qpn: Qpn, completion: Completion) -> bool {
        if self.cc.is_empty() {
            return self.ctx.post(device, qpn, completion).is_ok();
        }
        self.cc.post(device, qpn, completion) == Ok(Posting::All)
    }

    /// Whether the device may still use its memory.
    pub(super) fn is_posted(&self) -> bool {
        self.ctx.is_posted() || self.cc.is_posted()
    }

    /// What was posted has completed, or never will.
    fn complete(&mut self) {
        self.ctx.complete();
        self.cc.complete();
    }

    /// Gives up what moves its data; the device does not use it.
    pub(super) fn unplan(&mut self, contexts: &mut CtxCache) {
        self.ctx.destroy();
        self.cc.destroy(contexts);
    }

    /// The key that the response invalidates.
    fn invalidate_rkey(&self) -> Option<Rkey> {
        self.dptr.invalidate_rkey().or_else(|| self.sgl.invalidate_rkey())
    }

    /// Lets buffers and range go.
    pub(super) fn release_memory(&mut self) {
        self.in_place = None;
        self.data = None;
        self.promise = None;
        self.md = None;
        self.stream = None;
        self.medium_data = None;
        self.medium_md = None;
        self.range = None;
        self.range_wait = None;
        self.charge = None;
    }
}

/// What became of a try to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Post {
    /// Posted; a completion comes.
    Posted,
    /// Waits for send-queue credits in line.
    Waiting,
    /// The queue pair failed.
    Dead,
}

impl Queue {
    /// Whether the contexts of a queue have signatures, and what it takes of the device.
    pub(super) fn size_for<D: Device>(core: &Core<D>, request: &QueueRequest) -> (Integrity, QueueSize) {
        // Commands of admin queues have no blocks.
        let integrity = if request.qid == 0 { Integrity::Off } else { core.integrity };
        (integrity, core.queue_size(request.host_send_entries, integrity))
    }

    /// Makes the RDMA queue pair and its memory, and posts its receives.
    pub(super) fn open<D: Device>(
        core: &mut Core<D>,
        index: u32,
        request: QueueRequest,
        (local, peer): (SocketAddr, IpAddr),
        connect: impl FnOnce(&mut D, Qpn) -> QpConnect,
    ) -> Result<Self, DeviceError> {
        let entries = request.host_send_entries;
        let (integrity, size) = Self::size_for(core, &request);
        let cap = QpCap {
            max_send_wr: size.max_send_wr(&core.caps),
            max_recv_wr: entries,
            max_send_sge: core.caps.max_send_sge,
            max_recv_sge: 1,
            integrity,
        };
        let qpn = core.device.create_qp(core.pd, &cap)?;
        let pools = size.pools(&core.caps);
        let made = RwQp::init_pools(&mut core.device, core.pd, &cap, pools)
            .and_then(|rw| Self::open_on(core, index, request, (local, peer), (qpn, rw), &cap, connect));
        if made.is_err() {
            // The error to report is the first one; the queue pair exists, so this succeeds.
            let _ = core.device.destroy_qp(qpn);
        }
        made
    }

    fn open_on<D: Device>(
        core: &mut Core<D>,
        index: u32,
        request: QueueRequest,
        (local, peer): (SocketAddr, IpAddr),
        (qpn, mut rw): (Qpn, RwQp),
        cap: &QpCap,
        connect: impl FnOnce(&mut D, Qpn) -> QpConnect,
    ) -> Result<Self, DeviceError> {
        let entries = request.host_send_entries;
        let slots = slots(entries);
        let to = connect(&mut core.device, qpn);
        let capsules = match Capsules::new(&mut core.device, core.pd, entries, core.in_capsule_data, slots) {
            Ok(capsules) => capsules,
            Err(error) => {
                rw.cleanup_mrs(&mut core.device);
                return Err(error);
            }
        };
        let mut queue = Self {
            index,
            qpn,
            peer,
            local,
            request,
            role: Role::New,
            sq_head: SqHead::new(entries),
            rw,
            size: Self::size_for(core, &request).1,
            requests: (0..slots).map(|_| Request::new()).collect(),
            state: State::Connecting,
            connect_by: core.now + CONNECT_TIMEOUT,
            check_stuck: core.now + STUCK_CHECK,
            share: core.share(peer),
            in_place: Rc::default(),
            capsules,
            free: (0..slots).rev().collect(),
            waiting: VecDeque::with_capacity(entries as usize),
            credits: SqCredits::new(cap.max_send_wr, slots as usize),
            cids: Box::new([0; 1024]),
            inflight: 0,
            engine_busy: 0,
        };
        let posted = (0..entries).try_for_each(|slot| queue.post_receive(core, slot));
        if let Err(error) = posted.and_then(|()| core.device.connect_qp(qpn, &to)) {
            queue.rw.cleanup_mrs(&mut core.device);
            queue.capsules.release(&mut core.device);
            return Err(error);
        }
        Ok(queue)
    }

    fn post_receive<D: Device>(&self, core: &mut Core<D>, slot: u32) -> Result<(), DeviceError> {
        let wr_id = Posted::Receive { queue: self.index, slot }.wr_id();
        core.device
            .post_recv(self.qpn, &RecvWr { wr_id, sges: &[self.capsules.receive_sge(slot)] })
            .map_err(|_| DeviceError::NoResources("receives"))
    }

    /// The host knows of the connection: commands are carried out from now on.
    pub(super) fn established<D: Device>(&mut self, core: &mut Core<D>) {
        if self.state == State::Connecting {
            self.state = State::Live;
            self.admit_waiting(core);
        }
    }

    /// Whether the host never made it a queue of a controller.
    pub(super) fn is_unconnected(&self) -> bool {
        matches!(self.role, Role::New) && self.state != State::Closing
    }

    /// What it holds of the device.
    pub(super) fn held(&self, caps: &DeviceCaps) -> Held {
        Held { unconnected: usize::from(self.is_unconnected()), ..self.size.held(caps) }
    }

    /// Whether a command waits for its host for too long.
    pub(super) fn is_stuck(&mut self, now: Instant) -> bool {
        if now < self.check_stuck || self.state == State::Closing {
            return false;
        }
        self.check_stuck = now + STUCK_CHECK;
        self.requests.iter().any(|request| request.posted_at.is_some_and(|at| now >= at + STUCK))
    }

    /// Whether it waited for Connect long enough.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.is_unconnected() && now >= self.connect_by
    }

    /// Commands that arrive from now on are not carried out.
    pub(super) fn stop_admitting(&mut self) {
        if self.state == State::Live {
            self.state = State::Draining;
        }
    }

    /// Whether a command is under way, other than requests for asynchronous events, or its response not acknowledged.
    pub(super) fn has_commands(&self) -> bool {
        let events = self.requests.iter().filter(|request| request.is_event_request()).count();
        self.requests.len() - self.free.len() > events
    }

    /// A capsule arrived.
    pub(super) fn on_receive<D: Device>(&mut self, core: &mut Core<D>, slot: u32, wc: &Wc) {
        if slot < self.capsules.receives() && self.state != State::Closing {
            self.waiting.push_back(Capsule { slot, length: wc.byte_len });
            self.admit_waiting(core);
        }
    }

    /// Starts commands whose capsules wait, as far as there are free requests.
    fn admit_waiting<D: Device>(&mut self, core: &mut Core<D>) {
        while self.state == State::Live
            && !self.waiting.is_empty()
            && let Some(id) = self.free.pop()
        {
            let capsule = self.waiting.pop_front().expect("not empty");
            self.admit(core, id, capsule);
        }
    }

    fn admit<D: Device>(&mut self, core: &mut Core<D>, id: u32, capsule: Capsule) {
        const SQE: u32 = 64;
        if capsule.length < SQE {
            core.warn(|| tracing::warn!(peer = %self.peer, qpn = self.qpn.0, length = capsule.length, "capsule shorter than 64 bytes"));
            core.stats.bad_capsules.add(1);
            self.free.push(id);
            core.close_later(self.index);
            return;
        }
        let sqe = self.capsules.sqe(capsule.slot);
        let cid = sqe.cid.get();
        self.sq_head.advance();
        let request = &mut self.requests[id as usize];
        request.cid = cid;
        request.status = Status::SUCCESS;
        request.result = 0;
        request.send_length = u32::MAX;
        request.error_logged = false;
        (request.opcode, request.nsid) = (sqe.opc, sqe.nsid.get());
        request.inflight = true;
        request.capsule = Some(capsule);
        self.inflight += 1;
        let (word, bit) = (usize::from(cid / 64), 1u64 << (cid % 64));
        if self.inflight > self.sq_head.entries {
            core.warn(|| tracing::warn!(peer = %self.peer, qpn = self.qpn.0, entries = self.sq_head.entries, "more commands than the queue has entries"));
            core.stats.bad_capsules.add(1);
            core.close_later(self.index);
        }
        if self.cids[word] & bit != 0 {
            core.stats.cid_conflicts.add(1);
            self.start_failed(core, id, Status::COMMAND_ID_CONFLICT);
            // The identifier stays with the command that has it.
            self.requests[id as usize].inflight = false;
            return;
        }
        self.cids[word] |= bit;
        self.start(core, id, &sqe);
    }

    /// The capsule's slot is free for the next command: its data was copied, or has none.
    pub(super) fn release_capsule<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        if let Some(capsule) = self.requests[id as usize].capsule.take()
            && self.state != State::Closing
            && self.post_receive(core, capsule.slot).is_err()
        {
            core.close_later(self.index);
        }
    }

    /// In-capsule data of a request.
    pub(super) fn capsule_data(&self, capsule: Capsule, offset: u32, to: &mut [u8]) {
        self.capsules.read_data(capsule.slot, offset, to);
    }

    /// In-capsule data that a capsule of this queue may have, in bytes.
    pub(super) fn in_capsule_capacity(&self) -> u32 {
        self.capsules.data_capacity()
    }

    /// Posts a request's planned READs.
    pub(super) fn post_fetch<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Post {
        let wqes = self.requests[id as usize].wqes();
        match self.credits.take(id, wqes) {
            Take::Taken => self.post_fetch_now(core, id),
            Take::Queued => Post::Waiting,
            Take::TooMany | Take::Closed => Post::Dead,
        }
    }

    fn post_fetch_now<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Post {
        let request = &mut self.requests[id as usize];
        request.credits = request.wqes();
        request.posted_at = Some(core.now);
        request.pin();
        let completion = Completion::Own(Posted::Fetch { queue: self.index, request: id }.wr_id());
        if request.post(&mut core.device, self.qpn, completion) { Post::Posted } else { Post::Dead }
    }

    /// A request's READs completed.
    pub(super) fn fetched<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        let request = &mut self.requests[id as usize];
        self.credits.give(std::mem::take(&mut request.credits));
        request.posted_at = None;
        request.pins = [None, None];
        request.complete();
        request.ask_status(core);
        request.unplan(&mut core.contexts);
    }

    /// Takes credits for a response and the data before it; it is posted with the reactor's next batch.
    pub(super) fn queue_response<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        let request = &self.requests[id as usize];
        match self.credits.take(id, request.wqes() + 1) {
            Take::Taken => core.responses.push(Token { queue: self.index, request: id }),
            Take::Queued => {}
            Take::TooMany | Take::Closed => core.close_later(self.index),
        }
    }

    /// Posts the data of a response, if it has any. All data of a batch goes before all responses of the batch: packets of one
    /// size stand together and leave in few system calls.
    pub(super) fn post_data<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        let request = &mut self.requests[id as usize];
        request.credits = request.wqes() + 1;
        request.posted_at = Some(core.now);
        if request.credits == 1 || self.state == State::Closing {
            return;
        }
        request.pin();
        let completion = Completion::Chained(Posted::Respond { queue: self.index, request: id }.wr_id());
        if !request.post(&mut core.device, self.qpn, completion) {
            core.close_later(self.index);
        } else if !request.sums.is_empty() {
            core.device.note_sums(self.qpn, &request.sums);
        }
    }

    /// Posts the response itself.
    pub(super) fn post_response<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        if self.state == State::Closing {
            return;
        }
        self.release_capsule(core, id);
        let request = &mut self.requests[id as usize];
        if std::mem::take(&mut request.inflight) {
            self.cids[usize::from(request.cid / 64)] &= !(1 << (request.cid % 64));
        }
        self.inflight -= 1;
        core.stats.commands.add(1);
        self.role.count(request, core.reactor, &core.stats);
        tracing::trace!(
            peer = %self.peer,
            qid = self.request.qid,
            cid = request.cid,
            opcode = %format_args!("{:#04x}", request.opcode),
            nsid = request.nsid,
            status = %request.status,
            "command answered"
        );
        let cqe = Cqe::new(request.cid, self.sq_head.value(), request.status, request.result);
        let sge: Sge = self.capsules.write_response(id, &cqe);
        // A host invalidates the key by itself where this does not.
        let key = request.invalidate_rkey().filter(|_| core.caps.send_with_inv);
        let op = key.map_or(SendOp::Send, |key: Rkey| SendOp::SendWithInv(key));
        let wr = SendWr {
            wr_id: Posted::Respond { queue: self.index, request: id }.wr_id(),
            op,
            sges: &[sge],
            signal: Signal::Signaled,
            fence: Fence::None,
        };
        if core.device.post_send(self.qpn, &wr).is_err() {
            core.close_later(self.index);
        }
    }

    /// A response was acknowledged: its request is free.
    pub(super) fn responded<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        let request = &mut self.requests[id as usize];
        self.credits.give(std::mem::take(&mut request.credits));
        request.clear(&mut core.contexts);
        self.free.push(id);
        self.resume_credits(core);
        self.admit_waiting(core);
    }

    /// Posts for those who waited for send-queue credits.
    pub(super) fn resume_credits<D: Device>(&mut self, core: &mut Core<D>) {
        while let Some(id) = self.credits.next_ready() {
            let fetching = self.requests[id as usize].progress.as_ref().is_some_and(|p| !p.is_last());
            if !fetching {
                core.responses.push(Token { queue: self.index, request: id });
            } else if self.post_fetch_now(core, id) == Post::Dead {
                core.close_later(self.index);
            }
        }
    }

    /// Takes the RDMA queue pair down: the device touches no memory of this queue any more. Requests that the engine holds
    /// stay until it gives them back; [`Self::is_idle`] tells when.
    pub(super) fn close<D: Device>(&mut self, core: &mut Core<D>) {
        if self.state == State::Closing {
            return;
        }
        self.state = State::Closing;
        // It exists: destroyed here only.
        let _ = core.device.destroy_qp(self.qpn);
        self.waiting.clear();
        self.credits.close().for_each(drop);
        for request in &mut self.requests {
            if !request.with_engine {
                request.clear(&mut core.contexts);
            }
        }
    }

    /// Whether it is closed.
    pub(super) fn is_closing(&self) -> bool {
        self.state == State::Closing
    }

    /// Whether nothing uses the queue's memory any more.
    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Closing && self.engine_busy == 0
    }

    /// Ends it.
    pub(super) fn release<D: Device>(mut self, core: &mut Core<D>) {
        debug_assert!(self.is_idle(), "released when nothing uses it");
        self.rw.cleanup_mrs(&mut core.device);
        self.capsules.release(&mut core.device);
    }

    /// A request that the engine gave back after the queue closed.
    pub(super) fn forget<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        self.requests[id as usize].clear(&mut core.contexts);
    }
}

impl Request {
    /// Whether it is a request for an asynchronous event, which waits for one.
    pub(super) fn is_event_request(&self) -> bool {
        self.opcode == admin_opcode::ASYNC_EVENT_REQUEST
            && matches!(&self.work, Work::Admin(_))
            && self.progress.as_ref().is_some_and(|progress| progress.step() == Step::Execute)
    }

    /// Keeps the buffers' memory while the device uses it.
    pub(super) fn pin(&mut self) {
        let data = self.data.as_mut().filter(|_| self.in_place.is_none());
        let second = self.stream.as_mut().or(self.md.as_mut());
        self.pins = [data.map(Buf::pin), second.map(Buf::pin)];
    }
}
