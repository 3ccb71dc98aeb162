//! The discovery log (base 3.1.2.3, 5.16.1.23): which subsystem can be reached where, as one host may see it.
//!
//! A snapshot that the registry replaces when the configuration changes; discovery controllers read it without a
//! lock. The controller around it is an ordinary [`super::controller::Controller`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use zerocopy::IntoBytes;

use super::subsystem::Hosts;
use super::wire::fabrics::DISCOVERY_NQN;
use super::wire::identify::{set_ascii, zeroed};
use super::wire::log_page::{DiscoveryEntry, DiscoveryHeader, discovery_values as values};
use super::wire::private_data::ADMIN_QUEUE_MAX_ENTRIES;

/// CNTLID of an entry: any controller (dynamic model).
const CNTLID_DYNAMIC: u16 = 0xffff;

/// What can be discovered at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DiscoveryState {
    /// Grows with every change.
    pub(super) generation: u64,
    /// NQN and allowed hosts.
    pub(super) subsystems: Vec<(String, Hosts)>,
    /// Where the target listens; the port ID is the position plus 1.
    pub(super) listeners: Vec<SocketAddr>,
}

/// The discovery log as seen through one listener.
#[derive(Clone, Debug)]
pub(super) struct DiscoveryView {
    state: Arc<ArcSwap<DiscoveryState>>,
    local: SocketAddr,
}

impl DiscoveryView {
    /// The log for a host that connected to `local`.
    pub(super) fn new(state: Arc<ArcSwap<DiscoveryState>>, local: SocketAddr) -> Self {
        Self { state, local }
    }

    /// The whole log page for host `hostnqn`.
    pub(super) fn log_page(&self, hostnqn: &str) -> Vec<u8> {
        let state = self.state.load();
        let mut entries = Vec::new();
        for (port, listener) in reachable(&state.listeners, self.local) {
            // This very log, at the listener that the host uses: the same at all others.
            if *listener == self.local {
                let mut entry = entry(port, *listener, DISCOVERY_NQN);
                entry.subtype = values::SUBTYPE_CURRENT_DISCOVERY;
                entry.eflags = (values::EFLAGS_DUPRETINFO | values::EFLAGS_EPCSD).into();
                entries.push(entry);
            }
        }
        for (nqn, hosts) in &state.subsystems {
            if hosts.allow(hostnqn) {
                let reachable = reachable(&state.listeners, self.local);
                entries.extend(reachable.map(|(port, listener)| entry(port, *listener, nqn)));
            }
        }
        let mut header = zeroed::<DiscoveryHeader>();
        header.genctr = state.generation.into();
        header.numrec = u64::try_from(entries.len()).unwrap_or(u64::MAX).into();
        let mut page = header.as_bytes().to_vec();
        for entry in entries {
            page.extend_from_slice(entry.as_bytes());
        }
        page
    }
}

/// The listeners that a host connected to `local` can reach, with their port IDs: loopback addresses from this
/// machine, the others from elsewhere.
fn reachable(listeners: &[SocketAddr], local: SocketAddr) -> impl Iterator<Item = (u16, &SocketAddr)> {
    (1_u16..)
        .zip(listeners)
        .filter(move |(_, listener)| listener.ip().is_loopback() == local.ip().is_loopback())
}

fn entry(port: u16, listener: SocketAddr, nqn: &str) -> Box<DiscoveryEntry> {
    let mut entry = zeroed::<DiscoveryEntry>();
    entry.trtype = values::TRTYPE_RDMA;
    entry.adrfam = match listener.ip() {
        IpAddr::V4(_) => values::ADRFAM_IPV4,
        IpAddr::V6(_) => values::ADRFAM_IPV6,
    };
    entry.subtype = values::SUBTYPE_NVM;
    entry.treq = values::TREQ;
    entry.portid = port.into();
    entry.cntlid = CNTLID_DYNAMIC.into();
    entry.asqsz = u16::try_from(ADMIN_QUEUE_MAX_ENTRIES).expect("a small constant").into();
    set_ascii(&mut entry.trsvcid, &listener.port().to_string());
    set_ascii(&mut entry.traddr, &listener.ip().to_string());
    entry.subnqn[..nqn.len()].copy_from_slice(nqn.as_bytes());
    entry.qptype = values::QPTYPE_CONNECTED;
    entry.prtype = values::PRTYPE_ROCEV2;
    entry.cms = values::CMS_RDMA_CM;
    entry
}
