//! An NVM subsystem: its name, who may connect, its namespaces, and the counters of its SMART log.
//!
//! Shared by all controllers and reactors. The data path reads it without a lock: namespaces and hosts are snapshots
//! that are replaced as a whole, counters are kept by reactor and added up when somebody asks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, Cache, Guard};

use super::namespace::Namespaces;

/// Who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Everybody.
    Any,
    /// Hosts of these NQNs.
    Listed(BTreeSet<String>),
}

impl Hosts {
    /// Whether the host of this NQN may connect. Names are compared byte by byte.
    #[must_use]
    pub fn allow(&self, hostnqn: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(names) => names.contains(hostnqn),
        }
    }
}

/// A subsystem's namespaces as a thread saw them last.
pub type NamespacesCache = Cache<Arc<ArcSwap<Namespaces>>, Arc<Namespaces>>;

/// An NVM subsystem.
#[derive(Debug)]
pub struct Subsystem {
    nqn: String,
    serial: String,
    started: Instant,
    hosts: ArcSwap<Hosts>,
    namespaces: Arc<ArcSwap<Namespaces>>,
    counters: Box<[IoCounters]>,
}

/// What one reactor did for a subsystem. Written by that reactor alone, so that an update is a plain add.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct IoCounters {
    read_commands: AtomicU64,
    write_commands: AtomicU64,
    read_bytes: AtomicU64,
    write_bytes: AtomicU64,
    media_errors: AtomicU64,
}

/// Counters added up over all reactors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTotals {
    /// Read and Compare commands completed.
    pub read_commands: u64,
    /// Write commands completed.
    pub write_commands: u64,
    /// User data sent to hosts, or compared.
    pub read_bytes: u64,
    /// User data received from hosts.
    pub write_bytes: u64,
    /// Unrecovered reads, and protection information on the medium that did not match.
    pub media_errors: u64,
}

impl IoCounters {
    /// A command that reads `bytes` of user data has completed (Read, Compare; Verify with 0 bytes does not count).
    pub fn read(&self, bytes: u32) {
        add(&self.read_commands, 1);
        add(&self.read_bytes, u64::from(bytes));
    }

    /// A Write of `bytes` of user data has completed.
    pub fn written(&self, bytes: u32) {
        add(&self.write_commands, 1);
        add(&self.write_bytes, u64::from(bytes));
    }

    /// The medium failed a command: unrecovered read, or stored protection information that does not match.
    pub fn media_error(&self) {
        add(&self.media_errors, 1);
    }
}

/// Adds to a counter that has one writer.
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

impl Subsystem {
    /// A subsystem that `reactors` reactors serve from `now` on.
    #[must_use]
    pub fn new(
        nqn: String,
        serial: String,
        hosts: Hosts,
        namespaces: Namespaces,
        reactors: usize,
        now: Instant,
    ) -> Self {
        Self {
            nqn,
            serial,
            started: now,
            hosts: ArcSwap::from_pointee(hosts),
            namespaces: Arc::new(ArcSwap::from_pointee(namespaces)),
            counters: (0..reactors.max(1)).map(|_| IoCounters::default()).collect(),
        }
    }

    /// Its NQN.
    #[must_use]
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Its serial number: at most 20 ASCII characters.
    #[must_use]
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// When it began to serve.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Who may connect, now.
    #[must_use]
    pub fn hosts(&self) -> Guard<Arc<Hosts>> {
        self.hosts.load()
    }

    /// Its namespaces for one thread that looks at them all the time: [`Cache::load`] gives those of now, and costs less than
    /// [`Self::namespaces`].
    #[must_use]
    pub fn cached_namespaces(&self) -> NamespacesCache {
        Cache::new(Arc::clone(&self.namespaces))
    }

    /// Its namespaces, now.
    #[must_use]
    pub fn namespaces(&self) -> Guard<Arc<Namespaces>> {
        self.namespaces.load()
    }

    /// The counters of reactor `reactor`, which alone may add to them.
    ///
    /// # Panics
    /// When there is no such reactor.
    #[must_use]
    pub fn counters(&self, reactor: usize) -> &IoCounters {
        &self.counters[reactor]
    }

    /// All counters added up.
    #[must_use]
    pub fn totals(&self) -> IoTotals {
        let sum = |pick: fn(&IoCounters) -> &AtomicU64| {
            self.counters.iter().map(|c| pick(c).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
        };
        IoTotals {
            read_commands: sum(|c| &c.read_commands),
            write_commands: sum(|c| &c.write_commands),
            read_bytes: sum(|c| &c.read_bytes),
            write_bytes: sum(|c| &c.write_bytes),
            media_errors: sum(|c| &c.media_errors),
        }
    }

    /// Replaces who may connect.
    pub(super) fn set_hosts(&self, hosts: Hosts) {
        self.hosts.store(Arc::new(hosts));
    }

    /// Replaces the namespaces.
    pub(super) fn set_namespaces(&self, namespaces: Namespaces) {
        self.namespaces.store(Arc::new(namespaces));
    }
}
