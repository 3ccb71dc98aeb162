//! One connection, and what its transitions do.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::table::{Action, Event, Next, State, transition};
use super::{
    ACK_TIMEOUT, AcceptParams, Cm, CmEvent, CmId, MadOut, PeerQp, REFUSED_TIME, RESPONSE_TIMEOUT, RETRIES,
    TIME_WAIT,
};
use crate::device::soft::wire::cm::{
    About, CmMessage, CommIds, Dreq, Mra, REJ_INFO_LEN, REJ_PRIVATE_LEN, REP_PRIVATE_LEN, Rej, Rep,
    exponent_time,
};
use crate::device::soft::wire::{MAD_LEN, RejReason};
use crate::device::{PathMtu, Qpn};

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) side: Side,
    pub(super) local: IpAddr,
    pub(super) remote: IpAddr,
    pub(super) tos: u8,
    /// Ours; meaningless on the passive side until it accepts.
    pub(super) qpn: Qpn,
    /// Active: unknown until the REP.
    pub(super) peer: Option<PeerName>,
    /// Of the REQ.
    pub(super) transaction_id: u64,
    pub(super) flow_control: bool,
    pub(super) path_mtu: PathMtu,
    pub(super) flow_label: u32,
    /// What [`Action::Resend`] sends.
    pub(super) message: Option<Box<[u8; MAD_LEN]>>,
    pub(super) timer: Option<Timer>,
    /// When it began.
    pub(super) since: Instant,
    /// Whether it began when its peer was known.
    pub(super) is_known: bool,
    /// Whether it began when nothing was to be spent on it.
    pub(super) doubtful: bool,
    /// Whether it has been established.
    pub(super) confirmed: bool,
    /// Whether our user knows that it is over.
    pub(super) told: bool,
}

/// The beginning of a passive connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    pub(super) peer: IpAddr,
    pub(super) since: Instant,
    pub(super) is_known: bool,
}

/// Which side asked for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Active,
    Passive,
}

/// What a peer calls itself and the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerName {
    pub(super) ca_guid: u64,
    pub(super) comm_id: u32,
    pub(super) qpn: Qpn,
    /// Tells a duplicate of its message from a new one.
    pub(super) psn: u32,
}

/// What came with an event.
#[derive(Debug)]
pub(super) enum Input<'a> {
    None,
    Accept(&'a AcceptParams<'a>, &'a [u8; REP_PRIVATE_LEN]),
    Reject(RejReason, &'a [u8; REJ_PRIVATE_LEN]),
    Rep(&'a Rep),
    Rej(&'a Rej),
    Mra(&'a Mra),
    /// Transaction ID of a DREQ.
    Dreq(u64),
}

/// A deadline, and what follows when it passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    pub(super) deadline: Instant,
    interval: Duration,
    longest: Duration,
    /// Retransmissions left.
    tries: u32,
    /// How often the peer may still ask for more time.
    extensions: u32,
}

impl Timer {
    /// What a state waits for; `None` when it waits for its user or for nothing.
    fn of(state: State, doubtful: bool, now: Instant) -> Option<Self> {
        let (first, longest, tries) = match state {
            // Ten seconds in all, and sent again so late that in a flood few live to see it: answers to false addresses are
            // what a flood costs. A host whose RTU was lost tries for four seconds to send on the new queue pair.
            State::RepSent if doubtful => (Duration::from_secs(2), Duration::from_secs(4), 2),
            // 35 seconds in all.
            State::ReqSent => (Duration::from_millis(500), Duration::from_secs(4), 10),
            // A minute in all: as long as a Linux host may take to send its request again a few times.
            State::RepSent => (Duration::from_millis(250), Duration::from_secs(4), 17),
            State::DreqSent => (Duration::from_millis(500), Duration::from_millis(500), 3),
            State::TimeWait => (TIME_WAIT, TIME_WAIT, 0),
            State::Refused => (REFUSED_TIME, REFUSED_TIME, 0),
            State::RepReceived | State::ReqReceived | State::Established => return None,
        };
        Some(Self { deadline: now + first, interval: first, longest, tries, extensions: 3 })
    }

    /// Goes on to the next deadline, if a retransmission is left.
    pub(super) fn advance(&mut self, now: Instant) -> bool {
        if self.tries == 0 {
            return false;
        }
        self.tries -= 1;
        self.interval = (self.interval * 2).min(self.longest);
        self.deadline = now + self.interval;
        true
    }

    /// Waits `time` longer, if the peer has not asked too often.
    fn extend(&mut self, now: Instant, time: Duration) {
        const LONGEST: Duration = Duration::from_secs(70);
        if self.extensions > 0 {
            self.extensions -= 1;
            self.deadline = self.deadline.max(now + time.min(LONGEST));
        }
    }
}

impl Connection {
    /// What limits know it by, if packets under a false address can have made it: also when others have ended it since.
    pub(super) fn half_open(&self) -> Option<Beginning> {
        let half_open = self.side == Side::Passive && !self.confirmed;
        let (peer, since, is_known) = (self.remote, self.since, self.is_known);
        half_open.then_some(Beginning { peer, since, is_known })
    }

    /// Its names as we say them.
    pub(super) fn ids(&self, id: u32) -> CommIds {
        CommIds { local: id, remote: self.peer.map_or(0, |peer| peer.comm_id) }
    }
}

impl Cm {
    /// Lets an event happen to a connection; whether it meant something.
    pub(super) fn apply(&mut self, now: Instant, id: u32, event: Event, input: &Input<'_>) -> bool {
        let Some(connection) = self.connections.get(&id) else { return false };
        let Some((actions, next)) = transition(connection.state, event) else { return false };
        let remote = connection.remote;
        // Answers to what changes nothing are for duplicates, which anyone can send.
        let from_peer = matches!(event, Event::Req | Event::Rep | Event::Dreq);
        let limited = from_peer && next == Next::Stay && !actions.is_empty();
        if limited && !self.may_answer(now, remote) {
            return true;
        }
        for &action in actions {
            self.perform(now, id, action, input);
        }
        match next {
            Next::Stay => {}
            Next::To(state) => self.enter(now, id, state),
            Next::Gone => {
                self.remove(id);
                self.events.push_back(CmEvent::Released { id: CmId(id) });
            }
            Next::Forgotten => self.remove(id),
        }
        true
    }

    /// Whether one more answer to an unauthenticated packet may be sent; counts it.
    pub(super) fn may_answer(&mut self, now: Instant, to: IpAddr) -> bool {
        let may = self.answers[usize::from(self.known.contains(to))].take(now, to);
        if !may {
            self.counters.unanswered += 1;
        }
        may
    }

    /// Goes to `state` and starts its timer.
    pub(super) fn enter(&mut self, now: Instant, id: u32, state: State) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let was_half_open = connection.half_open();
        connection.state = state;
        connection.confirmed |= state == State::Established;
        let is_half_open = connection.half_open().is_some();
        let (remote, peer) = (connection.remote, connection.peer);
        let old = connection.timer;
        connection.timer = Timer::of(state, connection.doubtful, now);
        if connection.timer.is_none() || state == State::TimeWait {
            connection.message = None;
        }
        if let Some(old) = old {
            self.timers.remove(&(old.deadline, id));
        }
        self.schedule(id);
        if let Some(beginning) = was_half_open.filter(|_| !is_half_open) {
            self.leave_half_open(id, beginning);
            // It answered what was sent to its address, with a number that only who got that knows.
            self.known.insert(remote);
        }
        if matches!(state, State::Refused | State::DreqSent | State::TimeWait)
            && let Some(peer) = peer
        {
            // Its user is done with it; the peer, if it restarted, may ask for the same queue pair again.
            self.unindex_qpn(id, remote, peer);
        }
    }

    /// Puts the connection's deadline into the order of deadlines.
    pub(super) fn schedule(&mut self, id: u32) {
        if let Some(timer) = self.connections.get(&id).and_then(|connection| connection.timer) {
            self.timers.insert((timer.deadline, id));
        }
    }

    fn perform(&mut self, now: Instant, id: u32, action: Action, input: &Input<'_>) {
        match (action, input) {
            (Action::Resend, _) => self.resend(id),
            (Action::Extend, Input::Mra(mra)) => self.extend(now, id, exponent_time(mra.service_timeout)),
            (Action::SendMra, _) => {
                let message =
                    |ids| CmMessage::Mra(Mra { ids, about: About::Req, service_timeout: RESPONSE_TIMEOUT });
                self.send(id, message);
            }
            (Action::SendRep, Input::Accept(with, private)) => self.send_rep(id, with, private),
            (Action::SendRtu, _) => self.send(id, CmMessage::Rtu),
            (Action::SendDreq, _) => self.send_dreq(id),
            (Action::SendDrep, Input::Dreq(transaction_id)) => {
                if let Some(connection) = self.connections.get(&id) {
                    let mad = CmMessage::Drep(connection.ids(id)).emit(*transaction_id);
                    let (src, dst, tos) = (connection.local, connection.remote, connection.tos);
                    self.push(MadOut { src, dst, tos, mad });
                }
            }
            (Action::SendRej, Input::Reject(reason, private)) => self.send_rej(id, *reason, **private),
            (Action::SendRejConsumer, _) => self.send_rej(id, RejReason::Consumer, [0; REJ_PRIVATE_LEN]),
            (Action::SendRejTimeout, _) => self.send_rej(id, RejReason::Timeout, [0; REJ_PRIVATE_LEN]),
            (Action::TellReply, Input::Rep(rep)) => self.tell_reply(id, rep),
            (Action::TellEstablished, _) => self.events.push_back(CmEvent::Established { id: CmId(id) }),
            (Action::TellRejected, Input::Rej(rej)) => {
                let event = CmEvent::Rejected { id: CmId(id), reason: rej.reason, private: rej.private };
                self.tell_end(id, event);
            }
            (Action::TellUnreachable, _) => self.tell_end(id, CmEvent::Unreachable { id: CmId(id) }),
            (Action::TellDisconnected, _) => self.tell_end(id, CmEvent::Disconnected { id: CmId(id) }),
            (
                Action::Extend
                | Action::SendRep
                | Action::SendDrep
                | Action::SendRej
                | Action::TellReply
                | Action::TellRejected,
                _,
            ) => unreachable!("the caller of an event passes what its actions need: {action:?}, {input:?}"),
        }
    }

    /// Says that a connection is over, once.
    fn tell_end(&mut self, id: u32, event: CmEvent) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !std::mem::replace(&mut connection.told, true)
        {
            self.events.push_back(event);
        }
    }

    fn tell_reply(&mut self, id: u32, rep: &Rep) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let name =
            PeerName { ca_guid: rep.ca_guid, comm_id: rep.ids.local, qpn: rep.qpn, psn: rep.starting_psn };
        connection.peer = Some(name);
        let peer = PeerQp {
            qpn: rep.qpn,
            psn: rep.starting_psn,
            path_mtu: connection.path_mtu,
            retry_cnt: RETRIES,
            rnr_retry: rep.rnr_retry_count,
            ack_timeout: exponent_time(ACK_TIMEOUT),
            responder_resources: rep.responder_resources,
            initiator_depth: rep.initiator_depth,
            tos: connection.tos,
            flow_label: connection.flow_label,
            rq_psn: None,
            route: None,
        };
        let remote = connection.remote;
        self.index(id, remote, name);
        self.events.push_back(CmEvent::ConnectReply { id: CmId(id), peer, private: rep.private });
    }

    fn extend(&mut self, now: Instant, id: u32, time: Duration) {
        if let Some(timer) = self.connections.get_mut(&id).and_then(|connection| connection.timer.as_mut()) {
            self.timers.remove(&(timer.deadline, id));
            timer.extend(now, time);
            self.schedule(id);
        }
    }

    fn send_rep(&mut self, id: u32, with: &AcceptParams<'_>, private: &[u8; REP_PRIVATE_LEN]) {
        /// Exponent of the delay before our ACKs, as rxe says it; 16 and more would slow the peer's timer.
        const TARGET_ACK_DELAY: u8 = 15;
        let ca_guid = self.config.ca_guid;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.qpn = with.qpn;
        let rep = Rep {
            ids: connection.ids(id),
            qpn: with.qpn,
            starting_psn: with.rq_psn & 0x00FF_FFFF,
            responder_resources: with.responder_resources,
            initiator_depth: with.initiator_depth,
            target_ack_delay: TARGET_ACK_DELAY,
            flow_control: connection.flow_control,
            rnr_retry_count: RETRIES,
            srq: false,
            ca_guid,
            private: *private,
        };
        let mad = CmMessage::Rep(rep).emit(connection.transaction_id);
        self.send_with_resends(id, mad);
    }

    fn send_dreq(&mut self, id: u32) {
        let transaction_id = self.fresh_transaction();
        let Some(connection) = self.connections.get(&id) else { return };
        let peer = connection.peer.expect("whoever sends a DREQ has heard of its peer");
        let dreq = Dreq { ids: connection.ids(id), remote_qpn: peer.qpn };
        self.send_with_resends(id, CmMessage::Dreq(dreq).emit(transaction_id));
    }

    pub(super) fn send_rej(&mut self, id: u32, reason: RejReason, private: [u8; REJ_PRIVATE_LEN]) {
        let ca_guid = self.config.ca_guid;
        let Some(connection) = self.connections.get(&id) else { return };
        let about = match connection.state {
            State::RepReceived | State::RepSent => About::Rep,
            _ => About::Req,
        };
        let mut info = [0; REJ_INFO_LEN];
        let info_len = if reason == RejReason::Timeout {
            info[..8].copy_from_slice(&ca_guid.to_be_bytes());
            8
        } else {
            0
        };
        let rej = Rej { ids: connection.ids(id), about, reason, info_len, info, private };
        let mad = CmMessage::Rej(rej).emit(connection.transaction_id);
        self.send_with_resends(id, mad);
    }

    /// Sends a message in answer to the connection's REQ or REP.
    fn send(&mut self, id: u32, message: impl FnOnce(CommIds) -> CmMessage) {
        if let Some(connection) = self.connections.get(&id) {
            let mad = message(connection.ids(id)).emit(connection.transaction_id);
            let (src, dst, tos) = (connection.local, connection.remote, connection.tos);
            self.push(MadOut { src, dst, tos, mad });
        }
    }

    /// Sends a message and keeps it for retransmission.
    pub(super) fn send_with_resends(&mut self, id: u32, mad: [u8; MAD_LEN]) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.message = Some(Box::new(mad));
            self.resend(id);
        }
    }

    fn resend(&mut self, id: u32) {
        if let Some(connection) = self.connections.get(&id)
            && let Some(mad) = &connection.message
        {
            let (src, dst, tos, mad) = (connection.local, connection.remote, connection.tos, **mad);
            self.push(MadOut { src, dst, tos, mad });
        }
    }

    /// Queues a datagram. What does not fit is lost like any datagram, and comes again like any.
    pub(super) fn push(&mut self, out: MadOut) {
        const QUEUE: usize = 4096;
        if self.output.len() < QUEUE {
            self.output.push_back(out);
        }
    }
}
