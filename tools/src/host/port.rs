//! This host's soft device, and its connections to one target as the connection manager sees them.
//!
//! Owns what is the same for every protocol above: opening, connecting a queue pair, waiting, memory registrations.
//! Knows nothing of what messages mean. roce-wire 3.4, 3.7.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rwctx::device::soft::cm::{CmEvent, CmId, ConnectParams, PeerQp};
use rwctx::device::soft::device::{SoftConfig, SoftCounters, SoftDevice};
use rwctx::device::{Device, PathMtu, QpConnect, Qpn, RemoteAccess};
use rwctx::mem::{Access, Mr, Pd, Region};

use super::clock;
use super::error::{Fault, HostError, Of, Refusal};

/// READs that we serve at once, for a target that fetches data.
const READS_SERVED: u8 = 16;
/// How long a connection request may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long we wait for the target to confirm that a connection ended: the connection manager asks four times, every 500 ms.
const GOODBYE: Duration = Duration::from_secs(2);
/// RNR timer code that we advertise; receives are always posted before they are needed.
const RNR_TIMER: u8 = 12;
/// Longest sleep, in which nothing but timers is missed.
const NAP: Duration = Duration::from_millis(100);

/// The soft device, and where the target is.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) device: SoftDevice,
    pub(super) pd: Pd,
    local: IpAddr,
    target: SocketAddr,
    epoll: Epoll,
    /// What the connection manager said while an answer to something else was waited for.
    events: VecDeque<CmEvent>,
}

/// A connection that was made: the manager's name for it, and what the target said.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) id: CmId,
    /// The reply's private data, with what follows it in its field.
    pub(super) private: Vec<u8>,
}

impl Port {
    /// Opens a device on `local`; nothing is sent yet.
    ///
    /// # Errors
    /// When the address can't be used.
    pub(super) fn open(local: IpAddr, target: SocketAddr) -> Result<Self, HostError> {
        let mut device = SoftDevice::open(&SoftConfig::new(vec![local], 1))?.remove(0);
        let pd = device.alloc_pd()?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|errno| HostError::system("make an epoll descriptor", errno))?;
        for fd in device.rx_fds() {
            epoll
                .add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))
                .map_err(|errno| HostError::system("watch a socket", errno))?;
        }
        Ok(Self { device, pd, local, target, epoll, events: VecDeque::new() })
    }

    /// Opens a device for a target on `local`, or on the address that suits it: 127.0.0.2 for one on loopback, else the one
    /// that the system would use.
    ///
    /// # Errors
    /// When there is no such address, or it can't be used.
    pub(super) fn reach(local: Option<IpAddr>, target: SocketAddr) -> Result<Self, HostError> {
        let local = match local {
            Some(local) => local,
            None => local_for(target.ip())?,
        };
        if local.is_ipv4() != target.is_ipv4() {
            return Err(HostError::Invalid(format!(
                "--local {local} and --traddr {} are of two families",
                target.ip()
            )));
        }
        if local == target.ip() {
            return Err(HostError::LocalIsTarget { target: local });
        }
        Self::open(local, target)
    }

    /// The other side.
    pub(super) fn target(&self) -> SocketAddr {
        self.target
    }

    /// Registers memory for the target to READ and WRITE, if `remote`, and for us.
    pub(super) fn register(&mut self, region: &Arc<Region>, remote: RemoteAccess) -> Result<Mr, HostError> {
        let access = Access { local_write: true, remote_read: remote.read, remote_write: remote.write };
        Ok(self.device.reg_mr(self.pd, region, 0, region.len(), access)?)
    }

    /// Makes a registration that is given memory later.
    pub(super) fn alloc_fast_reg(&mut self) -> Result<Mr, HostError> {
        let pages = self.device.caps().max_fast_reg_page_list_len;
        Ok(self.device.alloc_fast_reg(self.pd, pages)?)
    }

    /// Gives a registration back.
    pub(super) fn deregister(&mut self, mr: &Mr) -> Result<(), HostError> {
        Ok(self.device.dereg_mr(mr.id)?)
    }

    /// Sums of the device.
    pub(super) fn counters(&self) -> SoftCounters {
        self.device.counters()
    }

    /// Connects a queue pair, which `of` says the purpose of.
    ///
    /// # Errors
    /// When the target refuses or does not answer.
    pub(super) fn connect(&mut self, qpn: Qpn, of: Of, private: &[u8]) -> Result<Connected, HostError> {
        let rq_psn = fastrand::u32(..1 << 24);
        let path_mtu = self.device.path_mtu(self.local);
        let start = clock::now();
        let cm = self.device.cm().expect("a device with one reactor has the connection manager");
        let asked = cm.connect(
            start,
            &ConnectParams {
                local: self.local,
                remote: self.target.ip(),
                port: self.target.port(),
                qpn,
                rq_psn,
                path_mtu,
                responder_resources: READS_SERVED,
                initiator_depth: 0,
                tos: 0,
                private,
            },
        );
        let id = asked.map_err(|error| HostError::Invalid(format!("connection request: {error}")))?;
        let established = self.establish(qpn, id, of, (start, rq_psn, path_mtu));
        if established.is_err()
            && let Some(cm) = self.device.cm()
        {
            // What never came about may be gone already.
            let _ = cm.disconnect(clock::now(), id);
        }
        established
    }

    /// Connects the queue pair with what the answer to a request says; `asked` is when that was sent, and what it named.
    fn establish(
        &mut self,
        qpn: Qpn,
        id: CmId,
        of: Of,
        asked: (Instant, u32, PathMtu),
    ) -> Result<Connected, HostError> {
        let (start, rq_psn, path_mtu) = asked;
        let (peer, private) = self.await_reply(id, of, start)?;
        self.device.connect_qp(
            qpn,
            &QpConnect {
                local: self.local,
                remote: self.target.ip(),
                dest_qpn: peer.qpn,
                sq_psn: peer.psn,
                rq_psn,
                path_mtu,
                max_rd_atomic: 0,
                max_dest_rd_atomic: READS_SERVED,
                ack_timeout: peer.ack_timeout,
                retry_cnt: peer.retry_cnt,
                rnr_retry: peer.rnr_retry,
                min_rnr_timer: RNR_TIMER,
                tos: peer.tos,
                remote_access: RemoteAccess { read: true, write: true },
                route: None,
            },
        )?;
        let now = clock::now();
        let cm = self.device.cm().expect("it was there before");
        let sent = cm.send_rtu(now, id);
        sent.map_err(|_| HostError::Broken { target: self.target, of, fault: Fault::Disconnected })?;
        self.device.transmit(now);
        Ok(Connected { id, private })
    }

    /// Waits for the answer to a connection request.
    fn await_reply(&mut self, ours: CmId, of: Of, start: Instant) -> Result<(PeerQp, Vec<u8>), HostError> {
        let until = start + CONNECT_TIMEOUT;
        loop {
            let now = clock::now();
            match self.device.poll_cm_event(now) {
                Some(CmEvent::ConnectReply { id, peer, private }) if id == ours => {
                    return Ok((peer, private.to_vec()));
                }
                Some(CmEvent::Rejected { id, reason, private }) if id == ours => {
                    let refusal = Refusal::new(of, reason, &private);
                    return Err(HostError::Refused { target: self.target, of, refusal });
                }
                Some(CmEvent::Unreachable { id }) if id == ours => break,
                Some(event) => self.events.push_back(event),
                None if now >= until => break,
                None => self.drive(until)?,
            }
        }
        Err(HostError::Timeout { target: self.target, what: "connection request", after: CONNECT_TIMEOUT })
    }

    /// Takes the next thing that the connection manager says.
    pub(super) fn poll_cm_event(&mut self, now: Instant) -> Option<CmEvent> {
        self.events.pop_front().or_else(|| self.device.poll_cm_event(now))
    }

    /// The next connection that ended, or never came about.
    pub(super) fn poll_lost(&mut self, now: Instant) -> Option<CmId> {
        while let Some(event) = self.poll_cm_event(now) {
            match event {
                CmEvent::Disconnected { id } | CmEvent::Unreachable { id } | CmEvent::Rejected { id, .. } => {
                    return Some(id);
                }
                CmEvent::ConnectRequest { .. }
                | CmEvent::ConnectReply { .. }
                | CmEvent::Established { .. }
                | CmEvent::Released { .. } => {}
            }
        }
        None
    }

    /// Sends what waits, sleeps until something happens, or until `until`, and receives.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub(super) fn drive(&mut self, until: Instant) -> Result<(), HostError> {
        let now = clock::now();
        self.device.transmit(now);
        let due = self.device.next_timeout().map_or(until, |timeout| timeout.min(until));
        // A socket without room is tried again soon.
        let blocked = self.device.tx_fds().next().is_some();
        let longest = if blocked { Duration::from_millis(1) } else { NAP };
        let wait = due.saturating_duration_since(now).min(longest);
        let millis = u16::try_from(wait.as_micros().div_ceil(1000)).expect("at most a nap");
        let mut events = [EpollEvent::empty()];
        match self.epoll.wait(&mut events, EpollTimeout::from(millis)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(HostError::system("wait for packets", errno)),
        }
        self.device.receive(clock::now());
        Ok(())
    }

    /// Tells the target that these connections end, in this order.
    pub(super) fn disconnect(&mut self, connections: impl Iterator<Item = (Qpn, Option<CmId>)>) {
        let now = clock::now();
        for (qpn, id) in connections {
            // It exists as long as the connection.
            let _ = self.device.error_qp(qpn);
            if let (Some(id), Some(cm)) = (id, self.device.cm()) {
                // It may have ended by itself.
                let _ = cm.disconnect(now, id);
            }
        }
        self.device.transmit(now);
    }

    /// Waits a moment for the target to confirm that these connections ended.
    pub(super) fn await_goodbye(&mut self, mut connections: Vec<CmId>) {
        let until = clock::now() + GOODBYE;
        while !connections.is_empty() {
            let now = clock::now();
            while let Some(event) = self.poll_cm_event(now) {
                if let CmEvent::Disconnected { id } | CmEvent::Released { id } = event {
                    connections.retain(|other| *other != id);
                }
            }
            if now >= until || self.drive(until).is_err() {
                break;
            }
        }
    }
}

/// The local address for a target: 127.0.0.2 for one on loopback, else the one that the system would use.
pub(super) fn local_for(target: IpAddr) -> Result<IpAddr, HostError> {
    if target.is_loopback() && target.is_ipv4() {
        return Ok(IpAddr::from([127, 0, 0, 2]));
    }
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let route = || {
        let socket = UdpSocket::bind(any)?;
        // Sends nothing: the system only chooses.
        socket.connect((target, 4791))?;
        Ok(socket.local_addr()?.ip())
    };
    route().map_err(|source| HostError::NoLocal { target, source })
}
