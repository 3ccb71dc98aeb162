//! What drives the queues of a reactor, of all protocols: one device, one I/O engine, one pool of buffers.
//!
//! Each round it takes completions of the device and of the engine, has requests carried on as far as they go, and has the
//! round's responses posted in one batch. What a protocol makes of them is in [`crate::nvmf::rdma`] and
//! [`crate::iscsi::rdma`].

pub(crate) mod core;
pub(crate) mod in_place;
pub(crate) mod share;
pub(crate) mod size;
pub(crate) mod slots;
pub(crate) mod stats;
pub(crate) mod wr_id;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rwctx::device::{Device, DeviceError, QpConnect, QpEvent, Qpn};
use rwctx::plan::Integrity;
use rwctx::wc::Wc;
use t10pi::Ahead;

use self::core::{Buffers, Core, Token, is_iser};
use self::wr_id::Posted;
use crate::block::{BufPool, Engine};
use crate::iscsi::rdma::{ConnectionRequest, Connections, IserStats, Notice};
use crate::nvmf::rdma::Queues;
use crate::nvmf::registry::Registry;
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
    nvme: Queues,
    iser: Connections,
    /// Scratch list, reused.
    tokens: Vec<Token>,
    /// Reused as well.
    prefetched: Vec<(Token, Ahead)>,
    /// Tries to give buffers to those who wait.
    buffer_rounds: u64,
    /// Queue pairs that failed in the round before.
    fatal: Vec<Qpn>,
    next_tick: Instant,
    /// When a drain stops waiting for commands.
    drain_until: Option<Instant>,
}

/// What a transport wants of others.
#[derive(Clone, Debug)]
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
    /// All reactors, this one too, are to know something of iSCSI sessions.
    Iscsi(Notice),
}

/// What a connection is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// An NVMe queue.
    Nvme(QueueRequest),
    /// An iSCSI connection.
    Iser(ConnectionRequest),
}

/// How often timers are looked at.
const TICK: Duration = Duration::from_millis(20);
/// How long a drain waits for commands.
const DRAIN: Duration = Duration::from_secs(5);

impl<D: Device> Transport<D> {
    /// A transport without queues; those of NVMe have signatures if `integrity` says so.
    ///
    /// # Errors
    /// When the device can't register the buffers.
    #[expect(clippy::too_many_arguments, reason = "what all its parts are made of")]
    pub fn new(
        device: D,
        engine: Engine,
        pool: BufPool,
        registry: Arc<Registry>,
        iser: Connections,
        reactor: usize,
        integrity: Integrity,
        now: Instant,
    ) -> Result<Self, DeviceError> {
        let core = Core::new(device, engine, pool, registry, reactor, integrity, now)?;
        Ok(Self {
            core,
            nvme: Queues::default(),
            iser,
            tokens: Vec::with_capacity(1024),
            prefetched: Vec::with_capacity(1024),
            buffer_rounds: 0,
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

    /// Those of iSCSI.
    #[must_use]
    pub fn iser_stats(&self) -> &Arc<IserStats> {
        self.iser.stats()
    }

    /// Makes a queue for a connection request. `connect` says where to connect the queue pair, once its number is known.
    ///
    /// # Errors
    /// The status to reject the connection with.
    pub fn open_queue(
        &mut self,
        asked: Asked,
        local: SocketAddr,
        peer: IpAddr,
        connect: impl FnOnce(&mut D, Qpn) -> QpConnect,
    ) -> Result<Qpn, RejectStatus> {
        match asked {
            Asked::Nvme(request) => self.nvme.open(&mut self.core, request, local, peer, connect),
            Asked::Iser(request) => self.iser.open(&mut self.core, request, peer, connect),
        }
    }

    /// The peer knows of the connection: its commands are carried out.
    pub fn established(&mut self, qpn: Qpn) {
        self.nvme.established(&mut self.core, qpn);
        self.iser.established(&mut self.core, qpn);
    }

    /// The connection ended: the queue is closed, and what depends on it.
    pub fn disconnected(&mut self, qpn: Qpn) {
        self.nvme.disconnected(&mut self.core, qpn);
        self.iser.disconnected(&mut self.core, qpn);
    }

    /// A controller ended elsewhere: closes its queues here.
    pub fn controller_gone(&mut self, cntlid: u16) {
        self.nvme.controller_gone(&mut self.core, cntlid);
    }

    /// A controller was reset elsewhere: closes its I/O queues here.
    pub fn controller_reset(&mut self, cntlid: u16) {
        self.nvme.controller_reset(&mut self.core, cntlid);
    }

    /// An I/O queue of a controller whose admin queue is here was connected.
    pub fn io_queue_connected(&mut self, cntlid: u16) {
        self.nvme.io_queue_connected(cntlid);
    }

    /// Something happened to iSCSI sessions, here or elsewhere.
    pub fn notice(&mut self, now: Instant, notice: &Notice) {
        self.core.now = now;
        self.iser.notice(&mut self.core, notice);
        self.flush_round();
    }

    /// Takes no more commands, and closes each queue when its last command is answered, or after a while.
    pub fn drain(&mut self, now: Instant) {
        self.drain_until = Some(now + DRAIN);
        self.nvme.stop_admitting();
        self.iser.stop_admitting();
    }

    /// Closes all queues: the device is of no use any more.
    pub fn close_all(&mut self) {
        self.nvme.close_drained(&mut self.core, true);
        self.iser.close_drained(&mut self.core, true);
    }

    /// Queues that are not closed, or not yet released.
    #[must_use]
    pub fn open_queues(&self) -> usize {
        self.nvme.len() + self.iser.len()
    }

    /// Controllers may have events for their hosts: looks at those whose admin queue is here.
    pub fn controllers_changed(&mut self, now: Instant) {
        self.core.now = now;
        self.nvme.controllers_changed(&mut self.core);
        self.flush_round();
    }

    /// What the transport wants of others.
    pub fn take_events(&mut self) -> std::vec::Drain<'_, Event> {
        self.core.events.drain(..)
    }

    /// Does a round of work; whether there was any.
    pub fn poll(&mut self, now: Instant) -> bool {
        self.core.now = now;
        let mut busy = !self.fatal.is_empty();
        for qpn in self.fatal.drain(..) {
            if let Some(index) = self.nvme.index_of(qpn).or_else(|| self.iser.index_of(qpn)) {
                self.core.close_later(index);
            }
        }
        for _ in 0..ROUND {
            let Some(wc) = self.core.device.poll_cq() else { break };
            self.on_completion(&wc);
            busy = true;
        }
        while let Some(event) = self.core.device.poll_qp_event() {
            match event {
                QpEvent::CommEst(qpn) => self.core.events.push(Event::Traffic(qpn)),
                // Closed in the next round: what the device has to say to the peer leaves before.
                QpEvent::Fatal(qpn) => self.fatal.push(qpn),
            }
            busy = true;
        }
        for _ in 0..ROUND {
            let Some(done) = self.core.engine.poll() else { break };
            let token = Token::unpack(done.io.token);
            if is_iser(token.queue) {
                self.iser.on_engine(&mut self.core, token, done);
            } else {
                self.nvme.on_engine(&mut self.core, token, done);
            }
            busy = true;
        }
        for _ in 0..self.core.next_round.len() {
            let Some(token) = self.core.next_round.pop_front() else { break };
            self.iser.advance(&mut self.core, token);
            busy = true;
        }
        self.retry_waiters();
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.core.forget_volumes();
            self.core.settle_log();
            self.nvme.tick(&mut self.core);
            self.iser.tick(&mut self.core);
            if let Some(until) = self.drain_until {
                self.nvme.close_drained(&mut self.core, now >= until);
                self.iser.close_drained(&mut self.core, now >= until);
            }
        }
        self.flush_round();
        busy || !self.core.prefetched.is_empty()
    }

    /// When the transport wants to be polled though nothing happened.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        (self.open_queues() != 0).then_some(self.next_tick)
    }

    fn on_completion(&mut self, wc: &Wc) {
        let Some(posted) = Posted::parse(wc.wr_id) else { return };
        let of_use = if is_iser(posted.queue()) {
            self.iser.on_completion(&mut self.core, posted, wc)
        } else {
            self.nvme.on_completion(&mut self.core, posted, wc)
        };
        if !of_use && self.fatal.last() != Some(&wc.qpn) {
            self.fatal.push(wc.qpn);
        }
    }

    /// Gives those who wait another try, in order.
    fn retry_waiters(&mut self) {
        if self.core.engine.take_wakeup() || self.core.unpark {
            self.core.unpark = false;
            self.yield_ranges();
            std::mem::swap(&mut self.tokens, &mut self.core.waiting_ranges);
            for token in self.tokens.drain(..) {
                let waits = if is_iser(token.queue) {
                    self.iser.retry_range(&mut self.core, token)
                } else {
                    self.nvme.retry_range(&mut self.core, token)
                };
                if waits {
                    self.core.waiting_ranges.push(token);
                }
            }
            while let Some(token) = self.core.unpark() {
                self.advance(token);
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
                self.advance(token);
                if self.core.waiting_engine[kind].len() > behind {
                    // The engine is as full for those behind it, which may be very many. It was the first, and stays so.
                    self.core.waiting_engine[kind].rotate_right(1);
                    break;
                }
            }
        }
    }

    /// Goes on with a request where it waits.
    fn advance(&mut self, token: Token) {
        if is_iser(token.queue) {
            self.iser.advance(&mut self.core, token);
        } else {
            self.nvme.advance(&mut self.core, token);
        }
    }

    /// Lets ranges go that are held for hosts while others wait for them.
    fn yield_ranges(&mut self) {
        self.nvme.yield_ranges(&mut self.core);
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
        let round = self.buffer_rounds;
        for _ in 0..waiting {
            let Some(token) = self.core.waiting_buffers.pop_front() else { break };
            let tried = if is_iser(token.queue) {
                self.iser.retry_buffers(&mut self.core, token, round)
            } else {
                self.nvme.retry_buffers(&mut self.core, token, round)
            };
            match tried {
                Some(Buffers::Taken) | None => continue,
                Some(Buffers::NoRoom) => self.core.room_wanted = true,
                Some(Buffers::OverShare) => {}
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
            for &token in &self.tokens {
                if is_iser(token.queue) {
                    self.iser.post_data(&mut self.core, token);
                } else {
                    self.nvme.post_data(&mut self.core, token);
                }
            }
            for token in self.tokens.drain(..) {
                if is_iser(token.queue) {
                    self.iser.post_response(&mut self.core, token);
                } else {
                    self.nvme.post_response(&mut self.core, token);
                }
            }
        }
        self.nvme.settle(&mut self.core);
        while let Some(index) = self.core.closing.pop() {
            if is_iser(index) {
                self.iser.close_failed(&mut self.core, index);
            } else {
                self.nvme.close_failed(&mut self.core, index);
            }
        }
        self.nvme.release_idle(&mut self.core);
        self.iser.release_idle(&mut self.core);
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
            if is_iser(token.queue) {
                self.iser.resume(&mut self.core, token);
            } else {
                self.nvme.resume(&mut self.core, token);
            }
        }
        self.prefetched.drain(..done);
        self.prefetched.append(&mut self.core.prefetched);
        std::mem::swap(&mut self.prefetched, &mut self.core.prefetched);
    }
}
