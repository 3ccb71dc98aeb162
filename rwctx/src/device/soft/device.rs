//! The soft device of one reactor: the sans-IO [`Endpoint`] and the connection manager, driven through real sockets.
//!
//! It moves packets between the two and makes no protocol decision. It reads no clock and never blocks: a reactor gives
//! it the time, calls [`SoftDevice::receive`], handles completions, posts, then calls [`SoftDevice::transmit`], so that
//! acknowledges and answers leave in one system call. Spec: roce-wire 5.7, 6.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use super::Counters;
use super::cm::{Cm, CmConfig, CmCounters, CmEvent};
use super::driver::{Checksum, Driver, DriverConfig, Gso, More, OpenError, RxCounters, TxCounters};
use super::endpoint::{CAPS, Endpoint, EndpointConfig, IcrcCheck, Transmit, Tuning};
#[cfg(feature = "_fault")]
use super::fault::{FaultySender, SendFaults};
use super::gsi::{Gsi, is_for_gsi};
use super::icrc::IcrcChecker;
use super::wire::RejReason;
use crate::device::{
    Device, DeviceCaps, DeviceError, NoOffload, PathMtu, PostError, QpCap, QpConnect, QpEvent, QpState, Qpn,
};
use crate::mem::{Access, BLOCK, Mr, MrId, Pd, Region};
use crate::signature::{SigLayout, SigStatus, Signature};
use crate::wc::Wc;
use crate::wr::{RecvWr, SendWr, Sge, WrId};

/// How to open a soft device.
#[derive(Clone, Debug)]
pub struct SoftConfig {
    /// Local addresses; UDP port 4791 of each must be free.
    pub addresses: Vec<IpAddr>,
    /// Reactors, at least one; each gets a device.
    pub reactors: usize,
    /// Where queue pair numbers and communication IDs start: different after every start, or peers take new
    /// connections for old ones; and not guessable.
    pub seed: u64,
    /// Names this host to peers: stable over restarts.
    pub ca_guid: u64,
    /// Capabilities; fewer than the usual to pretend to be another device.
    pub caps: DeviceCaps,
    /// Bytes that each receive socket should buffer; see [`DriverConfig::rcvbuf`].
    pub rcvbuf: usize,
    /// Segmentation of what is sent.
    pub gso: Gso,
    /// UDP checksums of what is sent.
    pub checksum: Checksum,
    /// Whether the ICRC of what arrives is checked.
    pub icrc: IcrcCheck,
    /// Trade-offs. READ bytes are bounded by a quarter of the receive buffer, whatever is set here.
    pub tuning: Tuning,
    /// What goes wrong while sending: by default what the environment asks for.
    #[cfg(feature = "_fault")]
    pub faults: SendFaults,
}

impl SoftConfig {
    /// The usual device: a random seed, and a GUID that follows from the addresses.
    #[must_use]
    pub fn new(addresses: Vec<IpAddr>, reactors: usize) -> Self {
        let ca_guid = guid(&addresses);
        let sockets = DriverConfig::new(Vec::new(), reactors);
        Self {
            addresses,
            reactors,
            seed: random_seed(),
            ca_guid,
            caps: CAPS,
            rcvbuf: sockets.rcvbuf,
            gso: sockets.gso,
            checksum: sockets.checksum,
            icrc: IcrcCheck::On,
            tuning: Tuning::default(),
            #[cfg(feature = "_fault")]
            faults: SendFaults::from_variables(|name| std::env::var(name).ok())
                .expect("the faults that a test asks for make sense"),
        }
    }
}

/// A seed that nobody can guess: from the system, unlike those of `fastrand`, which follow from the clock.
#[must_use]
pub fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Sums since the device was opened.
#[derive(Clone, Debug, Default)]
pub struct SoftCounters {
    /// Of the reliable connections.
    pub endpoint: Counters,
    /// Of the receive sockets.
    pub rx: RxCounters,
    /// Of the transmit sockets.
    pub tx: TxCounters,
    /// Datagrams to queue pair 1 that were no management datagrams.
    pub gsi_dropped: u64,
    /// Memory regions in use, now.
    pub memory_regions: u32,
}

/// A userspace RoCEv2 device, as one reactor has it.
///
/// # Memory that is being sent
/// Packets that the kernel had no room for point into registered memory. This type is what keeps that sound: regions
/// are held by the endpoint's memory table, and [`Device::dereg_mr`], the only call that lets go of one, first sends or
/// forgets all such packets; dropping the device touches no packet any more. What was forgotten is as if lost on the
/// way: the reliable connection repeats it.
#[derive(Debug)]
pub struct SoftDevice {
    endpoint: Endpoint,
    driver: Driver,
    /// Queue pair 1 and the connection manager are reactor 0's.
    gsi: Option<Gsi>,
    /// Since when there is more to do than one call does.
    busy_since: Option<Instant>,
    /// The time of the last call that said one.
    now: Option<Instant>,
    #[cfg(feature = "_fault")]
    faults: FaultySender,
}

impl SoftDevice {
    /// Opens the devices of all reactors; the first one is reactor 0's.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing stays open then.
    pub fn open(config: &SoftConfig) -> Result<Vec<Self>, OpenError> {
        let sockets = DriverConfig {
            addresses: config.addresses.clone(),
            reactors: config.reactors,
            rcvbuf: config.rcvbuf,
            gso: config.gso,
            checksum: config.checksum,
        };
        let drivers = Driver::open(&sockets)?;
        let reactors = u32::try_from(drivers.len()).expect("reactors are far fewer than 2^32");
        Ok((0..).zip(drivers).map(|(reactor, driver)| Self::new(config, reactor, reactors, driver)).collect())
    }

    fn new(config: &SoftConfig, reactor: u32, reactors: u32, driver: Driver) -> Self {
        let quarter = u32::try_from(driver.rcvbuf() / 4).unwrap_or(u32::MAX);
        let mut tuning = config.tuning;
        tuning.read_bytes = tuning.read_bytes.min(quarter);
        let endpoint = Endpoint::new(&EndpointConfig {
            caps: config.caps,
            icrc: config.icrc,
            tuning,
            ..EndpointConfig::new(config.seed, reactor, reactors)
        });
        let gsi = (reactor == 0).then(|| {
            // Each address has its own limit, which `poll_cm_event` enforces.
            let widest = driver.addresses().map(|a| driver.path_mtu(a)).max().unwrap_or(PathMtu::Mtu1024);
            let icrc = (config.icrc == IcrcCheck::On).then(IcrcChecker::new);
            Gsi::new(CmConfig::new(config.ca_guid, config.seed, widest), icrc)
        });
        Self {
            endpoint,
            driver,
            gsi,
            busy_since: None,
            now: None,
            #[cfg(feature = "_fault")]
            faults: FaultySender::new(config.faults, reactor),
        }
    }

    /// Receives, lets timers expire, and sends what follows.
    pub fn poll(&mut self, now: Instant) -> More {
        let more = self.receive(now);
        self.transmit(now);
        more
    }

    /// Receives at most a batch of each socket, and lets timers expire. Completions wait in [`Device::poll_cq`] then;
    /// what is to be sent waits for [`Self::transmit`].
    pub fn receive(&mut self, now: Instant) -> More {
        self.now = Some(now);
        let Self { endpoint, driver, gsi, .. } = self;
        let more = driver.receive(|meta, datagram| match gsi {
            Some(gsi) if is_for_gsi(datagram) => gsi.handle_datagram(now, meta, datagram),
            _ => endpoint.handle_datagram(now, meta, datagram),
        });
        if endpoint.next_timeout().is_some_and(|due| due <= now) {
            endpoint.handle_timeout(now);
        }
        if let Some(gsi) = gsi {
            gsi.handle_timeout(now);
        }
        more
    }

    /// Sends what waits, and what the kernel had no room for before. Call it after posting work requests and after
    /// calls of the connection manager, once for all of them.
    pub fn transmit(&mut self, now: Instant) {
        self.now = Some(now);
        self.busy_since = None;
        let Self { endpoint, driver, gsi, busy_since, .. } = self;
        driver.flush();
        for _ in 0..ROUNDS {
            if driver.has_unsent() {
                // The socket says when it is writable.
                return;
            }
            #[cfg(not(feature = "_fault"))]
            let sink = driver.tx();
            #[cfg(feature = "_fault")]
            let sink = &mut self.faults.sink(driver.tx());
            let mads = gsi.as_mut().map_or(Ok(()), |gsi| gsi.poll_transmit(now, sink));
            let packets = endpoint.poll_transmit(now, sink);
            driver.flush();
            if mads.is_ok() && packets == Transmit::Drained {
                return;
            }
        }
        *busy_since = Some(now);
    }

    /// The connection manager, on reactor 0. What it wants to send leaves with the next [`Self::transmit`]; take its
    /// events with [`Self::poll_cm_event`].
    pub fn cm(&mut self) -> Option<&mut Cm> {
        self.gsi.as_mut().map(Gsi::cm)
    }

    /// The connection manager's counters, on reactor 0.
    #[must_use]
    pub fn cm_counters(&self) -> Option<CmCounters> {
        self.gsi.as_ref().map(Gsi::cm_counters)
    }

    /// Takes the connection manager's next event. Requests with packets too long for the interface of their address
    /// were refused.
    pub fn poll_cm_event(&mut self, now: Instant) -> Option<CmEvent> {
        let cm = self.gsi.as_mut()?.cm();
        loop {
            let event = cm.poll_event()?;
            match event {
                CmEvent::ConnectRequest { id, local, ref peer, .. }
                    if peer.path_mtu > self.driver.path_mtu(local) =>
                {
                    // The request may have gone meanwhile: then there is nobody to be told.
                    if let Err(error) = cm.reject(now, id, RejReason::InvalidMtu, &[]) {
                        tracing::debug!(%error, "refusing a connection with too large a path MTU");
                    }
                }
                event => return Some(event),
            }
        }
    }

    /// Which number the next queue pair shall have, if any in particular: one whose rest by the number of reactors is this
    /// reactor's.
    pub fn number_next_qp(&mut self, qpn: Option<Qpn>) {
        self.endpoint.number_next_qp(qpn);
    }

    /// The largest path MTU that the interface of a local address allows.
    #[must_use]
    pub fn path_mtu(&self, local: IpAddr) -> PathMtu {
        self.driver.path_mtu(local)
    }

    /// Local addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.driver.addresses()
    }

    /// Bytes that a receive socket buffers, as the kernel accounts.
    #[must_use]
    pub fn rcvbuf(&self) -> usize {
        self.driver.rcvbuf()
    }

    /// Sockets whose readability calls for [`Self::receive`]: the same for the device's life.
    pub fn rx_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.driver.rx_fds()
    }

    /// Sockets whose writability calls for [`Self::transmit`]: none unless the kernel had no room.
    pub fn tx_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.driver.tx_fds()
    }

    /// Sums.
    #[must_use]
    pub fn counters(&self) -> SoftCounters {
        SoftCounters {
            endpoint: *self.endpoint.counters(),
            rx: self.driver.rx_counters(),
            tx: self.driver.tx_counters(),
            gsi_dropped: self.gsi.as_ref().map_or(0, Gsi::dropped),
            memory_regions: self.endpoint.memory_regions(),
        }
    }
}

impl Device for SoftDevice {
    fn caps(&self) -> &DeviceCaps {
        self.endpoint.caps()
    }

    fn alloc_pd(&mut self) -> Result<Pd, DeviceError> {
        self.endpoint.alloc_pd()
    }

    fn reg_mr(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<Mr, DeviceError> {
        self.endpoint.reg_mr(pd, region, offset, length, access)
    }

    fn alloc_fast_reg(&mut self, pd: Pd, pages: u32) -> Result<Mr, DeviceError> {
        self.endpoint.alloc_fast_reg(pd, pages)
    }

    fn executes(&self, signature: &Signature) -> Result<(), NoOffload> {
        let (block, metadata) = (signature.format().block_size(), signature.format().metadata_size());
        let (&least, &most) = (BLOCK.start(), BLOCK.end());
        match self.caps().max_pi_fast_reg_page_list_len {
            0 => Err(NoOffload::Device),
            _ if !BLOCK.contains(&block) => Err(NoOffload::BlockSize { block, least, most }),
            _ if u32::from(metadata) > block => Err(NoOffload::Metadata { block, metadata }),
            _ => Ok(()),
        }
    }

    fn alloc_integrity_mr(&mut self, pd: Pd, pages: u32) -> Result<Mr, DeviceError> {
        self.endpoint.alloc_integrity_mr(pd, pages)
    }

    fn map_integrity(
        &mut self,
        mr: MrId,
        signature: &Signature,
        data: &[Sge],
        protection: &[Sge],
    ) -> Result<SigLayout, DeviceError> {
        self.endpoint.map_integrity(mr, signature, data, protection)
    }

    fn sig_status(&mut self, mr: MrId) -> Result<SigStatus, DeviceError> {
        self.endpoint.sig_status(mr)
    }

    fn dereg_mr(&mut self, id: MrId) -> Result<(), DeviceError> {
        self.endpoint.dereg_mr(id)
    }

    fn create_qp(&mut self, pd: Pd, cap: &QpCap) -> Result<Qpn, DeviceError> {
        self.endpoint.create_qp(pd, cap)
    }

    fn connect_qp(&mut self, qpn: Qpn, to: &QpConnect) -> Result<(), DeviceError> {
        if !self.driver.addresses().any(|address| address == to.local) {
            return Err(DeviceError::Invalid("local address"));
        }
        #[cfg(feature = "_fault")]
        self.faults.connected(to.remote, to.dest_qpn);
        self.endpoint.connect_qp(qpn, to)
    }

    fn error_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError> {
        self.endpoint.error_qp(qpn)
    }

    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError> {
        self.endpoint.destroy_qp(qpn)
    }

    fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.endpoint.qp_state(qpn)
    }

    #[inline]
    fn post_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.endpoint.post_send(qpn, wr)
    }

    #[inline]
    fn note_sums(&mut self, qpn: Qpn, sums: &[u32]) {
        self.endpoint.note_sums(qpn, sums);
    }

    fn replace_source(&mut self, qpn: Qpn, wr_id: WrId, from: Sge, to: Sge) -> Result<(), DeviceError> {
        self.endpoint.replace_source(qpn, wr_id, from, to)
    }

    #[inline]
    fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.endpoint.post_recv(qpn, wr)
    }

    #[inline]
    fn poll_cq(&mut self) -> Option<Wc> {
        self.endpoint.poll_cq()
    }

    fn poll_qp_event(&mut self) -> Option<QpEvent> {
        self.endpoint.poll_qp_event()
    }

    fn next_timeout(&self) -> Option<Instant> {
        // With a full socket it is the socket that calls for the next step.
        let work = !self.driver.has_unsent()
            && (self.endpoint.has_work() || self.gsi.as_ref().is_some_and(Gsi::is_waiting));
        let at_once = self.busy_since.or(if work { self.now } else { None });
        let cm = self.gsi.as_ref().and_then(Gsi::next_timeout);
        [at_once, self.endpoint.next_timeout(), cm].into_iter().flatten().min()
    }
}

/// An identifier that follows from the addresses, marked as made locally (FNV-1a).
fn guid(addresses: &[IpAddr]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for address in addresses {
        match address {
            IpAddr::V4(v4) => eat(&v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => eat(&v6.octets()),
        }
    }
    hash | 0x0200_0000_0000_0000
}

// Devices of all reactors are opened by one thread, then given to theirs.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<SoftDevice>();
};

/// Batches of one [`SoftDevice::transmit`], so that receiving gets its turn.
const ROUNDS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guid_follows_from_the_addresses_and_is_marked_as_local() {
        let one: IpAddr = "10.0.0.1".parse().unwrap();
        let other: IpAddr = "10.0.0.2".parse().unwrap();
        assert_eq!(guid(&[one]), guid(&[one]));
        assert_ne!(guid(&[one]), guid(&[other]));
        assert_ne!(guid(&[one]), 0);
        assert_ne!(guid(&[one]) & 0x0200_0000_0000_0000, 0);
    }
}
