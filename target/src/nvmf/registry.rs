//! Everything the target knows of NVMe: subsystems, listeners, controllers; behind a mutex that only control-plane
//! operations take (Connect, disconnect, configuration).
//!
//! Owns every check of Connect (base 6.3, fabrics "Connect"), controller identifiers, and what a changed
//! configuration means for those connected. Controllers themselves belong to their reactors; here is only what
//! others need to find them.

mod connect;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;

pub use self::connect::{AdminQueue, ConnectError, ConnectRequest, IoQueue};
use super::controller::{CtrlShared, HostIdentity, TargetLimits};
use super::discovery::DiscoveryState;
use super::namespace::Namespaces;
use super::subsystem::{Hosts, Subsystem};
use crate::block::Volume;

/// What is to be exported.
#[derive(Clone, Debug, Default)]
pub struct NvmeConfig {
    /// Where the target listens, as hosts are told.
    pub listeners: Vec<SocketAddr>,
    /// Subsystems; their NQNs are unique.
    pub subsystems: Vec<SubsystemConfig>,
}

/// What a subsystem is to be.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// Its NQN, at most 223 bytes.
    pub nqn: String,
    /// Its serial number, at most 20 ASCII characters.
    pub serial: String,
    /// Who may connect.
    pub hosts: Hosts,
    /// Volumes by namespace number, 1 to 1024.
    pub namespaces: Vec<(u32, Arc<Volume>)>,
}

/// A controller and the reactor that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerRef {
    /// Controller Identifier.
    pub cntlid: u16,
    /// Its reactor.
    pub reactor: usize,
}

/// An I/O queue and the reactor that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoQueueRef {
    /// Controller Identifier.
    pub cntlid: u16,
    /// Queue ID.
    pub qid: u16,
    /// Its reactor.
    pub reactor: usize,
}

/// What a changed configuration means for controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "controllers wait for their reactors to act"]
pub struct Applied {
    /// Have notices: their reactors call `Controller::handle_notices`.
    pub notified: Vec<ControllerRef>,
    /// Their subsystem is gone, their host no longer allowed, or their host has to learn of a write cache that came
    /// with a new namespace (hosts ask once, and would never flush): disconnect them.
    pub disconnect: Vec<ControllerRef>,
}

/// One connected controller, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerInfo {
    /// Controller Identifier.
    pub cntlid: u16,
    /// NQN of its subsystem, or the discovery NQN.
    pub subnqn: String,
    /// NQN of its host.
    pub hostnqn: String,
    /// I/O queues connected.
    pub io_queues: usize,
}

/// The target's NVMe state.
#[derive(Debug)]
pub struct Registry {
    limits: TargetLimits,
    reactors: usize,
    discovery: Arc<ArcSwap<DiscoveryState>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    subsystems: BTreeMap<String, Arc<Subsystem>>,
    /// Sizes in blocks that hosts were last told of, by NQN and namespace.
    announced: BTreeMap<(String, u32), u64>,
    controllers: BTreeMap<u16, Entry>,
    last_cntlid: u16,
}

#[derive(Debug)]
struct Entry {
    shared: Arc<CtrlShared>,
    /// None: a discovery controller.
    subsystem: Option<Arc<Subsystem>>,
    subnqn: String,
    host: HostIdentity,
    /// Whose it is, as far as limits go.
    peer: IpAddr,
    reactor: usize,
    /// Its host was told of a volatile write cache (Identify Controller VWC).
    write_cache_told: bool,
    /// Reactor by queue ID.
    io_queues: BTreeMap<u16, usize>,
}

/// Highest controller identifier; those above are reserved (base 3.1.1).
const CNTLID_MAX: u16 = 0xffef;

impl Registry {
    /// An empty target whose controllers have these limits and are served by `reactors` reactors.
    #[must_use]
    pub fn new(limits: TargetLimits, reactors: usize) -> Self {
        Self { limits, reactors, discovery: Arc::default(), state: Mutex::default() }
    }

    /// The limits of all controllers.
    #[must_use]
    pub fn limits(&self) -> &TargetLimits {
        &self.limits
    }

    /// Makes the target what `config` says: the first time and whenever it changes. Subsystems of the same NQN and
    /// serial number live on.
    pub fn apply(&self, now: Instant, config: NvmeConfig) -> Applied {
        let mut state = self.lock();
        let mut applied = Applied::default();
        let mut subsystems = BTreeMap::new();
        let mut announced = BTreeMap::new();
        let mut discoverable = Vec::new();
        for new in config.subsystems {
            discoverable.push((new.nqn.clone(), new.hosts.clone()));
            let namespaces = Namespaces::new(new.namespaces);
            let sizes = namespaces.iter().map(|ns| (ns.nsid(), ns.volume().blocks())).collect::<Vec<_>>();
            let known = state.subsystems.get(&new.nqn).filter(|old| old.serial() == new.serial).cloned();
            let subsystem = if let Some(subsystem) = known {
                let mut changed = subsystem.namespaces().changes(&namespaces);
                changed.extend(sizes.iter().filter_map(|(nsid, blocks)| {
                    let told = state.announced.get(&(new.nqn.clone(), *nsid));
                    told.is_some_and(|told| told != blocks).then_some(*nsid)
                }));
                subsystem.set_hosts(new.hosts);
                subsystem.set_namespaces(namespaces);
                if !changed.is_empty() {
                    applied.notified.extend(state.notify_namespaces(&subsystem, &changed));
                }
                subsystem
            } else {
                let (hosts, reactors) = (new.hosts, self.reactors);
                Arc::new(Subsystem::new(new.nqn.clone(), new.serial, hosts, namespaces, reactors, now))
            };
            announced.extend(sizes.into_iter().map(|(nsid, blocks)| ((new.nqn.clone(), nsid), blocks)));
            subsystems.insert(new.nqn, subsystem);
        }
        state.subsystems = subsystems;
        state.announced = announced;
        applied.disconnect = state.to_disconnect();
        applied.notified.retain(|controller| !applied.disconnect.contains(controller));
        if self.update_discovery(discoverable, config.listeners) {
            applied.notified.extend(state.notify_discovery());
        }
        applied
    }

    /// A controller is gone: forgets it. Its I/O queues that are still connected have to be disconnected.
    pub fn remove_controller(&self, cntlid: u16) -> Vec<IoQueueRef> {
        let mut state = self.lock();
        let Some(entry) = state.controllers.remove(&cntlid) else { return Vec::new() };
        entry.queue_refs(cntlid)
    }

    /// The connected I/O queues of a controller, for example to disconnect them when it is reset.
    #[must_use]
    pub fn io_queues(&self, cntlid: u16) -> Vec<IoQueueRef> {
        self.lock().controllers.get(&cntlid).map_or_else(Vec::new, |entry| entry.queue_refs(cntlid))
    }

    /// An I/O queue is gone: its ID may be connected again.
    pub fn remove_io_queue(&self, cntlid: u16, qid: u16) {
        if let Some(entry) = self.lock().controllers.get_mut(&cntlid) {
            entry.io_queues.remove(&qid);
        }
    }

    /// The connected controllers.
    #[must_use]
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        let state = self.lock();
        let info = |(cntlid, entry): (&u16, &Entry)| ControllerInfo {
            cntlid: *cntlid,
            subnqn: entry.subnqn.clone(),
            hostnqn: entry.host.nqn.clone(),
            io_queues: entry.io_queues.len(),
        };
        state.controllers.iter().map(info).collect()
    }

    /// The subsystem of this NQN.
    #[must_use]
    pub fn subsystem(&self, nqn: &str) -> Option<Arc<Subsystem>> {
        self.lock().subsystems.get(nqn).cloned()
    }

    /// All subsystems, by NQN.
    #[must_use]
    pub fn subsystems(&self) -> Vec<Arc<Subsystem>> {
        self.lock().subsystems.values().cloned().collect()
    }

    /// Replaces the discovery log; whether it changed.
    fn update_discovery(&self, subsystems: Vec<(String, Hosts)>, listeners: Vec<SocketAddr>) -> bool {
        let old = self.discovery.load();
        if old.generation != 0 && old.subsystems == subsystems && old.listeners == listeners {
            return false;
        }
        let generation = old.generation + 1;
        self.discovery.store(Arc::new(DiscoveryState { generation, subsystems, listeners }));
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every operation leaves a valid state at each step, so a panic of another thread does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn notify_namespaces(&self, subsystem: &Arc<Subsystem>, changed: &[u32]) -> Vec<ControllerRef> {
        let concerned = self
            .controllers
            .iter()
            .filter(|(_, entry)| entry.subsystem.as_ref().is_some_and(|s| Arc::ptr_eq(s, subsystem)));
        concerned
            .map(|(cntlid, entry)| {
                entry.shared.notify(|notices| notices.namespaces.extend(changed));
                entry.reference(*cntlid)
            })
            .collect()
    }

    fn notify_discovery(&self) -> Vec<ControllerRef> {
        let concerned = self.controllers.iter().filter(|(_, entry)| entry.subsystem.is_none());
        concerned
            .map(|(cntlid, entry)| {
                entry.shared.notify(|notices| notices.discovery_log = true);
                entry.reference(*cntlid)
            })
            .collect()
    }

    /// Controllers whose subsystem is gone, does not allow their host any more, or has a write cache that their host
    /// does not know of.
    fn to_disconnect(&self) -> Vec<ControllerRef> {
        let lost = |entry: &Entry| {
            entry.subsystem.as_ref().is_some_and(|subsystem| {
                let lives = self.subsystems.get(&entry.subnqn).is_some_and(|s| Arc::ptr_eq(s, subsystem));
                let allowed = subsystem.hosts().allow(&entry.host.nqn);
                let new_cache = !entry.write_cache_told && subsystem.namespaces().have_write_cache();
                !lives || !allowed || new_cache
            })
        };
        let lost = self.controllers.iter().filter(|(_, entry)| lost(entry));
        lost.map(|(cntlid, entry)| entry.reference(*cntlid)).collect()
    }

    /// The next controller identifier that is free.
    fn allocate_cntlid(&mut self) -> Option<u16> {
        let after = self.last_cntlid;
        let all = (after.saturating_add(1)..=CNTLID_MAX).chain(1..=after);
        let cntlid = all.into_iter().find(|cntlid| !self.controllers.contains_key(cntlid))?;
        self.last_cntlid = cntlid;
        Some(cntlid)
    }
}

impl Entry {
    fn reference(&self, cntlid: u16) -> ControllerRef {
        ControllerRef { cntlid, reactor: self.reactor }
    }

    fn queue_refs(&self, cntlid: u16) -> Vec<IoQueueRef> {
        self.io_queues
            .iter()
            .map(|(qid, reactor)| IoQueueRef { cntlid, qid: *qid, reactor: *reactor })
            .collect()
    }
}
