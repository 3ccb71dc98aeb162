//! iSCSI over RDMA: connections, their sessions and the data of their tasks, on one reactor's device.
//!
//! [`Connections`] are those of one reactor. Its [`Transport`](crate::transport::Transport) hands completions and what was waited
//! for to them. What they want of others they say in [`Event`]s; what all reactors are told of sessions is a [`Notice`].

mod actions;
mod blocks;
mod compare;
mod connection;
mod data;
mod exec;
mod login;
mod manage;
mod notice;
mod request;
mod stats;

use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::sync::Arc;

use rwctx::device::{Device, QpConnect, Qpn};
use rwctx::wc::{Wc, WcStatus};

use self::connection::Connection;
use crate::block::IoDone;
use crate::iscsi::chap::{CHALLENGE_LEN, Seed};
use crate::iscsi::registry::Registry;
use crate::iscsi::session::Invalidation;
use crate::nvmf::wire::private_data::RejectStatus;
use crate::reactor::Message;
use crate::reactor::mailbox::Postbox;
use crate::transport::Event;
use crate::transport::core::{Buffers, Core, ISER, Token};
use crate::transport::share::{Peers, peer_group};
use crate::transport::wr_id::Posted;

pub use self::notice::{Abort, Notice, Origin, Waiter};
pub use self::stats::IserStats;

/// All iSCSI connections of one reactor.
#[derive(Debug)]
pub struct Connections {
    list: Vec<Option<Box<Connection>>>,
    /// Those that are closed and not released.
    closed: Vec<usize>,
    common: Common,
}

/// What all connections of a reactor use.
#[derive(Debug)]
pub(crate) struct Common {
    registry: Arc<Registry>,
    stats: Arc<IserStats>,
    /// This reactor's.
    postbox: Postbox<Message>,
    /// The system's source of randomness.
    random: File,
}

/// What a connection request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRequest {
    /// Whether responses invalidate keys: both sides said so.
    pub invalidation: Invalidation,
}

/// Connections at a time: each costs memory.
const MAX_CONNECTIONS: usize = 1024;
/// Of them such whose login is not through.
const MAX_LOGINS: usize = 256;

impl Connections {
    /// None yet.
    ///
    /// # Errors
    /// When the system has no source of randomness.
    pub fn new(registry: Arc<Registry>, postbox: Postbox<Message>) -> io::Result<Self> {
        let random = File::open("/dev/urandom")?;
        let common = Common { registry, stats: Arc::default(), postbox, random };
        Ok(Self { list: Vec::new(), closed: Vec::new(), common })
    }

    pub(crate) fn stats(&self) -> &Arc<IserStats> {
        &self.common.stats
    }

    /// Makes a connection. `connect` says where to connect its queue pair, once the number is known.
    ///
    /// # Errors
    /// The status to reject it with.
    pub(crate) fn open<D: Device>(
        &mut self,
        core: &mut Core<D>,
        request: ConnectionRequest,
        peer: IpAddr,
        connect: impl FnOnce(&mut D, Qpn) -> QpConnect,
    ) -> Result<Qpn, RejectStatus> {
        if !self.has_room_for(peer) {
            self.common.stats.refused_connections.add(1);
            core.warn(|| tracing::warn!(%peer, "too many iSCSI connections"));
            return Err(RejectStatus::NoResources);
        }
        let at = self.list.iter().position(Option::is_none).unwrap_or(self.list.len());
        let index = ISER | u32::try_from(at).expect("there are at most as many as there may be");
        match Connection::open(core, &mut self.common, index, request, peer, connect) {
            Ok(connection) => {
                let qpn = connection.qpn;
                if at == self.list.len() {
                    self.list.push(None);
                }
                self.list[at] = Some(Box::new(connection));
                self.common.stats.connections.set(self.common.stats.connections.value() + 1);
                Ok(qpn)
            }
            Err(error) => {
                core.warn(|| tracing::warn!(%peer, %error, "no resources for an iSCSI connection"));
                Err(RejectStatus::NoResources)
            }
        }
    }

    /// Whether a peer may have another connection: it has at most as many as it leaves to others.
    fn has_room_for(&self, peer: IpAddr) -> bool {
        let peer = peer_group(peer);
        let (mut all, mut logins) = (Peers::default(), Peers::default());
        for connection in self.list.iter().flatten() {
            let own = peer_group(connection.peer) == peer;
            all.count(own);
            if connection.is_logging_in() {
                logins.count(own);
            }
        }
        all.leave_room(MAX_CONNECTIONS) && logins.leave_room(MAX_LOGINS)
    }

    /// The peer knows of the connection: what it sends is looked at.
    pub(crate) fn established<D: Device>(&mut self, core: &mut Core<D>, qpn: Qpn) {
        if let Some(connection) = self.list.iter_mut().flatten().find(|connection| connection.qpn == qpn) {
            connection.established(core, &mut self.common);
        }
    }

    /// The connection ended, and with it its session.
    pub(crate) fn disconnected<D: Device>(&mut self, core: &mut Core<D>, qpn: Qpn) {
        if let Some(index) = self.index_of(qpn) {
            self.close(core, index, Closed::ByPeer);
        }
    }

    /// Something happened to sessions or targets.
    pub(crate) fn notice<D: Device>(&mut self, core: &mut Core<D>, notice: &Notice) {
        for connection in self.list.iter_mut().flatten() {
            connection.notice(core, &mut self.common, notice);
        }
    }

    /// Takes no more commands.
    pub(crate) fn stop_admitting(&mut self) {
        self.list.iter_mut().flatten().for_each(|connection| connection.stop_admitting());
    }

    /// Closes the connections whose last command is answered, or all.
    pub(crate) fn close_drained<D: Device>(&mut self, core: &mut Core<D>, all: bool) {
        for at in 0..self.list.len() {
            let drained = |connection: &Connection| all || !connection.has_commands();
            if let Some(index) = self.list[at].as_deref().filter(|it| drained(it)).map(|it| it.index) {
                self.close(core, index, Closed::ByUs);
            }
        }
    }

    /// Connections that are not closed, or not yet released.
    pub(crate) fn len(&self) -> usize {
        self.list.iter().flatten().count()
    }

    /// The number of the connection with this queue pair.
    pub(crate) fn index_of(&self, qpn: Qpn) -> Option<u32> {
        self.list.iter().flatten().find(|connection| connection.qpn == qpn).map(|connection| connection.index)
    }

    /// A work request completed; whether the queue pair is still of use.
    pub(crate) fn on_completion<D: Device>(&mut self, core: &mut Core<D>, posted: Posted, wc: &Wc) -> bool {
        let Some((connection, common)) = self.at(posted.queue()) else { return true };
        if connection.qpn != wc.qpn || connection.is_closing() {
            return true;
        }
        if wc.status != WcStatus::Success {
            if wc.status != WcStatus::WrFlushErr {
                let peer = connection.peer;
                core.warn(|| tracing::warn!(%peer, qpn = wc.qpn.0, status = ?wc.status, opcode = ?wc.opcode, "work request of an iSCSI connection failed"));
            }
            return false;
        }
        match posted {
            Posted::Receive { slot, .. } => connection.on_receive(core, common, slot, wc),
            Posted::Fetch { request, .. } => connection.on_fetched(core, common, request),
            Posted::Respond { request, .. } => connection.responded(core, common, request),
        }
        true
    }

    /// The engine completed an operation.
    pub(crate) fn on_engine<D: Device>(&mut self, core: &mut Core<D>, token: Token, done: IoDone) {
        match self.at(token.queue) {
            Some((connection, common)) => connection.on_engine(core, common, token.request, done),
            None => debug_assert!(false, "a connection lives until the engine gave everything back"),
        }
    }

    /// Tries again for the range that a request waits for; whether it still does.
    pub(crate) fn retry_range<D: Device>(&mut self, core: &mut Core<D>, token: Token) -> bool {
        let Some((connection, common)) = self.at(token.queue) else { return false };
        !connection.retry_range(core, common, token.request)
    }

    /// Goes on with a request where it waits.
    pub(crate) fn advance<D: Device>(&mut self, core: &mut Core<D>, token: Token) {
        if let Some((connection, common)) = self.at(token.queue) {
            connection.advance(core, common, token.request);
        }
    }

    /// Tries again for buffers, unless a request of this peer was passed over in this round; `None` when nobody waits any
    /// more.
    pub(crate) fn retry_buffers<D: Device>(
        &mut self,
        core: &mut Core<D>,
        token: Token,
        round: u64,
    ) -> Option<Buffers> {
        let (connection, common) = self.at(token.queue)?;
        if core.room_wanted {
            return Some(Buffers::NoRoom);
        }
        if connection.share.passed_over.get() == round {
            return Some(Buffers::OverShare);
        }
        let taken = connection.retry_buffers(core, common, token.request);
        if taken == Buffers::OverShare {
            connection.share.passed_over.set(round);
        }
        Some(taken)
    }

    /// Goes on with a request behind the step that it waited in.
    pub(crate) fn resume<D: Device>(&mut self, core: &mut Core<D>, token: Token) {
        if let Some((connection, common)) = self.at(token.queue) {
            connection.resume(core, common, token.request);
        }
    }

    /// Posts the data of a response.
    pub(crate) fn post_data<D: Device>(&mut self, core: &mut Core<D>, token: Token) {
        if let Some((connection, _)) = self.at(token.queue) {
            connection.post_data(core, token.request);
        }
    }

    /// Posts a message.
    pub(crate) fn post_response<D: Device>(&mut self, core: &mut Core<D>, token: Token) {
        if let Some((connection, common)) = self.at(token.queue) {
            connection.post_message(core, common, token.request);
        }
    }

    /// Looks at what is due.
    pub(crate) fn tick<D: Device>(&mut self, core: &mut Core<D>) {
        for connection in self.list.iter_mut().flatten() {
            connection.tick(core, &mut self.common);
        }
    }

    /// Closes a connection that failed or whose end has come.
    pub(crate) fn close_failed<D: Device>(&mut self, core: &mut Core<D>, index: u32) {
        self.close(core, index, Closed::ByUs);
    }

    /// Lets go of connections that are closed and whose memory nobody uses.
    pub(crate) fn release_idle<D: Device>(&mut self, core: &mut Core<D>) {
        let Self { closed, list, common } = self;
        closed.retain(|&at| {
            let idle = list[at].take_if(|connection| connection.is_idle());
            let kept = idle.is_none();
            if let Some(connection) = idle {
                connection.release(core, common);
            }
            kept
        });
    }

    fn close<D: Device>(&mut self, core: &mut Core<D>, index: u32, by: Closed) {
        let Some((connection, common)) = self.at(index) else { return };
        if connection.is_closing() {
            return;
        }
        tracing::debug!(peer = %connection.peer, qpn = connection.qpn.0, "iSCSI connection closed");
        if by == Closed::ByUs {
            if !connection.is_ending() {
                common.stats.failed_connections.add(1);
            }
            core.events.push(Event::QueueClosed(connection.qpn));
        }
        connection.close(core);
        let waited = core.forget_waiters(connection.index, &connection.share);
        connection.share.waiting.set(connection.share.waiting.get().saturating_sub(waited));
        common.stats.connections.set(common.stats.connections.value().saturating_sub(1));
        self.closed.push((index & !ISER) as usize);
    }

    fn at(&mut self, index: u32) -> Option<(&mut Connection, &mut Common)> {
        let connection = self.list.get_mut((index & !ISER) as usize)?.as_deref_mut()?;
        Some((connection, &mut self.common))
    }
}

impl Common {
    /// Randomness for a login.
    fn seed(&mut self) -> io::Result<Seed> {
        let mut bytes = [0; CHALLENGE_LEN + 1];
        self.random.read_exact(&mut bytes)?;
        let [identifier, challenge @ ..] = bytes;
        Ok(Seed { identifier, challenge })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    ByUs,
    ByPeer,
}
