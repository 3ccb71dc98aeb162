//! A reactor: one thread that owns a device, its queues, an I/O engine and buffers, and shares none of them.
//!
//! Reactor 0 also owns the connection manager ([`acceptor`]). Others are reached by messages. A round takes what arrived, does
//! what can be done, sends what came of it; a reactor without work spins for a moment, then sleeps until a descriptor or a
//! timer wakes it.

pub mod acceptor;
pub mod cpu;
pub mod mailbox;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rwctx::device::provider::{Provider, ProviderCounters, Sleep};
use rwctx::device::soft::cm::{CmId, PeerQp};
use rwctx::device::soft::driver::More;
use rwctx::device::{DeviceCaps, QpConnect, Qpn, RemoteAccess};

use self::acceptor::Acceptor;
use self::mailbox::{Mailbox, Postbox};
use crate::config::Poll;
use crate::iscsi::rdma::Notice;
use crate::nvmf::wire::private_data::RejectStatus;
use crate::transport::{Asked, Event, Transport};

/// How long a reactor looks for work before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Longest sleep: counters and shutdown are looked at this often in any case.
const MAX_SLEEP: Duration = Duration::from_millis(500);
/// How often counters are shown.
const PUBLISH: Duration = Duration::from_millis(200);
/// READs that we ever have outstanding on one queue pair.
const MAX_READS: u8 = 16;
/// Longest retransmission timer, whatever the host asks for (IBTA would allow hours): a host that fell silent holds
/// buffers until the last one has passed.
const MAX_ACK_TIMEOUT: Duration = Duration::from_secs(2);
/// Messages handled in a round, so that thousands of connection requests don't keep commands waiting.
const MESSAGES: usize = 8;
/// RNR timer code that we advertise: 0.64 ms.
const RNR_TIMER: u8 = 12;

/// What reactors and the control thread say to a reactor.
#[derive(Debug)]
pub enum Message {
    /// Make a queue (from reactor 0).
    Open(Box<OpenQueue>),
    /// The answer (to reactor 0).
    Opened(Opened),
    /// The peer knows of the connection (from reactor 0).
    Established(Qpn),
    /// The connection ended (from reactor 0).
    Disconnected(Qpn),
    /// A queue was closed (to reactor 0).
    QueueClosed(Qpn),
    /// The first request of a queue came (to reactor 0).
    Traffic(Qpn),
    /// A controller ended: close its queues.
    ControllerGone(u16),
    /// A controller was reset: close its I/O queues.
    ControllerReset(u16),
    /// An I/O queue of a controller was connected.
    IoQueueConnected(u16),
    /// Controllers may have events for their hosts.
    ControllersChanged,
    /// Something happened to iSCSI sessions or targets.
    Iscsi(Notice),
    /// Finish the commands that are here, take no more, close all queues.
    Drain,
    /// End.
    Stop,
}

/// A connection request for a queue.
#[derive(Clone, Copy, Debug)]
pub struct OpenQueue {
    /// The connection.
    pub id: CmId,
    /// What the host wants.
    pub asked: Asked,
    /// Our address.
    pub local: IpAddr,
    /// Our port.
    pub port: u16,
    /// The host's address.
    pub remote: IpAddr,
    /// The host's queue pair.
    pub peer: PeerQp,
    /// The number of the queue pair and the PSN that it expects first, where the host was told already.
    pub promised: Option<(Qpn, u32)>,
}

/// What became of a request for a queue.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The connection that asked.
    pub id: CmId,
    /// The reactor that answers.
    pub reactor: usize,
    /// The queue pair and the PSN that it expects first.
    pub result: Result<(Qpn, u32), RejectStatus>,
}

/// What a reactor shows of its device, some times a second.
#[derive(Debug, Default)]
pub struct Published(Mutex<DeviceCounters>);

/// Counters of a reactor's device.
#[derive(Clone, Debug, Default)]
pub struct DeviceCounters {
    /// Of the device itself.
    pub provider: ProviderCounters,
    /// Connections that were refused, on reactor 0.
    pub rejected: u64,
}

impl Published {
    /// The counters as they were a moment ago.
    #[must_use]
    pub fn counters(&self) -> DeviceCounters {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One reactor.
#[derive(Debug)]
pub struct Reactor<P: Provider> {
    index: usize,
    transport: Transport<P>,
    mailbox: Mailbox<Message>,
    /// All reactors' postboxes, this one's included.
    peers: Vec<Postbox<Message>>,
    acceptor: Option<Acceptor>,
    epoll: Epoll,
    poll: Poll,
    published: Arc<Published>,
    publish_at: Option<Instant>,
    random: fastrand::Rng,
    /// The mailbox may hold messages that no wake announces any more.
    has_mail: bool,
    draining: bool,
    stopped: bool,
}

/// Tags of descriptors in the epoll set.
const TAG_MAILBOX: u64 = 0;
const TAG_ENGINE: u64 = 1;
const TAG_DEVICE: u64 = 2;

impl<P: Provider> Reactor<P> {
    /// A reactor that is ready to run.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn new(
        index: usize,
        transport: Transport<P>,
        mailbox: Mailbox<Message>,
        peers: Vec<Postbox<Message>>,
        acceptor: Option<Acceptor>,
        poll: Poll,
        seed: u64,
    ) -> nix::Result<Self> {
        let mut transport = transport;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(mailbox.fd(), EpollEvent::new(EpollFlags::EPOLLIN, TAG_MAILBOX))?;
        epoll.add(transport.engine_fd(), EpollEvent::new(EpollFlags::EPOLLIN, TAG_ENGINE))?;
        for fd in transport.device().wake_fds() {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, TAG_DEVICE))?;
        }
        let random = fastrand::Rng::with_seed(seed);
        Ok(Self {
            index,
            transport,
            mailbox,
            peers,
            acceptor,
            epoll,
            poll,
            published: Arc::default(),
            publish_at: None,
            random,
            has_mail: false,
            draining: false,
            stopped: false,
        })
    }

    /// Where it shows its device's counters.
    #[must_use]
    pub fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    /// Runs until told to stop.
    ///
    /// # Errors
    /// Why the device can't be used any more.
    #[expect(clippy::disallowed_methods, reason = "the reactor is the clock of everything that it drives")]
    pub fn run(mut self) -> Result<(), String> {
        let mut idle_since = None;
        while !self.stopped {
            if let Some(why) = self.transport.device().failure() {
                let why = why.to_owned();
                self.transport.close_all();
                return Err(why);
            }
            let now = Instant::now();
            if self.round(now) {
                idle_since = None;
                self.transport.stats().busy_rounds.add(1);
                continue;
            }
            let since = *idle_since.get_or_insert(now);
            if self.poll == Poll::Adaptive && now - since >= SPIN {
                self.sleep(now);
                idle_since = None;
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    /// Does what there is to do; whether there was anything.
    fn round(&mut self, now: Instant) -> bool {
        if self.publish_at.is_none_or(|at| now >= at) {
            self.publish_at = Some(now + PUBLISH);
            self.publish();
        }
        let mut busy = self.transport.device().receive(now) == More::Likely;
        if self.mailbox.take_wake() || std::mem::take(&mut self.has_mail) {
            busy = true;
            self.has_mail = true;
            for _ in 0..MESSAGES {
                let Some(message) = self.mailbox.take() else {
                    self.has_mail = false;
                    break;
                };
                self.on_message(now, message);
            }
        }
        if let Some(acceptor) = &mut self.acceptor {
            busy |= acceptor.poll(now, self.transport.device(), &self.peers);
        }
        busy |= self.transport.poll(now);
        self.forward_events();
        self.transport.device().transmit(now);
        busy
    }

    fn on_message(&mut self, now: Instant, message: Message) {
        match message {
            Message::Open(open) => self.open(&open),
            Message::Established(qpn) => self.transport.established(qpn),
            Message::Disconnected(qpn) => self.transport.disconnected(qpn),
            Message::ControllerGone(cntlid) => self.transport.controller_gone(cntlid),
            Message::ControllerReset(cntlid) => self.transport.controller_reset(cntlid),
            Message::IoQueueConnected(cntlid) => self.transport.io_queue_connected(cntlid),
            Message::ControllersChanged => self.transport.controllers_changed(now),
            Message::Iscsi(notice) => self.transport.notice(now, &notice),
            Message::Drain => {
                self.draining = true;
                self.transport.drain(now);
                if let Some(acceptor) = &mut self.acceptor {
                    acceptor.stop_listening(self.transport.device());
                }
            }
            Message::Stop => self.stopped = true,
            Message::Opened(opened) => {
                if let Some(acceptor) = &mut self.acceptor {
                    acceptor.opened(now, self.transport.device(), &self.peers, &opened);
                }
            }
            Message::QueueClosed(qpn) => {
                if let Some(acceptor) = &mut self.acceptor {
                    acceptor.queue_closed(now, self.transport.device(), qpn);
                }
            }
            Message::Traffic(qpn) => {
                if let Some(acceptor) = &self.acceptor {
                    acceptor.traffic(now, self.transport.device(), qpn);
                }
            }
        }
    }

    fn open(&mut self, open: &OpenQueue) {
        let (number, rq_psn) = match open.promised {
            Some((qpn, rq_psn)) => (Some(qpn), rq_psn),
            None => (None, open.peer.rq_psn.unwrap_or_else(|| self.random.u32(0..1 << 24))),
        };
        let peer = open.peer;
        let connect = |device: &mut P, _: Qpn| QpConnect {
            local: open.local,
            remote: open.remote,
            dest_qpn: peer.qpn,
            sq_psn: peer.psn,
            rq_psn,
            path_mtu: peer.path_mtu,
            max_rd_atomic: peer.responder_resources.min(max_reads(device.caps())),
            max_dest_rd_atomic: 0,
            ack_timeout: peer.ack_timeout.min(MAX_ACK_TIMEOUT),
            retry_cnt: peer.retry_cnt,
            rnr_retry: peer.rnr_retry,
            min_rnr_timer: RNR_TIMER,
            tos: peer.tos,
            // A target exposes no memory.
            remote_access: RemoteAccess::default(),
            route: peer.route,
        };
        let result = if self.draining {
            Err(RejectStatus::NoResources)
        } else {
            let local = SocketAddr::new(open.local, open.port);
            self.transport.device().number_next_qp(number);
            let opened = self.transport.open_queue(open.asked, local, open.remote, connect);
            self.transport.device().number_next_qp(None);
            opened.map(|qpn| (qpn, rq_psn))
        };
        self.peers[0].post(Message::Opened(Opened { id: open.id, reactor: self.index, result }));
    }

    fn forward_events(&mut self) {
        for event in self.transport.take_events() {
            match event {
                Event::QueueClosed(qpn) => self.peers[0].post(Message::QueueClosed(qpn)),
                Event::Traffic(qpn) => self.peers[0].post(Message::Traffic(qpn)),
                Event::ControllerGone(cntlid) => {
                    for peer in others(&self.peers, self.index) {
                        peer.post(Message::ControllerGone(cntlid));
                    }
                }
                Event::ControllerReset(cntlid) => {
                    for peer in others(&self.peers, self.index) {
                        peer.post(Message::ControllerReset(cntlid));
                    }
                }
                Event::IoQueueConnected(cntlid, reactor) => {
                    self.peers[reactor].post(Message::IoQueueConnected(cntlid));
                }
                Event::Iscsi(notice) => {
                    for peer in &self.peers {
                        peer.post(Message::Iscsi(notice.clone()));
                    }
                }
            }
        }
    }

    fn publish(&mut self) {
        let device = self.transport.device();
        let counters = DeviceCounters {
            provider: device.counters(),
            rejected: self.acceptor.as_ref().map_or(0, Acceptor::rejected),
        };
        // Whoever reads them holds the lock for a copy; this round's can be left out.
        if let Ok(mut published) = self.published.0.try_lock() {
            *published = counters;
        }
    }

    fn sleep(&mut self, now: Instant) {
        let device = self.transport.device().next_timeout();
        let transport = self.transport.next_timeout();
        let until = [device, transport].into_iter().flatten().min();
        let mut wait = until.map_or(MAX_SLEEP, |until| until.saturating_duration_since(now).min(MAX_SLEEP));
        if self.transport.device().has_unsent() {
            // The kernel drains a full transmit buffer within microseconds: not worth changing the set for.
            wait = wait.min(Duration::from_millis(1));
        }
        if wait.is_zero() || self.transport.device().prepare_sleep() == Sleep::NotNow {
            return;
        }
        let millis = u16::try_from(wait.as_micros().div_ceil(1000)).expect("bounded by the longest sleep");
        let mut events = [EpollEvent::empty(); 8];
        self.transport.stats().sleeps.add(1);
        match self.epoll.wait(&mut events, EpollTimeout::from(millis)) {
            Ok(count) => {
                let woke = |tag| events[..count].iter().any(|event| event.data() == tag);
                if woke(TAG_ENGINE) {
                    self.transport.clear_engine_event();
                }
                if woke(TAG_DEVICE) {
                    self.transport.device().woken();
                }
            }
            Err(Errno::EINTR) => {}
            Err(errno) => tracing::error!(%errno, "epoll_wait failed"),
        }
    }
}

/// READs that a queue pair of ours may have outstanding.
fn max_reads(caps: &DeviceCaps) -> u8 {
    caps.max_qp_init_rd_atom.min(MAX_READS)
}

/// The postboxes of all reactors but one.
fn others(peers: &[Postbox<Message>], own: usize) -> impl Iterator<Item = &Postbox<Message>> {
    peers.iter().enumerate().filter(move |(index, _)| *index != own).map(|(_, peer)| peer)
}
