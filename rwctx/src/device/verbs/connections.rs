//! Connections of the verbs device under numbers of ours: who asks, what became of it, in the order that [`CmEvent`] promises.
//!
//! Knows no library: a [`Handle`] stands for an identifier of librdmacm. The handshake itself, its repetitions and its timers are
//! the kernel's; who may have a connection under way, and for how long, is decided here.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::unconfirmed::Unconfirmed;
use crate::device::Qpn;
use crate::device::soft::cm::half_open::Room;
use crate::device::soft::cm::{AcceptParams, CmError, CmEvent, CmId, PeerQp};
use crate::device::soft::wire::RejReason;
use crate::device::soft::wire::cm::{REJ_PRIVATE_LEN, REQ_PRIVATE_LEN};

/// How long a peer may take to agree to the end of a connection. The kernel would ask it for a minute, and refuse a machine that
/// was started anew and comes with the same numbers meanwhile.
const END: Duration = Duration::from_secs(1);

/// What a connection is to the library. Dropping it ends it: a request is refused then.
pub(super) trait Handle {
    /// Which events are of it.
    fn key(&self) -> IdKey;

    /// Accepts a request; its queue pair can already receive.
    fn accept(&self, with: &Acceptance<'_>) -> io::Result<()>;

    /// Refuses a request.
    fn reject(&self, private: &[u8]) -> io::Result<()>;

    /// Ends a connection, or answers that the peer did.
    fn disconnect(&self) -> io::Result<()>;

    /// The peer's first request came: that is as good as its last message of the handshake.
    fn notify_traffic(&self) -> io::Result<()>;
}

/// Which identifier an event is of: the same as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IdKey(pub(super) usize);

/// A request for a connection.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) local: SocketAddr,
    pub(super) remote: IpAddr,
    pub(super) peer: PeerQp,
    pub(super) private: [u8; REQ_PRIVATE_LEN],
}

/// What became of a connection or listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Both sides know of it.
    Established,
    /// The peer refused.
    Rejected,
    /// No answer, or it could not be made.
    Unreachable,
    /// It is over.
    Disconnected,
    /// No packet of it can be under way any more.
    TimewaitExit,
    /// Its device goes away.
    DeviceRemoval,
    /// Nothing that needs anything done: its number.
    Other(u32),
}

/// What an accepted connection offers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acceptance<'a> {
    pub(super) qpn: Qpn,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) private: &'a [u8],
}

/// Connections by number.
#[derive(Debug)]
pub(super) struct Connections<H> {
    by_id: BTreeMap<CmId, Connection<H>>,
    by_key: BTreeMap<IdKey, CmId>,
    next_id: u32,
    events: VecDeque<CmEvent>,
    /// Connections that we end, and until when their peers have time to agree.
    ending: VecDeque<(Instant, CmId)>,
    unconfirmed: Unconfirmed,
    counters: ConnectionCounters,
}

/// Sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectionCounters {
    /// Requests.
    pub(super) requests: u64,
    /// Those refused because too many of others were under way.
    pub(super) crowded_out: u64,
    /// Those that made room for others.
    pub(super) displaced: u64,
    /// Those whose peers did not confirm in time.
    pub(super) expired: u64,
    /// Calls of the library that came to nothing.
    pub(super) failures: u64,
}

#[derive(Debug)]
struct Connection<H> {
    handle: H,
    /// Its end was begun by us, or answered: the peer needs no answer.
    is_over: bool,
    /// Its end was told.
    is_told: bool,
}

impl<H> Default for Connections<H> {
    fn default() -> Self {
        Self {
            by_id: BTreeMap::new(),
            by_key: BTreeMap::new(),
            next_id: 1,
            events: VecDeque::new(),
            ending: VecDeque::new(),
            unconfirmed: Unconfirmed::default(),
            counters: ConnectionCounters::default(),
        }
    }
}

impl<H: Handle> Connections<H> {
    /// Somebody asks for a connection.
    pub(super) fn handle_request(&mut self, now: Instant, handle: H, request: &Request) {
        let Request { local, remote, peer, private } = *request;
        self.counters.requests += 1;
        match self.unconfirmed.room(now, remote) {
            Room::Free => {}
            Room::Displaces(id) => {
                self.counters.displaced += 1;
                let id = CmId(id);
                self.end(id, CmEvent::Unreachable { id });
            }
            // Dropping the handle refuses it.
            Room::None => {
                self.counters.crowded_out += 1;
                return;
            }
        }
        let id = self.fresh_id();
        self.unconfirmed.add(now, remote, id);
        self.by_key.insert(handle.key(), id);
        self.by_id.insert(id, Connection { handle, is_over: false, is_told: false });
        let (local, port) = (local.ip(), local.port());
        // A number can't be promised here, so the queue of a doubtful peer is made, too.
        let doubtful = false;
        self.events.push_back(CmEvent::ConnectRequest { id, local, remote, port, peer, private, doubtful });
    }

    /// Something became of a connection.
    pub(super) fn handle_change(&mut self, key: IdKey, change: Change) {
        let Some(&id) = self.by_key.get(&key) else { return };
        match change {
            Change::Established => {
                self.unconfirmed.confirm(id);
                if self.by_id.get(&id).is_some_and(|connection| !connection.is_told) {
                    self.events.push_back(CmEvent::Established { id });
                }
            }
            Change::Rejected => {
                let (reason, private) = (RejReason::Consumer, [0; REJ_PRIVATE_LEN]);
                self.end(id, CmEvent::Rejected { id, reason, private });
            }
            Change::Unreachable => self.end(id, CmEvent::Unreachable { id }),
            Change::Disconnected => {
                self.tell(id, CmEvent::Disconnected { id });
                let Some(connection) = self.by_id.get_mut(&id) else { return };
                if !std::mem::replace(&mut connection.is_over, true)
                    && let Err(error) = connection.handle.disconnect()
                {
                    self.failed(&error, "answer the end of a connection");
                }
            }
            Change::DeviceRemoval | Change::TimewaitExit => self.end(id, CmEvent::Disconnected { id }),
            Change::Other(_) => {}
        }
    }

    /// Lets time pass.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, id)) = self.ending.pop_front_if(|(at, _)| *at <= now) {
            if self.by_id.get(&id).is_some_and(|connection| !connection.is_told) {
                self.end(id, CmEvent::Disconnected { id });
            }
        }
        while let Some(id) = self.unconfirmed.overdue(now) {
            self.counters.expired += 1;
            self.unconfirmed.remove(id);
            self.end(id, CmEvent::Unreachable { id });
        }
    }

    /// When to call [`Self::handle_timeout`].
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let ending = self.ending.front().map(|(at, _)| *at);
        [ending, self.unconfirmed.next_timeout()].into_iter().flatten().min()
    }

    /// Accepts a request.
    ///
    /// # Errors
    /// When it is over by now, or the library refuses: its events say so then.
    pub(super) fn accept(&mut self, id: CmId, with: &AcceptParams<'_>) -> Result<(), CmError> {
        let connection = self.by_id.get(&id).ok_or(CmError::UnknownId)?;
        let acceptance = Acceptance {
            qpn: with.qpn,
            responder_resources: with.responder_resources,
            initiator_depth: with.initiator_depth,
            private: with.private,
        };
        connection.handle.accept(&acceptance).map_err(|error| {
            self.failed(&error, "accept");
            self.end(id, CmEvent::Unreachable { id });
            CmError::WrongState
        })
    }

    /// Refuses a request. It has no further event.
    ///
    /// # Errors
    /// When it is over by now, or the library refuses.
    pub(super) fn reject(&mut self, id: CmId, private: &[u8]) -> Result<(), CmError> {
        let connection = self.forget(id).ok_or(CmError::UnknownId)?;
        connection.handle.reject(private).map_err(|error| {
            self.failed(&error, "reject");
            CmError::WrongState
        })
    }

    /// Ends a connection.
    ///
    /// # Errors
    /// When it is over by now, or the library refuses: its events say then that it is over.
    pub(super) fn disconnect(&mut self, now: Instant, id: CmId) -> Result<(), CmError> {
        let connection = self.by_id.get_mut(&id).ok_or(CmError::UnknownId)?;
        connection.is_over = true;
        self.ending.push_back((now + END, id));
        let ended = connection.handle.disconnect();
        ended.map_err(|error| {
            self.failed(&error, "disconnect");
            CmError::WrongState
        })
    }

    /// The peer's first request came.
    pub(super) fn handle_qp_traffic(&mut self, id: CmId) {
        let Some(connection) = self.by_id.get(&id) else { return };
        if let Err(error) = connection.handle.notify_traffic() {
            self.failed(&error, "notify");
        }
    }

    /// The next event.
    pub(super) fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// Sums.
    pub(super) fn counters(&self) -> ConnectionCounters {
        self.counters
    }

    /// A call of the library came to nothing.
    pub(super) fn failed(&mut self, error: &io::Error, what: &str) {
        self.counters.failures += 1;
        tracing::debug!(%error, what, "the connection manager's call came to nothing");
    }

    /// A connection is over in this way, if that was not told before.
    fn tell(&mut self, id: CmId, how: CmEvent) {
        self.unconfirmed.remove(id);
        if let Some(connection) = self.by_id.get_mut(&id)
            && !std::mem::replace(&mut connection.is_told, true)
        {
            self.events.push_back(how);
        }
    }

    /// A connection has come to its end in this way, and needs no time to fade away.
    fn end(&mut self, id: CmId, how: CmEvent) {
        self.tell(id, how);
        if self.forget(id).is_some() {
            self.events.push_back(CmEvent::Released { id });
        }
    }

    fn forget(&mut self, id: CmId) -> Option<Connection<H>> {
        self.unconfirmed.remove(id);
        let connection = self.by_id.remove(&id)?;
        self.by_key.remove(&connection.handle.key());
        Some(connection)
    }

    fn fresh_id(&mut self) -> CmId {
        loop {
            let id = CmId(self.next_id);
            self.next_id = self.next_id.wrapping_add(1);
            if !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests;
