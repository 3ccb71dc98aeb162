//! Reactor 0's business with the connection manager: which reactor gets a queue, and who is told what.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use rwctx::device::Qpn;
use rwctx::device::provider::Provider;
use rwctx::device::soft::cm::{AcceptParams, CmEvent, CmId};
use zerocopy::IntoBytes;

use super::mailbox::Postbox;
use super::{Message, OpenQueue, Opened, max_reads};
use crate::iscsi::rdma::ConnectionRequest;
use crate::iscsi::session::Invalidation;
use crate::iscsi::wire::private_data::Abilities;
use crate::log_limit::LogLimit;
use crate::nvmf::wire::private_data::{AcceptData, QueueRequest, RejectData, RejectStatus};
use crate::transport::Asked;

/// Among which numbers of queue pairs are promised: none of special meaning.
const PROMISED: std::ops::Range<u32> = 0x1000..0x00FF_0000;

/// Limits that connection requests are held against.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Highest I/O queue number.
    pub max_qid: u16,
    /// Most entries of an I/O queue.
    pub max_entries: u32,
}

/// Ports on which connections are accepted, by protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// NVMe's.
    pub nvme: Option<u16>,
    /// iSCSI's, over RDMA.
    pub iser: Option<u16>,
}

/// Accepts connections and hands their queues out.
#[derive(Debug)]
pub struct Acceptor {
    limits: QueueLimits,
    ports: Ports,
    connections: BTreeMap<CmId, Connection>,
    by_qpn: BTreeMap<Qpn, CmId>,
    next_reactor: usize,
    random: fastrand::Rng,
    rejected: u64,
    log_limit: Option<LogLimit>,
}

/// A connection that was not released yet.
#[derive(Debug)]
struct Connection {
    asked: Asked,
    port: u16,
    depth: u8,
    /// Its queue, once made.
    queue: Option<(usize, Qpn)>,
    /// It was accepted without a queue, for its peer may not exist. When that turns out to exist, this reactor makes it.
    deferred: Option<(usize, Box<OpenQueue>)>,
    /// The connection manager said that both sides know of it.
    established: bool,
    /// The connection manager said that it is over.
    over: bool,
}

impl Ports {
    fn iter(self) -> impl Iterator<Item = u16> {
        [self.nvme, self.iser].into_iter().flatten()
    }
}

impl Acceptor {
    /// An acceptor of connections to these ports.
    #[must_use]
    pub fn new(limits: QueueLimits, ports: Ports, seed: u64) -> Self {
        Self {
            limits,
            ports,
            connections: BTreeMap::new(),
            by_qpn: BTreeMap::new(),
            next_reactor: 0,
            random: fastrand::Rng::with_seed(seed),
            rejected: 0,
            log_limit: None,
        }
    }

    /// Starts to accept.
    ///
    /// # Errors
    /// When somebody else listens on the port of an address.
    pub fn start_listening(&self, device: &mut impl Provider) -> io::Result<()> {
        self.ports.iter().try_for_each(|port| device.listen(port))
    }

    /// Refuses new connections from now on.
    pub fn stop_listening(&self, device: &mut impl Provider) {
        self.ports.iter().for_each(|port| device.unlisten(port));
    }

    /// Requests that were refused.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Handles what the connection manager has to say; whether there was anything.
    pub fn poll(&mut self, now: Instant, device: &mut impl Provider, reactors: &[Postbox<Message>]) -> bool {
        let mut busy = false;
        if let Some(limit) = &mut self.log_limit {
            limit.settle(now);
        }
        while let Some(event) = device.poll_cm_event(now) {
            busy = true;
            match event {
                CmEvent::ConnectRequest { id, local, remote, port, peer, private, doubtful } => {
                    match self.admit(device, port, &private, peer.responder_resources) {
                        Ok(asked) => {
                            let open = OpenQueue { id, asked, local, port, remote, peer, promised: None };
                            self.open(now, device, reactors, open, doubtful);
                        }
                        Err(status) => {
                            self.log_limit
                                .get_or_insert_with(|| LogLimit::new(now, "connections"))
                                .log(now, || tracing::warn!(%remote, ?status, "connection refused"));
                            self.reject(now, device, id, port, status);
                        }
                    }
                }
                CmEvent::Established { id } => {
                    let Some(connection) = self.connections.get_mut(&id) else { continue };
                    connection.established = true;
                    if let Some((reactor, qpn)) = connection.queue {
                        reactors[reactor].post(Message::Established(qpn));
                    } else if let Some((reactor, open)) = connection.deferred.take() {
                        reactors[reactor].post(Message::Open(open));
                    }
                }
                CmEvent::Rejected { id, .. } | CmEvent::Unreachable { id } | CmEvent::Disconnected { id } => {
                    self.over(reactors, id);
                }
                CmEvent::Released { id } => {
                    self.over(reactors, id);
                    self.connections.remove(&id);
                }
                // We never ask for connections.
                CmEvent::ConnectReply { .. } => {}
            }
        }
        busy
    }

    /// A reactor made a queue, or could not.
    pub fn opened(
        &mut self,
        now: Instant,
        device: &mut impl Provider,
        reactors: &[Postbox<Message>],
        opened: &Opened,
    ) {
        let &Opened { id, reactor, result } = opened;
        match result {
            Ok((qpn, rq_psn)) => {
                let established = match self.connections.get_mut(&id).filter(|connection| !connection.over) {
                    Some(connection) => {
                        connection.queue = Some((reactor, qpn));
                        self.by_qpn.insert(qpn, id);
                        connection.established
                    }
                    None => return reactors[reactor].post(Message::Disconnected(qpn)),
                };
                if established {
                    reactors[reactor].post(Message::Established(qpn));
                } else if !self.accept(now, device, id, qpn, rq_psn) {
                    // Its events, which may be still to come, say so again. The number may be another queue's by then.
                    self.over(reactors, id);
                }
            }
            Err(status) => {
                let established = self.connections.get_mut(&id).filter(|connection| connection.established);
                if let Some(connection) = established {
                    connection.over = true;
                    self.disconnect(now, device, id);
                } else if let Some(connection) = self.connections.remove(&id).filter(|it| !it.over) {
                    self.reject(now, device, id, connection.port, status);
                }
            }
        }
    }

    /// A queue was closed: ends its connection.
    pub fn queue_closed(&mut self, now: Instant, device: &mut impl Provider, qpn: Qpn) {
        let Some(id) = self.by_qpn.remove(&qpn) else { return };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.over = true;
        }
        self.disconnect(now, device, id);
    }

    /// The first request of a queue came: that counts as the peer's last message of the handshake.
    pub fn traffic(&self, now: Instant, device: &mut impl Provider, qpn: Qpn) {
        if let Some(id) = self.by_qpn.get(&qpn) {
            device.handle_qp_traffic(now, *id);
        }
    }

    fn admit(
        &self,
        device: &impl Provider,
        port: u16,
        private: &[u8],
        responder_resources: u8,
    ) -> Result<Asked, RejectStatus> {
        let asked = if self.ports.iser == Some(port) {
            let able = Abilities::parse(private).invalidate && device.caps().send_with_inv;
            let invalidation = if able { Invalidation::Remote } else { Invalidation::No };
            Asked::Iser(ConnectionRequest { invalidation })
        } else {
            Asked::Nvme(QueueRequest::parse(private, self.limits.max_qid, self.limits.max_entries)?)
        };
        if responder_resources == 0 {
            // Writes would be impossible: they are RDMA READs of ours.
            return Err(RejectStatus::InvalidOrd);
        }
        Ok(asked)
    }

    /// Has a queue made, at once or, for a doubtful peer, once that is known to exist: then all that it gets at first is the
    /// promise of a number.
    fn open(
        &mut self,
        now: Instant,
        device: &mut impl Provider,
        reactors: &[Postbox<Message>],
        open: OpenQueue,
        doubtful: bool,
    ) {
        let id = open.id;
        let reactor = self.next_reactor % reactors.len();
        self.next_reactor = self.next_reactor.wrapping_add(1);
        let depth = open.peer.responder_resources.min(max_reads(device.caps()));
        let connection = Connection {
            asked: open.asked,
            port: open.port,
            depth,
            queue: None,
            deferred: None,
            established: false,
            over: false,
        };
        let connection = self.connections.entry(id).insert_entry(connection).into_mut();
        if !doubtful {
            reactors[reactor].post(Message::Open(Box::new(open)));
            return;
        }
        let [all, this] =
            [reactors.len(), reactor].map(|count| u32::try_from(count).expect("a few reactors"));
        let any = self.random.u32(PROMISED);
        let promised = (Qpn(any - any % all + this), self.random.u32(0..1 << 24));
        connection.deferred = Some((reactor, Box::new(OpenQueue { promised: Some(promised), ..open })));
        // It is over at once where the request was taken back by now; then its events say so.
        self.accept(now, device, id, promised.0, promised.1);
    }

    /// Accepts a connection; `false` when it is over by now.
    fn accept(&self, now: Instant, device: &mut impl Provider, id: CmId, qpn: Qpn, rq_psn: u32) -> bool {
        let Some(connection) = self.connections.get(&id) else { return false };
        let (nvme, iser);
        let private = match connection.asked {
            Asked::Nvme(request) => {
                nvme = AcceptData::new(u16::try_from(request.host_send_entries).unwrap_or(u16::MAX));
                nvme.as_bytes()
            }
            Asked::Iser(ConnectionRequest { invalidation }) => {
                let invalidate = invalidation == Invalidation::Remote;
                iser = Abilities { zero_based: false, invalidate }.emit();
                iser.as_bytes()
            }
        };
        let params =
            AcceptParams { qpn, rq_psn, responder_resources: 0, initiator_depth: connection.depth, private };
        device.accept(now, id, &params).is_ok()
    }

    fn disconnect(&self, now: Instant, device: &mut impl Provider, id: CmId) {
        if let Err(error) = device.disconnect(now, id) {
            tracing::debug!(%error, "ending a connection that is over");
        }
    }

    fn over(&mut self, reactors: &[Postbox<Message>], id: CmId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if std::mem::replace(&mut connection.over, true) {
            return;
        }
        if let Some((reactor, qpn)) = connection.queue {
            self.by_qpn.remove(&qpn);
            reactors[reactor].post(Message::Disconnected(qpn));
        }
    }

    fn reject(
        &mut self,
        now: Instant,
        device: &mut impl Provider,
        id: CmId,
        port: u16,
        status: RejectStatus,
    ) {
        self.rejected += 1;
        let data = RejectData::new(status);
        // iSCSI's reject says nothing.
        let private = if self.ports.iser == Some(port) { &[][..] } else { data.as_bytes() };
        if let Err(error) = device.reject(now, id, private) {
            tracing::debug!(%error, "refusing a connection that is over");
        }
    }
}

#[cfg(test)]
mod tests;
