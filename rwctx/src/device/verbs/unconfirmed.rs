//! Connections whose peers have not shown yet that they exist: how many there may be, of whom, and for how long.
//!
//! The kernel reports each request that arrives, and anybody can send one under any address; each costs a queue pair and
//! memory until its peer confirms our reply. So few are let in at once, with the fairness of the soft device's connection manager.
//! Pure accounting.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::device::soft::cm::CmId;
use crate::device::soft::cm::half_open::{HalfOpen, Room};
use crate::device::soft::cm::limits::Known;

/// How many there may be: of strangers, and of peers that completed a handshake before.
const MOST: [usize; 2] = [64, 128];
/// Of one address (or IPv6 /64), of either kind.
const MOST_OF_PEER: usize = 32;
/// How long one may take. The kernels on both sides repeat their messages after 4 s for the first time.
const DEADLINE: Duration = Duration::from_secs(10);

/// The accounts.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    /// Of strangers, and of known peers.
    half_open: [HalfOpen; 2],
    known: Known,
    began: BTreeMap<CmId, Beginning>,
    by_age: BTreeSet<(Instant, CmId)>,
}

#[derive(Clone, Copy, Debug)]
struct Beginning {
    peer: IpAddr,
    since: Instant,
    is_known: bool,
}

impl Unconfirmed {
    /// Whether another one of `peer` has room.
    pub(super) fn room(&self, now: Instant, peer: IpAddr) -> Room {
        let kind = usize::from(self.known.contains(peer));
        self.half_open[kind].room(now, peer, MOST[kind], MOST_OF_PEER)
    }

    /// Connection `id`, that `peer` asks for.
    pub(super) fn add(&mut self, now: Instant, peer: IpAddr, id: CmId) {
        let is_known = self.known.contains(peer);
        self.half_open[usize::from(is_known)].add(peer, now, id.0);
        self.began.insert(id, Beginning { peer, since: now, is_known });
        self.by_age.insert((now, id));
    }

    /// Its peer answered what was sent to its address.
    pub(super) fn confirm(&mut self, id: CmId) {
        if let Some(beginning) = self.take(id) {
            self.known.insert(beginning.peer);
        }
    }

    /// The connection is over.
    pub(super) fn remove(&mut self, id: CmId) {
        self.take(id);
    }

    /// One that took too long; the same until it is removed.
    pub(super) fn overdue(&self, now: Instant) -> Option<CmId> {
        self.by_age.first().filter(|(since, _)| now >= *since + DEADLINE).map(|(_, id)| *id)
    }

    /// When [`Self::overdue`] has another one.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.by_age.first().map(|(since, _)| *since + DEADLINE)
    }

    fn take(&mut self, id: CmId) -> Option<Beginning> {
        let beginning = self.began.remove(&id)?;
        let Beginning { peer, since, is_known } = beginning;
        self.half_open[usize::from(is_known)].remove(peer, since, id.0);
        self.by_age.remove(&(since, id));
        Some(beginning)
    }
}
