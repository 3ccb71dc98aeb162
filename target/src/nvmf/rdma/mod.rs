//! NVMe over RDMA: queue pairs, their commands and their data, on one reactor's device.
//!
//! `Queues` are those of one reactor. Its [`Transport`](crate::transport::Transport) hands completions and what was waited for
//! to them. Connections are made and ended by the connection manager's owner, which talks to them by calls; what they want of
//! others they say in [`Event`]s.

mod admin;
mod capsules;
mod exec;
mod io;
mod queue;
mod role;
mod signed;
mod stream;

use std::net::{IpAddr, SocketAddr};

use rwctx::device::{Device, QpConnect, Qpn};
use rwctx::wc::{Wc, WcStatus};

use self::queue::Queue;
use crate::block::IoDone;
use crate::nvmf::wire::private_data::{QueueRequest, RejectStatus};
use crate::transport::Event;
use crate::transport::core::{Buffers, Core, Token};
use crate::transport::share::peer_group;
use crate::transport::size::Held;
use crate::transport::wr_id::Posted;

pub(crate) use self::signed::check_offload;

/// All NVMe queues of one reactor.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    queues: Vec<Option<Box<Queue>>>,
    /// Queues that are closed and not released.
    closed: Vec<usize>,
}

impl Queues {
    /// Makes a queue for a connection request. `connect` says where to connect the queue pair, once its number is known.
    ///
    /// # Errors
    /// The status to reject the connection with.
    pub(crate) fn open<D: Device>(
        &mut self,
        core: &mut Core<D>,
        request: QueueRequest,
        local: SocketAddr,
        peer: IpAddr,
        connect: impl FnOnce(&mut D, Qpn) -> QpConnect,
    ) -> Result<Qpn, RejectStatus> {
        if !self.has_room_for(core, peer, &request) {
            core.stats.refused_queues.add(1);
            core.warn(|| tracing::warn!(%peer, "too many queues"));
            return Err(RejectStatus::NoResources);
        }
        let index = self.queues.iter().position(Option::is_none).unwrap_or(self.queues.len());
        let number = u32::try_from(index).expect("there are at most as many as there may be");
        match Queue::open(core, number, request, (local, peer), connect) {
            Ok(queue) => {
                let qpn = queue.qpn;
                if index == self.queues.len() {
                    self.queues.push(None);
                }
                self.queues[index] = Some(Box::new(queue));
                core.stats.queues.add(1);
                Ok(qpn)
            }
            Err(error) => {
                core.warn(|| tracing::warn!(%peer, %error, "no resources for a queue"));
                Err(RejectStatus::NoResources)
            }
        }
    }

    /// Whether a peer may have another queue: it holds at most as much of the device as it leaves to others.
    fn has_room_for<D: Device>(&self, core: &Core<D>, peer: IpAddr, request: &QueueRequest) -> bool {
        let (peer, caps) = (peer_group(peer), &core.caps);
        let (mut all, mut own) = (Held::default(), Held::default());
        for queue in self.queues.iter().flatten() {
            let held = queue.held(caps);
            all += held;
            if peer_group(queue.peer) == peer {
                own += held;
            }
        }
        Held::allows(&all, &own, &Queue::size_for(core, request).1.held(caps))
    }

    /// The peer knows of the connection: its commands are carried out.
    pub(crate) fn established<D: Device>(&mut self, core: &mut Core<D>, qpn: Qpn) {
        if let Some(queue) = find(&mut self.queues, qpn) {
            queue.established(core);
        }
    }

    /// The connection ended: the queue is closed, and with an admin queue its controller.
    pub(crate) fn disconnected<D: Device>(&mut self, core: &mut Core<D>, qpn: Qpn) {
        if let Some(index) = self.queues.iter().position(|q| q.as_ref().is_some_and(|q| q.qpn == qpn)) {
            self.close(core, index, Closed::ByPeer);
        }
    }

    /// A controller ended elsewhere: closes its queues here.
    pub(crate) fn controller_gone<D: Device>(&mut self, core: &mut Core<D>, cntlid: u16) {
        for index in 0..self.queues.len() {
            if self.queues[index].as_ref().is_some_and(|queue| queue.cntlid() == Some(cntlid)) {
                self.close(core, index, Closed::ByUs);
            }
        }
    }

    /// A controller was reset elsewhere: closes its I/O queues here.
    pub(crate) fn controller_reset<D: Device>(&mut self, core: &mut Core<D>, cntlid: u16) {
        for index in 0..self.queues.len() {
            if self.queues[index].as_ref().is_some_and(|queue| queue.is_io_of(cntlid)) {
                self.close(core, index, Closed::ByUs);
            }
        }
    }

    /// An I/O queue of a controller whose admin queue is here was connected.
    pub(crate) fn io_queue_connected(&mut self, cntlid: u16) {
        for queue in self.queues.iter_mut().flatten().filter(|queue| queue.cntlid() == Some(cntlid)) {
            queue.io_queue_connected();
        }
    }

    /// Takes no more commands.
    pub(crate) fn stop_admitting(&mut self) {
        for queue in self.queues.iter_mut().flatten() {
            queue.stop_admitting();
        }
    }

    /// Closes the queues whose last command is answered, or all.
    pub(crate) fn close_drained<D: Device>(&mut self, core: &mut Core<D>, all: bool) {
        for index in 0..self.queues.len() {
            let drained = |queue: &Queue| all || !queue.has_commands();
            if self.queues[index].as_deref().is_some_and(drained) {
                self.close(core, index, Closed::ByUs);
            }
        }
    }

    /// Queues that are not closed, or not yet released.
    pub(crate) fn len(&self) -> usize {
        self.queues.iter().flatten().count()
    }

    /// Controllers may have events for their hosts: looks at those whose admin queue is here.
    pub(crate) fn controllers_changed<D: Device>(&mut self, core: &mut Core<D>) {
        for queue in self.queues.iter_mut().flatten() {
            queue.take_async_events(core);
        }
    }

    /// The number of the queue with this queue pair.
    pub(crate) fn index_of(&self, qpn: Qpn) -> Option<u32> {
        self.queues.iter().flatten().find(|queue| queue.qpn == qpn).map(|queue| queue.index)
    }

    /// A work request completed; whether the queue pair is still of use.
    pub(crate) fn on_completion<D: Device>(&mut self, core: &mut Core<D>, posted: Posted, wc: &Wc) -> bool {
        let Some(queue) = self.at(posted.queue()) else { return true };
        if queue.qpn != wc.qpn || queue.is_closing() {
            return true;
        }
        if wc.status != WcStatus::Success {
            if wc.status != WcStatus::WrFlushErr {
                let (peer, qid) = (queue.peer, queue.request.qid);
                core.warn(|| tracing::warn!(%peer, qpn = wc.qpn.0, qid, status = ?wc.status, opcode = ?wc.opcode, "work request failed"));
            }
            return false;
        }
        match posted {
            Posted::Receive { slot, .. } => queue.on_receive(core, slot, wc),
            Posted::Fetch { request, .. } => queue.on_fetched(core, request),
            Posted::Respond { request, .. } => queue.responded(core, request),
        }
        true
    }

    /// The engine completed an operation.
    pub(crate) fn on_engine<D: Device>(&mut self, core: &mut Core<D>, token: Token, done: IoDone) {
        match self.at(token.queue) {
            Some(queue) => queue.on_engine(core, token.request, done),
            None => debug_assert!(false, "a queue lives until the engine gave everything back"),
        }
    }

    /// Tries again for the range that a request waits for; whether it still does.
    pub(crate) fn retry_range<D: Device>(&mut self, core: &mut Core<D>, token: Token) -> bool {
        self.at(token.queue).is_some_and(|queue| !queue.retry_range(core, token.request))
    }

    /// Goes on with a request where it waits.
    pub(crate) fn advance<D: Device>(&mut self, core: &mut Core<D>, token: Token) {
        if let Some(queue) = self.at(token.queue) {
            queue.advance(core, token.request);
        }
    }

    /// Tries again for buffers, unless a request of this peer was passed over in this round; `None` when the queue is gone.
    pub(crate) fn retry_buffers<D: Device>(
        &mut self,
        core: &mut Core<D>,
        token: Token,
        round: u64,
    ) -> Option<Buffers> {
        let queue = self.at(token.queue)?;
        if core.room_wanted {
            return Some(Buffers::NoRoom);
        }
        if queue.share.passed_over.get() == round {
            return Some(Buffers::OverShare);
        }
        let taken = queue.retry_buffers(core, token.request);
        if taken == Buffers::OverShare {
            queue.share.passed_over.set(round);
        }
        Some(taken)
    }

    /// Lets ranges go that are held for hosts while others wait for them.
    pub(crate) fn yield_ranges<D: Device>(&mut self, core: &mut Core<D>) {
        for queue in self.queues.iter_mut().flatten() {
            queue.yield_ranges(core);
        }
    }

    /// Goes on with a request at the end of the round.
    pub(crate) fn resume<D: Device>(&mut self, core: &mut Core<D>, token: Token) {
        if let Some(queue) = self.at(token.queue) {
            queue.resume(core, token.request);
        }
    }

    /// Posts the data of a response.
    pub(crate) fn post_data<D: Device>(&mut self, core: &mut Core<D>, token: Token) {
        if let Some(queue) = self.at(token.queue) {
            queue.post_data(core, token.request);
        }
    }

    /// Posts a response.
    pub(crate) fn post_response<D: Device>(&mut self, core: &mut Core<D>, token: Token) {
        if let Some(queue) = self.at(token.queue) {
            queue.post_response(core, token.request);
        }
    }

    /// Looks at what is due.
    pub(crate) fn tick<D: Device>(&mut self, core: &mut Core<D>) {
        for queue in self.queues.iter_mut().flatten() {
            queue.tick(core);
        }
    }

    /// Tells others what happened to controllers in this round.
    pub(crate) fn settle<D: Device>(&mut self, core: &mut Core<D>) {
        let Core { io_connected, events, .. } = core;
        events
            .extend(io_connected.drain(..).map(|(cntlid, reactor)| Event::IoQueueConnected(cntlid, reactor)));
        while let Some(cntlid) = core.resets.pop() {
            core.events.push(Event::ControllerReset(cntlid));
            self.controller_reset(core, cntlid);
        }
    }

    /// Closes a queue that failed.
    pub(crate) fn close_failed<D: Device>(&mut self, core: &mut Core<D>, index: u32) {
        core.stats.failed_queues.add(1);
        self.close(core, index as usize, Closed::ByUs);
    }

    /// Lets go of queues that are closed and whose memory nobody uses.
    pub(crate) fn release_idle<D: Device>(&mut self, core: &mut Core<D>) {
        let Self { closed, queues } = self;
        closed.retain(|&index| {
            let idle = queues[index].take_if(|queue| queue.is_idle());
            let kept = idle.is_none();
            if let Some(queue) = idle {
                queue.release(core);
            }
            kept
        });
    }

    fn close<D: Device>(&mut self, core: &mut Core<D>, index: usize, by: Closed) {
        let Some(Some(queue)) = self.queues.get_mut(index) else { return };
        if queue.is_closing() {
            return;
        }
        tracing::debug!(peer = %queue.peer, qpn = queue.qpn.0, qid = queue.request.qid, "queue closed");
        queue.close(core);
        self.closed.push(index);
        let waited = core.forget_waiters(queue.index, &queue.share);
        queue.share.waiting.set(queue.share.waiting.get().saturating_sub(waited));
        let open = core.stats.queues.value();
        core.stats.queues.set(open.saturating_sub(1));
        if by == Closed::ByUs {
            core.events.push(Event::QueueClosed(queue.qpn));
        }
        if let Some(cntlid) = queue.leave_controller(core) {
            core.events.push(Event::ControllerGone(cntlid));
            self.controller_gone(core, cntlid);
        }
    }

    fn at(&mut self, index: u32) -> Option<&mut Queue> {
        self.queues.get_mut(index as usize)?.as_deref_mut()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    ByUs,
    ByPeer,
}

fn find(queues: &mut [Option<Box<Queue>>], qpn: Qpn) -> Option<&mut Queue> {
    queues.iter_mut().flatten().find(|queue| queue.qpn == qpn).map(Box::as_mut)
}
