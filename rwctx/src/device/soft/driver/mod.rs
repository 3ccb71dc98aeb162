//! The sockets of the soft device: its only I/O.
//!
//! A [`Driver`] belongs to one reactor. It has, for each local address, one receive socket on port 4791 (the reactors'
//! sockets form a group; `steer` sends each datagram to the reactor that owns its queue pair) and one unconnected
//! transmit socket with a source port of RoCE's range; reactor 0 has another of these for peers that may not exist (see
//! [`TxBatch`]). It makes no protocol decision and never blocks; after set-up it
//! allocates nothing. Needs no privilege: with CAP_NET_ADMIN receive buffers may exceed the system's limit.
//! Spec: roce-wire 5 (userspace pitfalls), 6 (choices).

mod calls;
mod mtu;
mod queue;
mod rx;
mod steer;
mod tx;

#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

pub use steer::OpenError;
pub use tx::TxBatch;

use super::RxMeta;
use super::wire::UDP_PORT as ROCE_PORT;
use crate::device::PathMtu;
use rx::{RxRing, RxSocket};

/// Whether packets are handed to the kernel in segmentation batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gso {
    /// Where the path allows it.
    #[default]
    On,
    /// Never: each packet is a datagram of its own for the kernel too.
    Off,
}

/// The UDP checksum of packets that we send. The ICRC protects them in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Computed (by the interface, if it can).
    #[default]
    Full,
    /// Zero, as hardware sends it. The kernel segments no such datagrams, so this implies [`Gso::Off`].
    Zero,
}

/// What sockets to open.
#[derive(Clone, Debug)]
pub struct DriverConfig {
    /// Local addresses; each one's port 4791 must be free.
    pub addresses: Vec<IpAddr>,
    /// Reactors, at least one. Queue pair `n` belongs to reactor `n % reactors`, queue pair 1 to reactor 0.
    pub reactors: usize,
    /// Bytes that each receive socket should buffer, as the kernel accounts (8448 for a 4112-byte datagram). Without
    /// CAP_NET_ADMIN the system's limit, `net.core.rmem_max`, holds; [`Driver::rcvbuf`] says what came of it.
    pub rcvbuf: usize,
    /// Segmentation.
    pub gso: Gso,
    /// UDP checksums.
    pub checksum: Checksum,
}

impl DriverConfig {
    /// The usual choices for these addresses.
    #[must_use]
    pub fn new(addresses: Vec<IpAddr>, reactors: usize) -> Self {
        Self { addresses, reactors, rcvbuf: 32 << 20, gso: Gso::On, checksum: Checksum::Full }
    }
}

/// Sums over what was sent since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCounters {
    /// Packets that the kernel took.
    pub packets: u64,
    /// Bytes of them after the UDP header.
    pub bytes: u64,
    /// Segmentation messages and single datagrams.
    pub messages: u64,
    /// Calls of `sendmmsg`.
    pub calls: u64,
    /// Messages that the kernel refused to segment and that went as single datagrams.
    pub segmentation_refused: u64,
    /// Messages that the kernel refused for good (no route, firewall, ...): lost.
    pub errors: u64,
    /// Those of them that exceeded the interface's MTU.
    pub too_long: u64,
    /// Packets from an address that is not ours: lost.
    pub no_source: u64,
    /// Packets to peers that may not exist, for which the kernel had no room: lost.
    pub no_room: u64,
}

/// Sums over what was received since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Datagrams handed out.
    pub datagrams: u64,
    /// Bytes of them after the UDP header.
    pub bytes: u64,
    /// Calls of `recvmmsg`.
    pub calls: u64,
    /// Datagrams that the kernel dropped because a receive buffer was full.
    pub drops: u64,
    /// Messages that could not be used.
    pub malformed: u64,
    /// Calls that failed.
    pub errors: u64,
}

/// Whether another call may find more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// A batch was full.
    Likely,
    /// All sockets were emptied.
    No,
}

/// All sockets of one reactor.
#[derive(Debug)]
pub struct Driver {
    rx: Vec<RxSocket>,
    ring: RxRing,
    tx: TxBatch,
    /// Largest path MTU of each address.
    path_mtus: Vec<(IpAddr, PathMtu)>,
    counters: RxCounters,
}

impl Driver {
    /// Opens the sockets of all reactors; the first driver is reactor 0's.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing stays open then.
    pub fn open(config: &DriverConfig) -> Result<Vec<Self>, OpenError> {
        let Some(&first) = config.addresses.first() else { return Err(OpenError::Nothing("address")) };
        if config.reactors == 0 {
            return Err(OpenError::Nothing("reactor"));
        }
        let mut sockets: Vec<Vec<_>> = (0..config.reactors).map(|_| Vec::new()).collect();
        for &address in &config.addresses {
            for (reactor, opened) in sockets.iter_mut().zip(steer::open_group(config, address)?) {
                reactor.push(opened);
            }
        }
        let memory = |source: nix::Error| OpenError::System {
            operation: "allocating packet buffers",
            address: first,
            source: source.into(),
        };
        sockets
            .into_iter()
            .map(|sockets| {
                let mut rx = Vec::with_capacity(sockets.len());
                let mut tx = Vec::with_capacity(sockets.len());
                let mut strangers = Vec::new();
                for s in sockets {
                    rx.push(RxSocket::new(s.rx, s.address, s.rcvbuf));
                    tx.push((s.tx, SocketAddr::new(s.address, s.tx_port)));
                    strangers.extend(s.strangers.map(|(fd, port)| (fd, SocketAddr::new(s.address, port))));
                }
                let tx = TxBatch::new(tx, strangers, config.segments()).map_err(memory)?;
                let ring = RxRing::new().map_err(memory)?;
                let path_mtus = config.addresses.iter().map(|&a| (a, mtu::path_mtu(a))).collect();
                Ok(Self { rx, ring, tx, path_mtus, counters: RxCounters::default() })
            })
            .collect()
    }

    /// Gives each datagram that waits to `each`, at most one batch of each socket.
    pub fn receive(&mut self, mut each: impl FnMut(&RxMeta, &[u8])) -> More {
        let mut more = More::No;
        for socket in &mut self.rx {
            if self.ring.receive(socket, &mut self.counters, &mut each) == More::Likely {
                more = More::Likely;
            }
        }
        more
    }

    /// Where packets to send go.
    pub fn tx(&mut self) -> &mut TxBatch {
        &mut self.tx
    }

    /// Sends what waits; see [`TxBatch::flush`].
    pub fn flush(&mut self) {
        self.tx.flush();
    }

    /// Whether the kernel had no room for all packets.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.tx.has_unsent()
    }

    /// Sockets that become readable when datagrams arrive.
    pub fn rx_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rx.iter().map(|s| s.fd.as_fd())
    }

    /// Sockets that become writable when [`Self::flush`] can go on; none unless something is unsent.
    pub fn tx_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tx.blocked()
    }

    /// Bytes that the smallest receive buffer takes before it drops, as the kernel accounts: windows must adapt.
    #[must_use]
    pub fn rcvbuf(&self) -> usize {
        self.rx.iter().map(|s| s.rcvbuf).min().unwrap_or(0)
    }

    /// The largest path MTU that the interface of a local address allowed when the sockets were opened.
    #[must_use]
    pub fn path_mtu(&self, local: IpAddr) -> PathMtu {
        let known = self.path_mtus.iter().find(|(address, _)| *address == local);
        known.map_or(PathMtu::Mtu1024, |(_, mtu)| *mtu)
    }

    /// Local addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.rx.iter().map(|s| s.address)
    }

    /// Sums of the sending side.
    #[must_use]
    pub fn tx_counters(&self) -> TxCounters {
        self.tx.counters()
    }

    /// Sums of the receiving side.
    #[must_use]
    pub fn rx_counters(&self) -> RxCounters {
        self.counters
    }
}
