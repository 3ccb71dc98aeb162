//! One iSCSI connection on one RDMA queue pair: its messages, its tasks, its credits.
//!
//! Owns message intake (receive slots) and the way back: messages, and the data before responses, in the order in which they
//! got their numbers. What a task does is decided in `exec`.

mod opening;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rwctx::ctx::Completion;
use rwctx::device::{Device, DeviceError, Qpn};
use rwctx::qp::RwQp;
use rwctx::sq::{SqCredits, Take};
use rwctx::wc::Wc;
use rwctx::wr::{Fence, RecvWr, SendOp, SendWr, Signal};

use super::Common;
use super::request::{Arrived, Request};
use crate::iscsi::login::Login;
use crate::iscsi::name::IscsiName;
use crate::iscsi::outgoing::Outgoing;
use crate::iscsi::registry::Attached;
use crate::iscsi::session::{Command, Invalidation, Session, TaskId};
use crate::iscsi::sessions::Admission;
use crate::scsi::shared::NexusView;
use crate::transport::Event;
use crate::transport::core::{Core, Token};
use crate::transport::share::Share;
use crate::transport::slots::Slots;
use crate::transport::wr_id::Posted;

/// Commands that a host may have under way, beside immediate ones.
pub(super) const WINDOW: u16 = 128;
/// Silence after which a host is asked whether it is there.
pub(super) const IDLE: Duration = Duration::from_secs(30);
/// Time for its answer.
pub(super) const ANSWER: Duration = Duration::from_secs(15);
/// How long a login may take.
const LOGIN: Duration = Duration::from_secs(15);
/// Messages that wait for a look at them, beside commands.
const SPARE_RECEIVES: u32 = 8;
/// Messages under way that are no responses to commands.
const CONTROLS: u32 = 32;
/// Those of them that are kept for what is no answer to the next message: ends of task management, pings.
const KEPT_CONTROLS: usize = 16;
/// Bytes of additional headers: an extended CDB.
const AHS_MAX: usize = 64;
/// How long a host may take to give or take a command's data, and to acknowledge a message: it holds a buffer all the time.
/// The RDMA connection fails sooner when the host is silent, but not when it says "not ready" for ever.
const STUCK: Duration = Duration::from_secs(15);
/// How often that is looked at.
const STUCK_CHECK: Duration = Duration::from_secs(1);

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// Its number in the transport.
    pub(super) index: u32,
    pub(super) qpn: Qpn,
    pub(super) peer: IpAddr,
    /// What its peer holds of the reactor's buffers.
    pub(super) share: Rc<Share>,
    /// Its limits and registrations, as contexts see them.
    pub(super) rw: RwQp,
    pub(super) invalidation: Invalidation,
    pub(super) phase: Phase,
    /// The session's place, once it has one.
    pub(super) place: Option<Admission>,
    /// And its nexus.
    pub(super) attached: Option<Attached>,
    pub(super) requests: Vec<Request>,
    /// Requests by task.
    pub(super) tasks: Vec<Option<u32>>,
    /// Commands that were not started, with the message whose data came along.
    pub(super) commands: VecDeque<(Command, Option<Arrived>)>,
    /// Tasks that are to end.
    pub(super) aborts: Vec<TaskId>,
    /// The request whose task has just ended.
    pub(super) answering: Option<u32>,
    /// Requests that the engine holds.
    pub(super) engine_busy: u32,
    state: State,
    check_stuck: Instant,
    received: Slots,
    responses: Slots,
    controls: Slots,
    control_sends: Vec<Control>,
    free: Vec<u32>,
    free_controls: Vec<u32>,
    arrived: VecDeque<Arrived>,
    credits: SqCredits<u32>,
}

/// Where a connection stands in its protocol.
#[derive(Debug)]
pub(super) enum Phase {
    Login(Box<Login>),
    Session(Box<Logged>),
}

/// A session in its full feature phase.
#[derive(Debug)]
pub(super) struct Logged {
    pub(super) session: Session,
    pub(super) view: NexusView,
    pub(super) initiator: IscsiName,
    pub(super) target: Option<IscsiName>,
}

/// A message that is no response to a command.
#[derive(Debug, Default)]
struct Control {
    outgoing: Option<Outgoing>,
    posted_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The host may not have seen our REP: messages wait.
    Connecting,
    Live,
    /// Commands under way are finished, messages are not looked at.
    Draining,
    /// What was said to be sent is sent, then it is closed.
    Ending,
    /// The RDMA queue pair is gone; requests that the engine holds are waited for.
    Closing,
}

/// What became of a try to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Post {
    /// Posted, or it is when its turn comes.
    Posted,
    /// The queue pair failed.
    Dead,
}

impl Connection {
    fn post_receive<D: Device>(&self, core: &mut Core<D>, slot: u32) -> Result<(), DeviceError> {
        let wr_id = Posted::Receive { queue: self.index, slot }.wr_id();
        core.device
            .post_recv(self.qpn, &RecvWr { wr_id, sges: &[self.received.receive(slot)] })
            .map_err(|_| DeviceError::NoResources("receives"))
    }

    /// A message's slot is free for another one.
    pub(super) fn repost<D: Device>(&self, core: &mut Core<D>, arrived: Arrived) {
        if self.state != State::Closing && self.post_receive(core, arrived.slot).is_err() {
            core.close_later(self.index);
        }
    }

    /// The host knows of the connection: its messages are looked at from now on.
    pub(super) fn established<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common) {
        if self.state == State::Connecting {
            self.state = State::Live;
            self.take_messages(core, common);
        }
    }

    /// Whether its login is not through.
    pub(super) fn is_logging_in(&self) -> bool {
        matches!(self.phase, Phase::Login(_)) && self.state != State::Closing
    }

    /// Messages that arrive from now on are not looked at.
    pub(super) fn stop_admitting(&mut self) {
        if matches!(self.state, State::Live | State::Connecting) {
            self.state = State::Draining;
        }
    }

    /// Whether a command is under way, or a message not acknowledged.
    pub(super) fn has_commands(&self) -> bool {
        !self.commands.is_empty() || !self.is_quiet()
    }

    /// Whether nothing is under way.
    fn is_quiet(&self) -> bool {
        self.free.len() == self.requests.len() && self.free_controls.len() == CONTROLS as usize
    }

    /// A message arrived.
    pub(super) fn on_receive<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        slot: u32,
        wc: &Wc,
    ) {
        if slot < self.received.count() && !matches!(self.state, State::Ending | State::Closing) {
            self.arrived.push_back(Arrived { slot, length: wc.byte_len });
            self.take_messages(core, common);
        }
    }

    /// Looks at messages, as long as what they ask for can be answered.
    pub(super) fn take_messages<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common) {
        while self.state == State::Live
            && self.free_controls.len() > KEPT_CONTROLS
            && self.commands.is_empty()
            && let Some(arrived) = self.arrived.pop_front()
        {
            let mut bytes = std::mem::take(&mut core.message);
            bytes.resize(arrived.length as usize, 0);
            self.received.read(arrived.slot, 0, &mut bytes);
            let mut left = Some(arrived);
            match &mut self.phase {
                Phase::Login(login) => {
                    login.handle_message(core.now, &bytes);
                    self.run_login(core, common);
                }
                Phase::Session(logged) => {
                    logged.session.handle_message(core.now, &bytes);
                    self.run_session(core, common, &mut left);
                }
            }
            core.message = bytes;
            if let Some(arrived) = left {
                self.repost(core, arrived);
            }
            self.abort_tasks(core, common);
            self.start_commands(core, common);
        }
    }

    /// Copies data that came along with a command.
    pub(super) fn read_received(&self, arrived: Arrived, offset: usize, to: &mut [u8]) {
        self.received.read(arrived.slot, offset, to);
    }

    /// Starts commands, as far as there are free requests.
    fn start_commands<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common) {
        while !matches!(self.state, State::Ending | State::Closing)
            && !self.commands.is_empty()
            && let Some(id) = self.free.pop()
        {
            let (command, arrived) = self.commands.pop_front().expect("not empty");
            self.tasks[command.task.index()] = Some(id);
            self.start(core, common, id, command, arrived);
        }
    }

    /// Takes credits for a message; it is posted with the reactor's next batch.
    pub(super) fn send<D: Device>(&mut self, core: &mut Core<D>, outgoing: Outgoing) {
        if matches!(self.state, State::Ending | State::Closing) {
            return;
        }
        // A host has to take messages before it causes so many; the rest is for those that it does not cause.
        let Some(id) = self.free_controls.pop() else { return core.close_later(self.index) };
        self.control(id).expect("it is a control's").outgoing = Some(outgoing);
        self.queue(core, id, 1);
    }

    /// Takes credits for a response and the data before it.
    pub(super) fn respond<D: Device>(&mut self, core: &mut Core<D>, id: u32, outgoing: Outgoing) {
        let request = &mut self.requests[id as usize];
        request.response = Some(outgoing);
        let wqes = request.ctx.wqes() + 1;
        self.queue(core, id, wqes);
    }

    fn queue<D: Device>(&mut self, core: &mut Core<D>, id: u32, entries: u32) {
        match self.credits.take(id, entries) {
            Take::Taken => core.responses.push(Token { queue: self.index, request: id }),
            Take::Queued => {}
            Take::TooMany | Take::Closed => core.close_later(self.index),
        }
    }

    fn control(&mut self, id: u32) -> Option<&mut Control> {
        let at = (id as usize).checked_sub(self.requests.len())?;
        self.control_sends.get_mut(at)
    }

    /// Posts a request's planned READs.
    pub(super) fn post_fetch<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Post {
        let request = &mut self.requests[id as usize];
        request.fetching = true;
        let wqes = request.ctx.wqes();
        match self.credits.take(id, wqes) {
            Take::Taken => self.post_fetch_now(core, id),
            Take::Queued => Post::Posted,
            Take::TooMany | Take::Closed => Post::Dead,
        }
    }

    fn post_fetch_now<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Post {
        let request = &mut self.requests[id as usize];
        request.credits = request.ctx.wqes();
        request.posted_at = Some(core.now);
        request.pin();
        let completion = Completion::Own(Posted::Fetch { queue: self.index, request: id }.wr_id());
        match request.ctx.post(&mut core.device, self.qpn, completion) {
            Ok(()) => Post::Posted,
            Err(_) => Post::Dead,
        }
    }

    /// A request's READs completed.
    pub(super) fn fetched<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        let request = &mut self.requests[id as usize];
        self.credits.give(std::mem::take(&mut request.credits));
        request.fetching = false;
        request.posted_at = None;
        request.unpin();
        request.ctx.complete();
        request.ctx.destroy();
        self.resume_credits(core);
    }

    /// Posts the data of a response, if it has any.
    pub(super) fn post_data<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        let Some(request) = self.requests.get_mut(id as usize) else { return };
        request.credits = request.ctx.wqes() + 1;
        request.posted_at = Some(core.now);
        if request.credits == 1 || self.state == State::Closing {
            return;
        }
        request.pin();
        let completion = Completion::Chained(Posted::Respond { queue: self.index, request: id }.wr_id());
        if request.ctx.post(&mut core.device, self.qpn, completion).is_err() {
            core.close_later(self.index);
        }
    }

    /// Posts a message: a response, or another one.
    pub(super) fn post_message<D: Device>(&mut self, core: &mut Core<D>, common: &Common, id: u32) {
        if self.state == State::Closing {
            return;
        }
        let now = core.now;
        let (outgoing, slots, slot) = match self.requests.get_mut(id as usize) {
            Some(request) => {
                common.stats.commands.add(1);
                (request.response.take(), &self.responses, id)
            }
            None => {
                let slot = id - u32::try_from(self.requests.len()).expect("a few hundred");
                let control = &mut self.control_sends[slot as usize];
                control.posted_at = Some(now);
                (control.outgoing.take(), &self.controls, slot)
            }
        };
        let Some(outgoing) = outgoing else { return };
        core.message.resize(outgoing.emitted_len(), 0);
        let length = outgoing.emit(&mut core.message);
        let sge = slots.write(slot, &core.message[..length]);
        let wr = SendWr {
            wr_id: Posted::Respond { queue: self.index, request: id }.wr_id(),
            op: outgoing.invalidate.map_or(SendOp::Send, SendOp::SendWithInv),
            sges: &[sge],
            signal: Signal::Signaled,
            fence: Fence::None,
        };
        if core.device.post_send(self.qpn, &wr).is_err() {
            core.close_later(self.index);
        }
    }

    /// A message was acknowledged: its slot is free.
    pub(super) fn responded<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common, id: u32) {
        match self.requests.get_mut(id as usize) {
            Some(request) => {
                self.credits.give(std::mem::take(&mut request.credits));
                request.clear();
                self.free.push(id);
            }
            None => {
                self.credits.give(1);
                if let Some(control) = self.control(id) {
                    *control = Control::default();
                    self.free_controls.push(id);
                }
            }
        }
        self.resume_credits(core);
        self.start_commands(core, common);
        self.take_messages(core, common);
        self.close_if_ended(core);
    }

    /// Posts for those who waited for send-queue credits.
    fn resume_credits<D: Device>(&mut self, core: &mut Core<D>) {
        while let Some(id) = self.credits.next_ready() {
            let fetching = self.requests.get(id as usize).is_some_and(|request| request.fetching);
            if !fetching {
                core.responses.push(Token { queue: self.index, request: id });
            } else if self.post_fetch_now(core, id) == Post::Dead {
                core.close_later(self.index);
            }
        }
    }

    /// A request whose task has ended without a response is free.
    pub(super) fn free_request(&mut self, id: u32) {
        self.requests[id as usize].clear();
        self.free.push(id);
    }

    /// Closes it once what was said to be sent is sent.
    pub(super) fn end_soon<D: Device>(&mut self, core: &mut Core<D>) {
        if !matches!(self.state, State::Ending | State::Closing) {
            self.state = State::Ending;
            self.close_if_ended(core);
        }
    }

    fn close_if_ended<D: Device>(&self, core: &mut Core<D>) {
        let sending = |request: &Request| request.task.is_none() && request.progress.is_some();
        let sent = self.free_controls.len() == CONTROLS as usize && !self.requests.iter().any(sending);
        if self.state == State::Ending && sent {
            core.close_later(self.index);
        }
    }

    /// Does what is due.
    pub(super) fn tick<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common) {
        if self.state == State::Closing {
            return;
        }
        match &mut self.phase {
            Phase::Login(login) => {
                login.handle_timeout(core.now);
                self.run_login(core, common);
            }
            Phase::Session(logged) => {
                logged.session.handle_timeout(core.now);
                self.run_session(core, common, &mut None);
                self.abort_tasks(core, common);
            }
        }
        if core.now >= self.check_stuck {
            self.check_stuck = core.now + STUCK_CHECK;
            if self.is_stuck(core.now) {
                common.stats.stuck_connections.add(1);
                core.warn(|| tracing::warn!(peer = %self.peer, qpn = self.qpn.0, "an iSCSI host takes no data or messages"));
                core.close_later(self.index);
            }
        }
    }

    /// Whether something waits for the host for too long.
    fn is_stuck(&self, now: Instant) -> bool {
        let posted = self.requests.iter().map(|request| request.posted_at);
        let posted = posted.chain(self.control_sends.iter().map(|control| control.posted_at));
        posted.flatten().any(|at| now >= at + STUCK)
    }

    /// Takes the RDMA queue pair down: the device touches no memory of this connection any more. Requests that the engine
    /// holds stay until it gives them back; [`Self::is_idle`] tells when.
    pub(super) fn close<D: Device>(&mut self, core: &mut Core<D>) {
        self.state = State::Closing;
        // It exists: destroyed here only.
        let _ = core.device.destroy_qp(self.qpn);
        self.arrived.clear();
        self.commands.clear();
        self.aborts.clear();
        self.credits.close().for_each(drop);
        for request in self.requests.iter_mut().filter(|request| !request.with_engine) {
            request.clear();
        }
    }

    /// Whether it is closed.
    pub(super) fn is_closing(&self) -> bool {
        self.state == State::Closing
    }

    /// Whether its end was meant.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending | State::Draining)
    }

    /// Whether nothing uses its memory any more.
    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Closing && self.engine_busy == 0
    }

    /// Ends it, and its session.
    pub(super) fn release<D: Device>(self, core: &mut Core<D>, common: &Common) {
        debug_assert!(self.is_idle(), "released when nothing uses it");
        if let Some(place) = self.place {
            common.registry.end(place.tsih);
            core.events.push(Event::Iscsi(super::Notice::Ended));
        }
        self.release_memory(core);
    }

    fn release_memory<D: Device>(mut self, core: &mut Core<D>) {
        // Contexts give their registrations back first.
        self.requests.clear();
        self.rw.cleanup_mrs(&mut core.device);
        for slots in [self.received, self.responses, self.controls] {
            slots.release(&mut core.device);
        }
    }
}
