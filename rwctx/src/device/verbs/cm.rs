//! Connections of the verbs device: identifiers of librdmacm under numbers of ours, their events in the order that
//! [`CmEvent`] promises.
//!
//! The handshake itself, its repetitions and its timers are the kernel's.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::{Acceptance, Change, Event, EventChannel, Id, IdKey, Request};
use crate::device::soft::cm::{AcceptParams, CmError, CmEvent, CmId};
use crate::device::soft::wire::RejReason;
use crate::device::soft::wire::cm::REJ_PRIVATE_LEN;

/// Requests that the kernel keeps for us, of one listener.
const BACKLOG: i32 = 128;
/// How long a peer may take to agree to the end of a connection. The kernel would ask it for a minute, and refuse a machine that
/// was started anew and comes with the same numbers meanwhile.
const END: Duration = Duration::from_secs(1);

/// The connections of one device.
#[derive(Debug)]
pub(super) struct Cm {
    addresses: Vec<IpAddr>,
    listeners: Vec<(u16, Id)>,
    connections: BTreeMap<CmId, Connection>,
    by_key: BTreeMap<IdKey, CmId>,
    next_id: u32,
    events: VecDeque<CmEvent>,
    /// Connections that we end, and until when their peers have time to agree.
    ending: VecDeque<(Instant, CmId)>,
    device_removed: bool,
    requests: u64,
    failures: u64,
    channel: Arc<EventChannel>,
}

#[derive(Debug)]
struct Connection {
    id: Id,
    /// Its end was begun by us, or answered: the peer needs no answer.
    is_over: bool,
    /// Its end was told.
    is_told: bool,
}

impl Cm {
    /// A manager of connections to these addresses, without listeners.
    pub(super) fn new(channel: Arc<EventChannel>, addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            listeners: Vec::new(),
            connections: BTreeMap::new(),
            by_key: BTreeMap::new(),
            next_id: 1,
            events: VecDeque::new(),
            ending: VecDeque::new(),
            device_removed: false,
            requests: 0,
            failures: 0,
            channel,
        }
    }

    /// Takes requests for `port` of each address.
    ///
    /// # Errors
    /// What the library says; nothing listens then.
    pub(super) fn listen(&mut self, port: u16) -> io::Result<()> {
        let mut made = Vec::new();
        for &address in &self.addresses {
            let id = Id::bind(&self.channel, SocketAddr::new(address, port))?;
            id.listen(BACKLOG)?;
            made.push((port, id));
        }
        self.listeners.append(&mut made);
        Ok(())
    }

    /// Refuses requests for `port` from now on.
    pub(super) fn unlisten(&mut self, port: u16) {
        self.listeners.retain(|(other, _)| *other != port);
    }

    /// Accepts a request.
    pub(super) fn accept(&mut self, id: CmId, with: &AcceptParams<'_>) -> Result<(), CmError> {
        let connection = self.connections.get(&id).ok_or(CmError::UnknownId)?;
        let acceptance = Acceptance {
            qpn: with.qpn,
            responder_resources: with.responder_resources,
            initiator_depth: with.initiator_depth,
            private: with.private,
        };
        let accepted = connection.id.accept(&acceptance);
        if let Err(error) = accepted {
            self.failed(&error, "accept");
            self.end(id, CmEvent::Unreachable { id });
            return Err(CmError::WrongState);
        }
        Ok(())
    }

    /// Refuses a request. It has no further event.
    pub(super) fn reject(&mut self, id: CmId, private: &[u8]) -> Result<(), CmError> {
        let connection = self.forget(id).ok_or(CmError::UnknownId)?;
        connection.id.reject(private).map_err(|error| {
            self.failed(&error, "reject");
            CmError::WrongState
        })
    }

    /// Ends a connection.
    pub(super) fn disconnect(&mut self, now: Instant, id: CmId) -> Result<(), CmError> {
        let connection = self.connections.get_mut(&id).ok_or(CmError::UnknownId)?;
        connection.is_over = true;
        self.ending.push_back((now + END, id));
        let ended = connection.id.disconnect();
        ended.map_err(|error| {
            self.failed(&error, "disconnect");
            CmError::WrongState
        })
    }

    /// The peer's first request came.
    pub(super) fn handle_qp_traffic(&mut self, id: CmId) {
        let Some(connection) = self.connections.get(&id) else { return };
        if let Err(error) = connection.id.notify_traffic() {
            self.failed(&error, "notify");
        }
    }

    /// The next event.
    pub(super) fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// Reads what the kernel has to say, and lets time pass.
    pub(super) fn receive(&mut self, now: Instant) {
        while let Some((_, id)) = self.ending.pop_front_if(|(at, _)| *at <= now) {
            if self.connections.get(&id).is_some_and(|connection| !connection.is_told) {
                self.end(id, CmEvent::Disconnected { id });
            }
        }
        while let Some(event) = self.channel.poll() {
            match event {
                Event::Request(request) => self.on_request(*request),
                Event::Change(key, change) => self.on_change(key, change),
                Event::Unreadable(error) => self.failed(&error, "read a request"),
            }
        }
    }

    /// Becomes readable when there is something to [`Self::receive`].
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// When to call [`Self::receive`] though nothing arrives.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.ending.front().map(|(at, _)| *at)
    }

    /// Whether the device went away under its listeners or connections.
    pub(super) fn device_removed(&self) -> bool {
        self.device_removed
    }

    /// Requests so far, and calls that failed.
    pub(super) fn counters(&self) -> (u64, u64) {
        (self.requests, self.failures)
    }

    fn on_request(&mut self, request: Request) {
        let Request { id: handle, local, remote, peer, private } = request;
        self.requests += 1;
        let id = self.fresh_id();
        self.by_key.insert(handle.key(), id);
        self.connections.insert(id, Connection { id: handle, is_over: false, is_told: false });
        let (local, port) = (local.ip(), local.port());
        self.events.push_back(CmEvent::ConnectRequest {
            id,
            local,
            remote,
            port,
            peer,
            private,
            // The kernel keeps those of whom it knows too little.
            doubtful: false,
        });
    }

    fn on_change(&mut self, key: IdKey, change: Change) {
        self.device_removed |= change == Change::DeviceRemoval;
        let Some(&id) = self.by_key.get(&key) else { return };
        match change {
            Change::Established => self.events.push_back(CmEvent::Established { id }),
            Change::Rejected => {
                let (reason, private) = (RejReason::Consumer, [0; REJ_PRIVATE_LEN]);
                self.end(id, CmEvent::Rejected { id, reason, private });
            }
            Change::Unreachable => self.end(id, CmEvent::Unreachable { id }),
            Change::Disconnected => {
                let Some(connection) = self.connections.get_mut(&id) else { return };
                connection.is_told = true;
                if !std::mem::replace(&mut connection.is_over, true)
                    && let Err(error) = connection.id.disconnect()
                {
                    self.failed(&error, "answer the end of a connection");
                }
                self.events.push_back(CmEvent::Disconnected { id });
            }
            Change::DeviceRemoval => self.end(id, CmEvent::Disconnected { id }),
            Change::TimewaitExit => {
                self.forget(id);
                self.events.push_back(CmEvent::Released { id });
            }
            Change::Other(_) => {}
        }
    }

    /// A connection has come to its end in this way, and needs no time to fade away.
    fn end(&mut self, id: CmId, how: CmEvent) {
        self.forget(id);
        self.events.push_back(how);
        self.events.push_back(CmEvent::Released { id });
    }

    fn forget(&mut self, id: CmId) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        self.by_key.remove(&connection.id.key());
        Some(connection)
    }

    fn fresh_id(&mut self) -> CmId {
        loop {
            let id = CmId(self.next_id);
            self.next_id = self.next_id.wrapping_add(1);
            if !self.connections.contains_key(&id) {
                return id;
            }
        }
    }

    fn failed(&mut self, error: &io::Error, what: &str) {
        self.failures += 1;
        tracing::debug!(%error, what, "the connection manager's call came to nothing");
    }
}
