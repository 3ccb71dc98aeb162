//! The connection manager of QP1: makes and ends reliable connections with peers, as either side (IBTA chapter 12).
//!
//! Sans-IO: management datagrams, calls of the user and time go in; datagrams, events and the next deadline come out.
//! It owns the handshake of each connection, its retransmissions and its identifiers, and never touches a queue pair:
//! its user makes and connects those when events say so. It believes the addresses of packets, never those written in
//! a message, and bounds what unauthenticated packets can make it hold or answer.
//!
//! Order of events of one connection: [`CmEvent::ConnectRequest`] or [`CmEvent::ConnectReply`], then, on the passive
//! side, [`CmEvent::Established`]; then at most one of [`CmEvent::Rejected`], [`CmEvent::Unreachable`] and
//! [`CmEvent::Disconnected`]; and [`CmEvent::Released`] last. A connection that its user refused with [`Cm::reject`] has
//! no further event on the passive side.

mod connection;
pub(in crate::device) mod half_open;
mod ids;
pub(in crate::device) mod limits;
mod receive;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use thiserror::Error;

use self::connection::{Beginning, Connection, Input, PeerName, Side};
use self::half_open::{HalfOpen, Room};
use self::ids::Ids;
use self::limits::{AnswerRate, Known};
use self::table::{Event, State};
use super::wire::cm::{
    CmMessage, CmaHeader, Path, REJ_PRIVATE_LEN, REP_PRIVATE_LEN, REQ_PRIVATE_LEN, Req, gid, service_id,
};
use super::wire::{MAD_LEN, PKEY_DEFAULT, RejReason};
use crate::device::{PathMtu, Qpn, Route};

/// Identity and limits of a connection manager.
#[derive(Clone, Copy, Debug)]
pub struct CmConfig {
    /// Names this host's channel adapter to peers: stable, and different from other hosts'.
    pub ca_guid: u64,
    /// For communication IDs, transaction IDs and flow labels. Must differ between runs, or peers take new connections
    /// for old ones; and not be guessable, or who can't receive answers pretends to.
    pub seed: u64,
    /// Requests for more are refused.
    pub max_path_mtu: PathMtu,
    /// Passive connections that were never established, of peers that may be inventions. Beyond it somebody makes room, or
    /// the request is dropped and comes again.
    pub max_half_open: usize,
    /// With so many of them, further ones are doubtful ([`CmEvent::ConnectRequest`]).
    pub doubtful_from: usize,
    /// Half-open connections of peers that completed a handshake before: they don't compete with the others.
    pub max_half_open_known: usize,
    /// Of one address, of either kind.
    pub max_half_open_per_peer: usize,
    /// Answers to packets of no connection, and to duplicates, a second and group of peers.
    pub answers_per_second: u32,
}

impl CmConfig {
    /// The usual limits: 16384 half-open connections of strangers, doubtful from 64 on, and 128 of known peers; 64 from one
    /// address; 100 answers a second.
    #[must_use]
    pub fn new(ca_guid: u64, seed: u64, max_path_mtu: PathMtu) -> Self {
        Self {
            ca_guid,
            seed,
            max_path_mtu,
            max_half_open: 16 << 10,
            doubtful_from: 64,
            max_half_open_known: 128,
            max_half_open_per_peer: 64,
            answers_per_second: 100,
        }
    }
}

/// A connection of this manager: its communication ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmId(pub u32);

/// What a connection request asks for.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParams<'a> {
    /// Our address.
    pub local: IpAddr,
    /// The target's address, of the same family.
    pub remote: IpAddr,
    /// The target's port.
    pub port: u16,
    /// Our queue pair.
    pub qpn: Qpn,
    /// PSN at which the peer shall start to send, 24 bits.
    pub rq_psn: u32,
    /// Path MTU for both directions.
    pub path_mtu: PathMtu,
    /// READs that we serve at once.
    pub responder_resources: u8,
    /// READs that we want to have outstanding.
    pub initiator_depth: u8,
    /// IP traffic class.
    pub tos: u8,
    /// At most [`REQ_PRIVATE_LEN`] bytes.
    pub private: &'a [u8],
}

/// What an accepted connection offers.
#[derive(Clone, Copy, Debug)]
pub struct AcceptParams<'a> {
    /// Our queue pair; it can already receive.
    pub qpn: Qpn,
    /// PSN at which the peer shall start to send, 24 bits.
    pub rq_psn: u32,
    /// READs that we serve at once, at most what the peer asked for.
    pub responder_resources: u8,
    /// READs that we will have outstanding, at most what the peer serves. Linux forbids all READs when this is 0.
    pub initiator_depth: u8,
    /// At most [`REP_PRIVATE_LEN`] bytes.
    pub private: &'a [u8],
}

/// What the peer's message says about its queue pair and the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerQp {
    /// Its queue pair.
    pub qpn: Qpn,
    /// PSN at which we start to send, 24 bits.
    pub psn: u32,
    /// Path MTU for both directions.
    pub path_mtu: PathMtu,
    /// Transport retries for our requests, 0-7.
    pub retry_cnt: u8,
    /// RNR retries for our requests, 0-7.
    pub rnr_retry: u8,
    /// Upper bound of our retransmission timer.
    pub ack_timeout: Duration,
    /// READs that it serves at once.
    pub responder_resources: u8,
    /// READs that it may have outstanding.
    pub initiator_depth: u8,
    /// IP traffic class of the path.
    pub tos: u8,
    /// Flow label of the path, 20 bits; UDP source ports follow from it.
    pub flow_label: u32,
    /// PSN that our queue pair has to expect first, where the connection manager chose it and not its user.
    pub rq_psn: Option<u32>,
    /// How it is reached, where that doesn't follow from the addresses.
    pub route: Option<Route>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmEvent {
    /// A peer asks for a connection: answer with [`Cm::accept`] or [`Cm::reject`].
    ConnectRequest {
        /// The connection.
        id: CmId,
        /// Our address that it was sent to.
        local: IpAddr,
        /// The peer's address.
        remote: IpAddr,
        /// Our port.
        port: u16,
        /// The peer's queue pair.
        peer: PeerQp,
        /// The peer's private data.
        private: [u8; REQ_PRIVATE_LEN],
        /// There are many such requests, and none of their peers is known to exist: nothing should be spent on it before
        /// [`CmEvent::Established`].
        doubtful: bool,
    },
    /// Our request was accepted: connect the queue pair, then call [`Cm::send_rtu`].
    ConnectReply {
        /// The connection.
        id: CmId,
        /// The peer's queue pair.
        peer: PeerQp,
        /// The peer's private data.
        private: [u8; REP_PRIVATE_LEN],
    },
    /// Passive side: the peer is ready; we may send.
    Established {
        /// The connection.
        id: CmId,
    },
    /// The peer refused, or took back what it sent.
    Rejected {
        /// The connection.
        id: CmId,
        /// Why.
        reason: RejReason,
        /// The peer's private data; meaningful when the reason is [`RejReason::Consumer`].
        private: [u8; REJ_PRIVATE_LEN],
    },
    /// No answer after all retransmissions, or before somebody else needed the place of the half-open connection.
    Unreachable {
        /// The connection.
        id: CmId,
    },
    /// The connection is over: the peer closed it or lost it, or what [`Cm::disconnect`] began has ended.
    Disconnected {
        /// The connection.
        id: CmId,
    },
    /// The last event: no packet of the connection can be under way any more, its queue pair may go.
    Released {
        /// The connection.
        id: CmId,
    },
}

/// A datagram to send: UD SEND ONLY from QP1 to QP1 with the Q_Key of the general services interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadOut {
    /// Our address.
    pub src: IpAddr,
    /// The peer's address.
    pub dst: IpAddr,
    /// IP traffic class.
    pub tos: u8,
    /// The payload.
    pub mad: [u8; MAD_LEN],
}

/// Why a call had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CmError {
    /// Private data longer than the message has room for.
    #[error("private data too long")]
    PrivateTooLong,
    /// No such connection: it ended, or never was.
    #[error("no such connection")]
    UnknownId,
    /// The connection's state does not allow it; the peer's message that changed it may wait in the events.
    #[error("the connection's state does not allow it")]
    WrongState,
    /// Addresses of two families.
    #[error("addresses of different families")]
    MixedFamilies,
    /// The port has a listener.
    #[error("the port has a listener")]
    PortInUse,
}

/// Counters, from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CmCounters {
    /// Datagrams that were no message of ours.
    pub malformed: u64,
    /// Requests that were dropped because of a limit.
    pub over_limit: u64,
    /// Half-open connections that made room for others.
    pub displaced: u64,
    /// Requests that the manager itself refused.
    pub refused: u64,
    /// Answers that were not given because of the rate limit.
    pub unanswered: u64,
    /// Messages sent again by a timer.
    pub retransmitted: u64,
}

/// The connection manager.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    /// Listening ports.
    listeners: BTreeSet<u16>,
    connections: BTreeMap<u32, Connection>,
    /// Connections whose peer is known, by its address, CA GUID and communication ID.
    by_peer_id: BTreeMap<(IpAddr, u64, u32), u32>,
    /// The same, by address, CA GUID and queue pair.
    by_peer_qpn: BTreeMap<(IpAddr, u64, u32), u32>,
    /// Deadlines in order of time.
    timers: BTreeSet<(Instant, u32)>,
    /// Of strangers and of known peers.
    half_open: [HalfOpen; 2],
    known: Known,
    /// To strangers and to known peers.
    answers: [AnswerRate; 2],
    ids: Ids,
    next_transaction: u64,
    random: fastrand::Rng,
    events: VecDeque<CmEvent>,
    output: VecDeque<MadOut>,
    counters: CmCounters,
}

/// Exponent of our retransmission timer, as Linux has it: 0.54 s.
const ACK_TIMEOUT: u8 = 17;
/// Exponent of the time in which we answer: 4.3 s.
const RESPONSE_TIMEOUT: u8 = 20;
/// Transport retries and RNR retries: as many as there can be.
const RETRIES: u8 = 7;
const MAX_CM_RETRIES: u8 = 15;
const HOP_LIMIT: u8 = 64;
const LID_PERMISSIVE: u16 = 0xFFFF;

/// How long connections that were refused are remembered: past one retransmission of Linux, 4.6 s.
const REFUSED_TIME: Duration = Duration::from_secs(5);
/// At least twice the life of a packet.
const TIME_WAIT: Duration = Duration::from_secs(1);

impl Cm {
    /// A manager without listeners and connections.
    #[must_use]
    pub fn new(config: CmConfig) -> Self {
        // Peers see numbers that come from the first.
        let [seen, secret] = [0, 1].map(|which| ids::derived(config.seed, which));
        let mut random = fastrand::Rng::with_seed(seen);
        Self {
            listeners: BTreeSet::new(),
            connections: BTreeMap::new(),
            by_peer_id: BTreeMap::new(),
            by_peer_qpn: BTreeMap::new(),
            timers: BTreeSet::new(),
            half_open: <[HalfOpen; 2]>::default(),
            known: Known::default(),
            answers: [(); 2].map(|()| AnswerRate::new(config.answers_per_second, random.u64(..))),
            ids: Ids::new(secret),
            next_transaction: random.u64(..),
            random,
            events: VecDeque::new(),
            output: VecDeque::new(),
            counters: CmCounters::default(),
            config,
        }
    }

    /// Takes requests for `port`.
    ///
    /// # Errors
    /// [`CmError::PortInUse`].
    pub fn listen(&mut self, port: u16) -> Result<(), CmError> {
        if self.listeners.insert(port) { Ok(()) } else { Err(CmError::PortInUse) }
    }

    /// Refuses new requests for `port` from now on. Those reported already go on.
    pub fn unlisten(&mut self, port: u16) {
        self.listeners.remove(&port);
    }

    /// Asks a peer for a connection.
    ///
    /// # Errors
    /// [`CmError::PrivateTooLong`], [`CmError::MixedFamilies`].
    pub fn connect(&mut self, now: Instant, to: &ConnectParams<'_>) -> Result<CmId, CmError> {
        let private = padded(to.private)?;
        if to.local.is_ipv4() != to.remote.is_ipv4() {
            return Err(CmError::MixedFamilies);
        }
        let id = self.fresh_id();
        let flow_label = self.random.u32(1..1 << 20);
        let req = Req {
            local_comm_id: id,
            service_id: service_id(to.port),
            ca_guid: self.config.ca_guid,
            qpn: to.qpn,
            responder_resources: to.responder_resources,
            initiator_depth: to.initiator_depth,
            remote_response_timeout: RESPONSE_TIMEOUT,
            transport: 0,
            flow_control: true,
            starting_psn: to.rq_psn & 0x00FF_FFFF,
            local_response_timeout: RESPONSE_TIMEOUT,
            retry_count: RETRIES,
            pkey: PKEY_DEFAULT,
            path_mtu: Ok(to.path_mtu),
            rnr_retry_count: RETRIES,
            max_cm_retries: MAX_CM_RETRIES,
            srq: false,
            primary: Path {
                lids: [LID_PERMISSIVE; 2],
                local_gid: gid(to.local),
                remote_gid: gid(to.remote),
                flow_label,
                packet_rate: 0,
                traffic_class: to.tos,
                hop_limit: HOP_LIMIT,
                service_level: 0,
                subnet_local: false,
                ack_timeout: ACK_TIMEOUT,
            },
            alternate: Path::none(),
            cma: Some(CmaHeader { src_port: self.random.u16(0xC000..), src: to.local, dst: to.remote }),
            private,
        };
        let transaction_id = self.fresh_transaction();
        let message = CmMessage::Req(req).emit(transaction_id);
        let connection = Connection {
            state: State::ReqSent,
            side: Side::Active,
            local: to.local,
            remote: to.remote,
            tos: to.tos,
            qpn: to.qpn,
            peer: None,
            transaction_id,
            flow_control: true,
            path_mtu: to.path_mtu,
            flow_label,
            message: None,
            timer: None,
            since: now,
            is_known: false,
            doubtful: false,
            confirmed: false,
            told: false,
        };
        self.insert(id, connection);
        self.send_with_resends(id, message);
        self.enter(now, id, State::ReqSent);
        Ok(CmId(id))
    }

    /// Accepts a request; the queue pair can already receive.
    ///
    /// # Errors
    /// [`CmError::PrivateTooLong`], [`CmError::UnknownId`], [`CmError::WrongState`].
    pub fn accept(&mut self, now: Instant, id: CmId, with: &AcceptParams<'_>) -> Result<(), CmError> {
        let private = padded(with.private)?;
        self.call(now, id, Event::Accept, &Input::Accept(with, &private))
    }

    /// Refuses a request, or a reply to ours.
    ///
    /// # Errors
    /// [`CmError::PrivateTooLong`], [`CmError::UnknownId`], [`CmError::WrongState`].
    pub fn reject(
        &mut self,
        now: Instant,
        id: CmId,
        reason: RejReason,
        private: &[u8],
    ) -> Result<(), CmError> {
        let private = padded(private)?;
        self.call(now, id, Event::Reject, &Input::Reject(reason, &private))
    }

    /// Confirms a reply: the queue pair is connected.
    ///
    /// # Errors
    /// [`CmError::UnknownId`], [`CmError::WrongState`].
    pub fn send_rtu(&mut self, now: Instant, id: CmId) -> Result<(), CmError> {
        self.call(now, id, Event::SendRtu, &Input::None)
    }

    /// Ends a connection in any state. The queue pair should be in the error state already. Ending twice is no error.
    ///
    /// # Errors
    /// [`CmError::UnknownId`].
    pub fn disconnect(&mut self, now: Instant, id: CmId) -> Result<(), CmError> {
        self.call(now, id, Event::Disconnect, &Input::None)
    }

    /// The peer's first request came on the connection's queue pair, with the PSN that our reply told it: that is as good as
    /// an RTU. In any other state than the one that waits for it, and for an unknown connection, it means nothing.
    pub fn handle_qp_traffic(&mut self, now: Instant, id: CmId) {
        self.apply(now, id.0, Event::Traffic, &Input::None);
    }

    /// The next datagram to send.
    pub fn poll_mad(&mut self, _now: Instant) -> Option<MadOut> {
        self.output.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// When [`Cm::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first() {
            if at > now {
                break;
            }
            let connection = self.connections.get_mut(&id).expect("a timer belongs to a connection");
            let again = connection.timer.as_mut().is_some_and(|timer| timer.advance(now));
            let event = if again {
                self.counters.retransmitted += 1;
                Event::Retry
            } else {
                connection.timer = None;
                Event::Expire
            };
            self.timers.remove(&(at, id));
            self.schedule(id);
            self.apply(now, id, event, &Input::None);
        }
    }

    /// Whether the peer completed a handshake before, so that there is somebody at its address.
    #[must_use]
    pub fn knows(&self, peer: IpAddr) -> bool {
        self.known.contains(peer)
    }

    /// Connections that are not released yet, of either side and in any state.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Counters.
    #[must_use]
    pub fn counters(&self) -> &CmCounters {
        &self.counters
    }

    /// An event that our user caused.
    fn call(&mut self, now: Instant, id: CmId, event: Event, input: &Input<'_>) -> Result<(), CmError> {
        if !self.connections.contains_key(&id.0) {
            return Err(CmError::UnknownId);
        }
        if self.apply(now, id.0, event, input) { Ok(()) } else { Err(CmError::WrongState) }
    }

    fn fresh_id(&mut self) -> u32 {
        loop {
            let id = self.ids.next_id();
            if !self.connections.contains_key(&id) {
                return id;
            }
        }
    }

    fn fresh_transaction(&mut self) -> u64 {
        self.next_transaction = self.next_transaction.wrapping_add(1);
        self.next_transaction
    }

    fn insert(&mut self, id: u32, connection: Connection) {
        if let Some(Beginning { peer, since, is_known }) = connection.half_open() {
            self.half_open[usize::from(is_known)].add(peer, since, id);
        }
        if let Some(peer) = connection.peer {
            self.index(id, connection.remote, peer);
        }
        let before = self.connections.insert(id, connection);
        debug_assert!(before.is_none(), "fresh IDs are unused");
    }

    /// Makes the connection known by its peer's names.
    fn index(&mut self, id: u32, remote: IpAddr, peer: PeerName) {
        self.by_peer_id.insert((remote, peer.ca_guid, peer.comm_id), id);
        self.by_peer_qpn.insert((remote, peer.ca_guid, peer.qpn.0), id);
    }

    fn unindex_id(&mut self, id: u32, remote: IpAddr, peer: PeerName) {
        let key = (remote, peer.ca_guid, peer.comm_id);
        if self.by_peer_id.get(&key) == Some(&id) {
            self.by_peer_id.remove(&key);
        }
    }

    /// Another connection may have the queue pair number by now: one that is over does not hold it.
    fn unindex_qpn(&mut self, id: u32, remote: IpAddr, peer: PeerName) {
        let key = (remote, peer.ca_guid, peer.qpn.0);
        if self.by_peer_qpn.get(&key) == Some(&id) {
            self.by_peer_qpn.remove(&key);
        }
    }

    fn remove(&mut self, id: u32) {
        let Some(connection) = self.connections.remove(&id) else { return };
        if let Some(beginning) = connection.half_open() {
            self.leave_half_open(id, beginning);
        }
        if let Some(peer) = connection.peer {
            self.unindex_id(id, connection.remote, peer);
            self.unindex_qpn(id, connection.remote, peer);
        }
        if let Some(timer) = connection.timer {
            self.timers.remove(&(timer.deadline, id));
        }
    }

    /// The connection with this beginning is not half open any more.
    fn leave_half_open(&mut self, id: u32, beginning: Beginning) {
        let Beginning { peer, since, is_known } = beginning;
        self.half_open[usize::from(is_known)].remove(peer, since, id);
    }

    /// Makes room for another half-open connection of `peer`, which is known or not; whether there is.
    fn make_room(&mut self, now: Instant, peer: IpAddr, is_known: bool) -> bool {
        let most = if is_known { self.config.max_half_open_known } else { self.config.max_half_open };
        let half_open = &self.half_open[usize::from(is_known)];
        match half_open.room(now, peer, most, self.config.max_half_open_per_peer) {
            Room::Free => true,
            Room::Displaces(id) => {
                self.displace(now, id);
                true
            }
            Room::None => {
                self.counters.over_limit += 1;
                false
            }
        }
    }

    /// Ends a half-open connection, whose place another one takes.
    fn displace(&mut self, now: Instant, id: u32) {
        self.counters.displaced += 1;
        let of = self.connections.get(&id).map(|connection| (connection.state, connection.remote));
        if let Some((State::RepSent, remote)) = of
            && self.may_answer(now, remote)
        {
            self.send_rej(id, RejReason::Timeout, [0; REJ_PRIVATE_LEN]);
        }
        self.apply(now, id, Event::Displace, &Input::None);
    }
}

/// Private data with zeros up to what the message has room for.
fn padded<const N: usize>(private: &[u8]) -> Result<[u8; N], CmError> {
    let mut whole = [0; N];
    whole.get_mut(..private.len()).ok_or(CmError::PrivateTooLong)?.copy_from_slice(private);
    Ok(whole)
}
