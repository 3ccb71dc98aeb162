//! Messages of peers: which connection they belong to, and which event they are.

use std::net::IpAddr;
use std::time::Instant;

use super::connection::{Connection, Input, PeerName, Side};
use super::table::{Event, State};
use super::{Cm, CmEvent, CmId, MadOut, PeerQp};
use crate::device::soft::wire::cm::{
    About, CmMessage, CommIds, Dreq, Mra, REJ_INFO_LEN, REJ_PRIVATE_LEN, Rej, Rep, Req, SidrRep,
    exponent_time, gid, service_port,
};
use crate::device::soft::wire::{PKEY_DEFAULT, RejReason};
use crate::device::{PathMtu, Qpn};

/// Where a message came from.
#[derive(Clone, Copy, Debug)]
struct From {
    /// The peer's address.
    src: IpAddr,
    /// Our address.
    dst: IpAddr,
    transaction_id: u64,
}

/// Queue pair numbers of special meaning: SMI, GSI, multicast.
const SPECIAL_QPNS: [Qpn; 3] = [Qpn(0), Qpn(1), Qpn(0x00FF_FFFF)];

impl Cm {
    /// Takes a management datagram that came from `src` to our address `dst`.
    pub fn handle_mad(&mut self, now: Instant, src: IpAddr, dst: IpAddr, mad: &[u8]) {
        let Ok((transaction_id, message)) = CmMessage::parse(mad) else {
            self.counters.malformed += 1;
            return;
        };
        let from = From { src, dst, transaction_id };
        match message {
            CmMessage::Req(req) => self.handle_req(now, from, &req),
            CmMessage::Rep(rep) => self.handle_rep(now, from, &rep),
            CmMessage::Rtu(ids) => {
                if let Some(id) = self.find(from, ids) {
                    self.apply(now, id, Event::Rtu, &Input::None);
                }
            }
            CmMessage::Mra(mra) => self.handle_mra(now, from, &mra),
            CmMessage::Rej(rej) => self.handle_rej(now, from, &rej),
            CmMessage::Dreq(dreq) => self.handle_dreq(now, from, &dreq),
            CmMessage::Drep(ids) => {
                if let Some(id) = self.find(from, ids) {
                    self.apply(now, id, Event::Drep, &Input::None);
                }
            }
            CmMessage::SidrReq(request) => {
                let reply = SidrRep { request_id: request.request_id, service_id: request.service_id };
                self.answer(now, from, &CmMessage::SidrRep(reply));
            }
            CmMessage::SidrRep(_) => {}
        }
    }

    fn handle_req(&mut self, now: Instant, from: From, req: &Req) {
        let name = PeerName {
            ca_guid: req.ca_guid,
            comm_id: req.local_comm_id,
            qpn: req.qpn,
            psn: req.starting_psn,
        };
        if let Some(&id) = self.by_peer_id.get(&(from.src, name.ca_guid, name.comm_id)) {
            let duplicate = self.connections.get(&id).is_some_and(|connection| {
                connection.side == Side::Passive
                    && connection.local == from.dst
                    && connection.peer == Some(name)
            });
            if duplicate {
                self.apply(now, id, Event::Req, &Input::None);
                return;
            }
        }
        let key = (from.src, name.ca_guid, name.comm_id);
        let same_id = self.by_peer_id.get(&key).copied();
        let same_qpn = self.by_peer_qpn.get(&(from.src, name.ca_guid, name.qpn.0)).copied();
        if let Some(old) = same_id.or(same_qpn) {
            // The peer has forgotten that connection: it is over for both. The request comes again.
            self.refuse_req(now, from, req, RejReason::Stale);
            self.apply(now, old, Event::Stale, &Input::None);
            return;
        }
        let (port, path_mtu) = match self.check_req(from, req) {
            Ok(checked) => checked,
            Err(reason) => return self.refuse_req(now, from, req, reason),
        };
        let is_known = self.known.contains(from.src);
        if !self.make_room(now, from.src, is_known) {
            return;
        }
        let doubtful = !is_known && self.half_open[0].total() >= self.config.doubtful_from;
        let id = self.fresh_id();
        let path = &req.primary;
        let connection = Connection {
            state: State::ReqReceived,
            side: Side::Passive,
            local: from.dst,
            remote: from.src,
            tos: path.traffic_class,
            qpn: Qpn(0),
            peer: Some(name),
            transaction_id: from.transaction_id,
            flow_control: req.flow_control,
            path_mtu,
            flow_label: path.flow_label,
            message: None,
            timer: None,
            since: now,
            is_known,
            doubtful,
            confirmed: false,
            told: false,
        };
        self.insert(id, connection);
        let peer = PeerQp {
            qpn: req.qpn,
            psn: req.starting_psn,
            path_mtu,
            retry_cnt: req.retry_count,
            rnr_retry: req.rnr_retry_count,
            // 0 switches the peer's own timer off; for ours that means as late as can be.
            ack_timeout: exponent_time(if path.ack_timeout == 0 { 31 } else { path.ack_timeout }),
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            tos: path.traffic_class,
            flow_label: path.flow_label,
            rq_psn: None,
            route: None,
        };
        self.events.push_back(CmEvent::ConnectRequest {
            id: CmId(id),
            local: from.dst,
            remote: from.src,
            port,
            peer,
            private: req.private,
            doubtful,
        });
    }

    /// Port and path MTU of a request that our user may decide on, or why it may not.
    fn check_req(&self, from: From, req: &Req) -> Result<(u16, PathMtu), RejReason> {
        let Some(port) = service_port(req.service_id).filter(|port| self.listeners.contains(port)) else {
            return Err(RejReason::InvalidServiceId);
        };
        if req.transport != 0 {
            return Err(RejReason::InvalidTransport);
        }
        if SPECIAL_QPNS.contains(&req.qpn) || req.local_comm_id == 0 {
            return Err(RejReason::NoQp);
        }
        if req.pkey & 0x7FFF != PKEY_DEFAULT & 0x7FFF {
            return Err(RejReason::Unsupported);
        }
        // The packet says where it came from; a request that says otherwise is forged or went through a translator.
        if req.primary.local_gid != gid(from.src) || req.primary.remote_gid != gid(from.dst) {
            return Err(RejReason::InvalidGid);
        }
        if !req.cma.is_some_and(|cma| gid(cma.src) == gid(from.src) && gid(cma.dst) == gid(from.dst)) {
            return Err(RejReason::Consumer);
        }
        match req.path_mtu {
            Ok(path_mtu) if path_mtu <= self.config.max_path_mtu => Ok((port, path_mtu)),
            _ => Err(RejReason::InvalidMtu),
        }
    }

    fn handle_rep(&mut self, now: Instant, from: From, rep: &Rep) {
        let connection = self
            .connections
            .get(&rep.ids.remote)
            .filter(|connection| connection.side == Side::Active && connection.is_between(from));
        let refuse = |reason| {
            let ids = rep.ids.swapped();
            CmMessage::Rej(rejection(ids, About::Rep, reason))
        };
        let Some(connection) = connection else {
            // It waits for an RTU that never comes; tell it so.
            return self.answer(now, from, &refuse(RejReason::InvalidCommId));
        };
        let id = rep.ids.remote;
        match connection.peer {
            Some(peer) if peer.comm_id == rep.ids.local => {
                self.apply(now, id, Event::Rep, &Input::Rep(rep));
            }
            // It lost what it replied first, and replies anew to a duplicate of our request.
            Some(_) => self.answer(now, from, &refuse(RejReason::InvalidCommId)),
            None if rep.ids.local == 0 || SPECIAL_QPNS.contains(&rep.qpn) => {
                self.counters.malformed += 1;
            }
            None => {
                let same_id = self.by_peer_id.get(&(from.src, rep.ca_guid, rep.ids.local)).copied();
                let same_qpn = self.by_peer_qpn.get(&(from.src, rep.ca_guid, rep.qpn.0)).copied();
                if let Some(old) = same_id.or(same_qpn) {
                    self.answer(now, from, &refuse(RejReason::Stale));
                    self.apply(now, old, Event::Stale, &Input::None);
                } else {
                    self.apply(now, id, Event::Rep, &Input::Rep(rep));
                }
            }
        }
    }

    fn handle_mra(&mut self, now: Instant, from: From, mra: &Mra) {
        let Some(connection) = self.connections.get(&mra.ids.remote).filter(|c| c.is_between(from)) else {
            return;
        };
        let awaited = match connection.state {
            State::ReqSent => About::Req,
            _ if connection.peer.is_some_and(|peer| peer.comm_id == mra.ids.local) => About::Rep,
            _ => return,
        };
        if mra.about == awaited {
            self.apply(now, mra.ids.remote, Event::Mra, &Input::Mra(mra));
        }
    }

    fn handle_rej(&mut self, now: Instant, from: From, rej: &Rej) {
        let named = self.connections.get(&rej.ids.remote).filter(|connection| connection.is_between(from));
        let named = named.filter(|connection| match connection.peer {
            // Who refuses a request need not have an ID of its own.
            None => connection.state == State::ReqSent,
            Some(peer) => peer.comm_id == rej.ids.local,
        });
        // Who gives up on a request never learned our ID.
        let gave_up = || {
            let key = (from.src, rej.timed_out_ca_guid()?, rej.ids.local);
            let id = self.by_peer_id.get(&key).copied()?;
            self.connections.get(&id)?.is_between(from).then_some(id)
        };
        let id = if named.is_some() { Some(rej.ids.remote) } else { gave_up() };
        if let Some(id) = id {
            self.apply(now, id, Event::Rej, &Input::Rej(rej));
        }
    }

    fn handle_dreq(&mut self, now: Instant, from: From, dreq: &Dreq) {
        let named = self.connections.get(&dreq.ids.remote).filter(|c| c.is_between(from));
        let known = named.is_some_and(|connection| match connection.peer {
            None => true,
            Some(peer) => peer.comm_id == dreq.ids.local,
        });
        if !known {
            // We have forgotten it, or never had it: let the peer do so too.
            return self.answer(now, from, &CmMessage::Drep(dreq.ids.swapped()));
        }
        let Some(connection) = named.filter(|connection| connection.qpn == dreq.remote_qpn) else {
            return;
        };
        if connection.peer.is_none() {
            // The REP that named the peer was lost. It is still ours to ask again.
            return self.answer(now, from, &CmMessage::Drep(dreq.ids.swapped()));
        }
        let input = Input::Dreq(from.transaction_id);
        self.apply(now, dreq.ids.remote, Event::Dreq, &input);
    }

    /// The connection that a message of its peer names.
    fn find(&self, from: From, ids: CommIds) -> Option<u32> {
        let connection = self.connections.get(&ids.remote)?;
        let named = connection.peer.is_some_and(|peer| peer.comm_id == ids.local);
        (named && connection.is_between(from)).then_some(ids.remote)
    }

    fn refuse_req(&mut self, now: Instant, from: From, req: &Req, reason: RejReason) {
        self.counters.refused += 1;
        let ids = CommIds { local: 0, remote: req.local_comm_id };
        self.answer(now, from, &CmMessage::Rej(rejection(ids, About::Req, reason)));
    }

    /// Answers a message that belongs to no connection, if the rate allows.
    fn answer(&mut self, now: Instant, from: From, message: &CmMessage) {
        if self.may_answer(now, from.src) {
            let mad = message.emit(from.transaction_id);
            self.push(MadOut { src: from.dst, dst: from.src, tos: 0, mad });
        }
    }
}

impl Connection {
    /// Whether it is between the addresses of a packet.
    fn is_between(&self, from: From) -> bool {
        self.remote == from.src && self.local == from.dst
    }
}

fn rejection(ids: CommIds, about: About, reason: RejReason) -> Rej {
    Rej { ids, about, reason, info_len: 0, info: [0; REJ_INFO_LEN], private: [0; REJ_PRIVATE_LEN] }
}
