//! NVMe over RDMA: queue pairs, their commands and their data, on one reactor's device.
//!
//! [`Transport`] owns every queue of its reactor. Each round it takes completions of the device and of the I/O engine, carries
//! commands on as far as they go, and posts the round's responses in one batch. Connections are made and ended by the
//! connection manager's owner, which talks to it by calls; what it wants of others it says in [`Event`]s.

mod admin;
mod capsules;
mod core;
mod exec;
mod io;
mod queue;
mod role;
mod stats;
mod stream;
mod wr_id;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rwctx::device::{Device, DeviceError, QpConnect, QpEvent, Qpn};
use rwctx::wc::{Wc, WcStatus};
use t10pi::Ahead;

use self::core::{Core, Token};
use self::io::Buffers;
use self::queue::Queue;
use self::wr_id::Posted;
use crate::block::{BufPool, Engine};
use crate::nvmf::registry::{Registry, peer_group};
use crate::nvmf::wire::private_data::{QueueRequest, RejectStatus};

pub use self::stats::{Counter, Stats};

/// Completions and requests handled in one round at most, so that timers and messages get their turn.
const ROUND: usize = 1024;

/// Bytes of data that are checked in a round at most before they are sent: about half of a second-level cache.
const NEAR: usize = 512 << 10;

/// All queues of one reactor.
#[derive(Debug)]
pub struct Transport<D: Device> {
    core: Core<D>,
    queues: Vec<Option<Box<Queue>>>,
    /// Scratch list, reused.
    tokens: Vec<Token>,
    /// Reused as well.
    prefetched: Vec<(Token, Ahead)>,
    events: Vec<Event>,
    /// Tries to give buffers to those who wait.
    buffer_rounds: u64,
    /// Queues that are closed and not released.
    closed: Vec<usize>,
    /// Queue pairs that failed in the round before.
    fatal: Vec<Qpn>,
    next_tick: Instant,
    /// When a drain stops waiting for commands.
    drain_until: Option<Instant>,
}

/// What a transport wants of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A queue was closed from this side: its connection is to be ended.
    QueueClosed(Qpn),
    /// The first request of a queue came: the peer knows of the connection.
    Traffic(Qpn),
    /// A controller ended: its queues on other reactors are to be closed.
    ControllerGone(u16),
    /// A controller was reset: its I/O queues on other reactors are to be closed.
    ControllerReset(u16),
    /// An I/O queue of a controller was connected; this reactor has its admin queue.
    IoQueueConnected(u16, usize),
}

/// Queues at a time: each costs memory.
const MAX_QUEUES: usize = 4096;
/// Queues without Connect at a time: nobody has authenticated for them. The connection manager bounds those whose hosts have
/// not even shown that they exist, to fewer.
const MAX_UNCONNECTED: usize = 512;
/// How often timers of controllers are looked at.
const TICK: Duration = Duration::from_millis(20);
/// How long a drain waits for commands.
const DRAIN: Duration = Duration::from_secs(5);

impl<D: Device> Transport<D> {
    /// A transport without queues.
    ///
    /// # Errors
    /// When the device can't register the buffers.
    pub fn new(
        device: D,
        engine: Engine,
        pool: BufPool,
        registry: Arc<Registry>,
        reactor: usize,
        now: Instant,
    ) -> Result<Self, DeviceError> {
        let core = Core::new(device, engine, pool, registry, reactor, now)?;
        Ok(Self {
            core,
            queues: Vec::new(),
            tokens: Vec::with_capacity(1024),
            prefetched: Vec::with_capacity(1024),
            events: Vec::new(),
            buffer_rounds: 0,
            closed: Vec::new(),
            fatal: Vec::new(),
            next_tick: now + TICK,
            drain_until: None,
        })
    }

    /// The device, for its driver and its connection manager.
    pub fn device(&mut self) -> &mut D {
        &mut self.core.device
    }

    /// Becomes readable when the I/O engine has something.
    pub fn engine_fd(&self) -> BorrowedFd<'_> {
        self.core.engine.fd()
    }

    /// Makes [`Self::engine_fd`] unreadable; called when it was readable.
    pub fn clear_engine_event(&mut self) {
        self.core.engine.clear_event();
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.core.stats
    }

    /// Makes a queue for a connection request. `connect` says where to connect the queue pair, once its number is known.
    ///
    /// # Errors
    /// The status to reject the connection with.
    pub fn open_queue(
        &mut self,
        request: QueueRequest,
        local: SocketAddr,
        peer: IpAddr,
        connect: impl FnOnce(&mut D, Qpn) -> QpConnect,
    ) -> Result<Qpn, RejectStatus> {
        if !self.has_room_for(peer) {
            self.core.stats.refused_queues.add(1);
            self.core.warn(|| tracing::warn!(%peer, "too many queues"));
            return Err(RejectStatus::NoResources);
        }
        let index = self.queues.iter().position(Option::is_none).unwrap_or(self.queues.len());
        let number =
            u32::try_from(index).ok().filter(|number| *number < 1 << 24).ok_or(RejectStatus::NoResources)?;
        match Queue::open(&mut self.core, number, request, (local, peer), connect) {
            Ok(queue) => {
                let qpn = queue.qpn;
                if index == self.queues.len() {
                    self.queues.push(None);
                }
                self.queues[index] = Some(Box::new(queue));
                self.core.stats.queues.add(1);
                Ok(qpn)
            }
            Err(error) => {
                self.core.warn(|| tracing::warn!(%peer, %error, "no resources for a queue"));
                Err(RejectStatus::NoResources)
            }
        }
    }

    /// Whether a peer may have another queue: it has at most as many as it leaves to others.
    fn has_room_for(&self, peer: IpAddr) -> bool {
        let peer = peer_group(peer);
        let (mut all, mut unconnected) = ([0, 0], [0, 0]);
        for queue in self.queues.iter().flatten() {
            let own = usize::from(peer_group(queue.peer) == peer);
            all = [all[0] + 1, all[1] + own];
            if queue.is_unconnected() {
                unconnected = [unconnected[0] + 1, unconnected[1] + own];
            }
        }
        let fits = |[all, own]: [usize; 2], most: usize| own < most.saturating_sub(all);
        fits(all, MAX_QUEUES) && fits(unconnected, MAX_UNCONNECTED)
    }

    /// The peer knows of the connection: its commands are carried out.
    pub fn established(&mut self, qpn: Qpn) {
        if let Some(queue) = find(&mut self.queues, qpn) {
            queue.established(&mut self.core);
        }
    }

    /// The connection ended: the queue is closed, and with an admin queue its controller.
    pub fn disconnected(&mut self, qpn: Qpn) {
        if let Some(index) = self.queues.iter().position(|q| q.as_ref().is_some_and(|q| q.qpn == qpn)) {
            self.close(index, Closed::ByPeer);
        }
    }

    /// A controller ended elsewhere: closes its queues here.
    pub fn controller_gone(&mut self, cntlid: u16) {
        for index in 0..self.queues.len() {
            if self.queues[index].as_ref().is_some_and(|queue| queue.cntlid() == Some(cntlid)) {
                self.close(index, Closed::ByUs);
            }
        }
    }

    /// A controller was reset elsewhere: closes its I/O queues here.
    pub fn controller_reset(&mut self, cntlid: u16) {
        for index in 0..self.queues.len() {
            if self.queues[index].as_ref().is_some_and(|queue| queue.is_io_of(cntlid)) {
                self.close(index, Closed::ByUs);
            }
        }
    }

    /// An I/O queue of a controller whose admin queue is here was connected.
    pub fn io_queue_connected(&mut self, cntlid: u16) {
        for queue in self.queues.iter_mut().flatten().filter(|queue| queue.cntlid() == Some(cntlid)) {
            queue.io_queue_connected();
        }
    }

    /// Takes no more commands, and closes each queue when its last command is answered, or after a while.
    pub fn drain(&mut self, now: Instant) {
        self.drain_until = Some(now + DRAIN);
        for queue in self.queues.iter_mut().flatten() {
            queue.stop_admitting();
        }
    }

    /// Closes all queues: the device is of no use any more.
    pub fn close_all(&mut self) {
        for index in 0..self.queues.len() {
            self.close(index, Closed::ByUs);
        }
    }

    /// Queues that are not closed, or not yet released.
    #[must_use]
    pub fn open_queues(&self) -> usize {
        self.queues.iter().flatten().count()
    }

    /// Controllers may have events for their hosts: looks at those whose admin queue is here.
    pub fn controllers_changed(&mut self, now: Instant) {
        self.core.now = now;
        for queue in self.queues.iter_mut().flatten() {
            queue.take_async_events(&mut self.core);
        }
        self.flush_round();
    }

    /// What the transport wants of others.
    pub fn take_events(&mut self) -> std::vec::Drain<'_, Event> {
        self.events.drain(..)
    }

    /// Does a round of work; whether there was any.
    pub fn poll(&mut self, now: Instant) -> bool {
        self.core.now = now;
        let mut busy = !self.fatal.is_empty();
        for qpn in self.fatal.drain(..) {
            if let Some(queue) = find(&mut self.queues, qpn) {
                self.core.close_later(queue.index);
            }
        }
        for _ in 0..ROUND {
            let Some(wc) = self.core.device.poll_cq() else { break };
            self.on_completion(&wc);
            busy = true;
        }
        while let Some(event) = self.core.device.poll_qp_event() {
            match event {
                QpEvent::CommEst(qpn) => self.events.push(Event::Traffic(qpn)),
                // Closed in the next round: what the device has to say to the peer leaves before.
                QpEvent::Fatal(qpn) => self.fatal.push(qpn),
            }
            busy = true;
        }
        for _ in 0..ROUND {
            let Some(done) = self.core.engine.poll() else { break };
            let token = Token::unpack(done.io.token);
            match self.queues.get_mut(token.queue as usize) {
                Some(Some(queue)) => queue.on_engine(&mut self.core, token.request, done),
                _ => debug_assert!(false, "a queue lives until the engine gave everything back"),
            }
            busy = true;
        }
        self.retry_waiters();
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.core.forget_volumes();
            self.core.settle_log();
            for queue in self.queues.iter_mut().flatten() {
                queue.tick(&mut self.core);
            }
            if let Some(until) = self.drain_until {
                for index in 0..self.queues.len() {
                    let drained = |queue: &Queue| now >= until || !queue.has_commands();
                    if self.queues[index].as_deref().is_some_and(drained) {
                        self.close(index, Closed::ByUs);
                    }
                }
            }
        }
        self.flush_round();
        busy || !self.core.prefetched.is_empty()
    }

    /// When the transport wants to be polled though nothing happened.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.queues.iter().any(Option::is_some).then_some(self.next_tick)
    }

    fn on_completion(&mut self, wc: &Wc) {
        let Some(posted) = Posted::parse(wc.wr_id) else { return };
        let (Posted::Receive { queue: index, .. }
        | Posted::Fetch { queue: index, .. }
        | Posted::Respond { queue: index, .. }) = posted;
        let Some(Some(queue)) = self.queues.get_mut(index as usize) else { return };
        if queue.qpn != wc.qpn || queue.is_closing() {
            return;
        }
        if wc.status != WcStatus::Success {
            if wc.status != WcStatus::WrFlushErr {
                let (peer, qid) = (queue.peer, queue.request.qid);
                self.core.warn(|| tracing::warn!(%peer, qpn = wc.qpn.0, qid, status = ?wc.status, opcode = ?wc.opcode, "work request failed"));
            }
            if self.fatal.last() != Some(&wc.qpn) {
                self.fatal.push(wc.qpn);
            }
            return;
        }
        match posted {
            Posted::Receive { slot, .. } => queue.on_receive(&mut self.core, slot, wc),
            Posted::Fetch { request, .. } => queue.on_fetched(&mut self.core, request),
            Posted::Respond { request, .. } => queue.responded(&mut self.core, request),
        }
    }

    /// Gives those who wait another try, in order.
    fn retry_waiters(&mut self) {
        if self.core.engine.take_wakeup() || self.core.unpark {
            self.core.unpark = false;
            self.yield_ranges();
            std::mem::swap(&mut self.tokens, &mut self.core.waiting_ranges);
            for token in self.tokens.drain(..) {
                let Some(Some(queue)) = self.queues.get_mut(token.queue as usize) else { continue };
                if !queue.retry_range(&mut self.core, token.request) {
                    self.core.waiting_ranges.push(token);
                }
            }
            while let Some(token) = self.core.unpark() {
                if let Some(Some(queue)) = self.queues.get_mut(token.queue as usize) {
                    queue.advance(&mut self.core, token.request);
                }
            }
            // Where the table of waits is full, those of this reactor say that they wait when they are tried, and wake
            // only others by that.
            if !self.core.waiting_ranges.is_empty() {
                self.yield_ranges();
            }
        }
        self.retry_buffers();
        for kind in 0..self.core.waiting_engine.len() {
            while let Some(token) = self.core.waiting_engine[kind].pop_front() {
                let behind = self.core.waiting_engine[kind].len();
                let Some(Some(queue)) = self.queues.get_mut(token.queue as usize) else { continue };
                queue.retry_submit(&mut self.core, token.request);
                if self.core.waiting_engine[kind].len() > behind {
                    // The engine is as full for those behind it, which may be very many. It was the first, and stays so.
                    self.core.waiting_engine[kind].rotate_right(1);
                    break;
                }
            }
        }
    }

    /// Lets ranges go that are held for hosts while others wait for them.
    fn yield_ranges(&mut self) {
        for queue in self.queues.iter_mut().flatten() {
            queue.yield_ranges(&mut self.core);
        }
    }

    /// Gives those who wait for buffers another try. Whoever would exceed its peer's share is passed over, and its peer's
    /// later requests with it; behind one that found no room all wait.
    fn retry_buffers(&mut self) {
        self.core.room_wanted = false;
        let waiting = self.core.waiting_buffers.len();
        if waiting == 0 {
            return;
        }
        self.buffer_rounds += 1;
        for _ in 0..waiting {
            let Some(token) = self.core.waiting_buffers.pop_front() else { break };
            let Some(Some(queue)) = self.queues.get_mut(token.queue as usize) else { continue };
            if !self.core.room_wanted && queue.share.passed_over.get() != self.buffer_rounds {
                match queue.retry_buffers(&mut self.core, token.request) {
                    Buffers::Taken => continue,
                    Buffers::NoRoom => self.core.room_wanted = true,
                    Buffers::OverShare => queue.share.passed_over.set(self.buffer_rounds),
                }
            }
            self.core.waiting_buffers.push_back(token);
        }
    }

    /// Posts the round's responses, closes what is to be closed, releases what is idle.
    fn flush_round(&mut self) {
        self.core.checked_bytes = 0;
        loop {
            self.check_prefetched();
            std::mem::swap(&mut self.tokens, &mut self.core.responses);
            if self.tokens.is_empty() {
                break;
            }
            for token in &self.tokens {
                if let Some(Some(queue)) = self.queues.get_mut(token.queue as usize) {
                    queue.post_data(&mut self.core, token.request);
                }
            }
            for token in self.tokens.drain(..) {
                if let Some(Some(queue)) = self.queues.get_mut(token.queue as usize) {
                    queue.post_response(&mut self.core, token.request);
                }
            }
        }
        for (cntlid, reactor) in self.core.io_connected.drain(..) {
            self.events.push(Event::IoQueueConnected(cntlid, reactor));
        }
        while let Some(cntlid) = self.core.resets.pop() {
            self.events.push(Event::ControllerReset(cntlid));
            self.controller_reset(cntlid);
        }
        while let Some(index) = self.core.closing.pop() {
            self.core.stats.failed_queues.add(1);
            self.close(index as usize, Closed::ByUs);
        }
        let Self { closed, queues, core, .. } = self;
        closed.retain(|&index| {
            let idle = queues[index].take_if(|queue| queue.is_idle());
            let kept = idle.is_none();
            if let Some(queue) = idle {
                queue.release(core);
            }
            kept
        });
    }

    /// Checks data that was asked for: as much as stays near the processor until it is sent. The rest has its turn in the next
    /// round.
    fn check_prefetched(&mut self) {
        std::mem::swap(&mut self.prefetched, &mut self.core.prefetched);
        let mut done = 0;
        while self.core.checked_bytes < NEAR
            && let Some(&(token, _)) = self.prefetched.get(done)
        {
            done += 1;
            self.core.ahead = self.prefetched.get(done).map_or(Ahead::UNKNOWN, |&(_, ahead)| ahead);
            if let Some(Some(queue)) = self.queues.get_mut(token.queue as usize) {
                queue.resume(&mut self.core, token.request);
            }
        }
        self.prefetched.drain(..done);
        self.prefetched.append(&mut self.core.prefetched);
        std::mem::swap(&mut self.prefetched, &mut self.core.prefetched);
    }

    fn close(&mut self, index: usize, by: Closed) {
        let Some(Some(queue)) = self.queues.get_mut(index) else { return };
        if queue.is_closing() {
            return;
        }
        tracing::debug!(peer = %queue.peer, qpn = queue.qpn.0, qid = queue.request.qid, "queue closed");
        queue.close(&mut self.core);
        self.closed.push(index);
        let waited = self.core.forget_waiters(queue.index, &queue.share);
        queue.share.waiting.set(queue.share.waiting.get().saturating_sub(waited));
        let open = self.core.stats.queues.value();
        self.core.stats.queues.set(open.saturating_sub(1));
        if by == Closed::ByUs {
            self.events.push(Event::QueueClosed(queue.qpn));
        }
        if let Some(cntlid) = queue.leave_controller(&mut self.core) {
            self.events.push(Event::ControllerGone(cntlid));
            self.controller_gone(cntlid);
        }
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
