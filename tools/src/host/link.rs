//! The connection to a target: the soft device, and the queue pairs on it.
//!
//! Owns everything that touches the device: connection set-up, waiting, completions. Knows capsules and their
//! identifiers, not what commands mean. One command at a time with [`Link::execute`]; many with [`Link::submit`] and
//! [`Link::next_completion`]. roce-wire 3.4, 3.7.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use intact::nvmf::wire::private_data::QueueRequest;
use intact::nvmf::wire::sqe::Sqe;
use intact::nvmf::wire::status::Status;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rwctx::device::soft::cm::{CmEvent, ConnectParams, PeerQp};
use rwctx::device::soft::device::{SoftConfig, SoftCounters, SoftDevice};
use rwctx::device::{Device, QpConnect, RemoteAccess};
use rwctx::mem::{Access, Mr, Pd, Region};
use rwctx::remote::Rkey;
use rwctx::wc::{RecvExtra, WcStatus};
use rwctx::wr::{SendOp, Sge};
use zerocopy::IntoBytes;

use super::clock;
use super::error::{Fault, HostError, Refusal};
pub use super::queue::Submit;
use super::queue::{BadResponse, Queue, Work};

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

/// A command's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Index of the queue that the command was sent on.
    pub queue: usize,
    /// The command's identifier.
    pub cid: u16,
    /// How it ended.
    pub status: Status,
    /// DW0 and DW1.
    pub result: u64,
    /// The key that the target invalidated.
    pub invalidated: Option<Rkey>,
}

/// The soft device with the queue pairs to one target.
#[derive(Debug)]
pub struct Link {
    device: SoftDevice,
    pd: Pd,
    local: IpAddr,
    target: SocketAddr,
    epoll: Epoll,
    queues: Vec<Queue>,
}

impl Link {
    /// Opens a device on `local`; nothing is sent yet.
    ///
    /// # Errors
    /// When the address can't be used.
    pub fn open(local: IpAddr, target: SocketAddr) -> Result<Self, HostError> {
        let mut device = SoftDevice::open(&SoftConfig::new(vec![local], 1))?.remove(0);
        let pd = device.alloc_pd()?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|errno| HostError::system("make an epoll descriptor", errno))?;
        for fd in device.rx_fds() {
            epoll
                .add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))
                .map_err(|errno| HostError::system("watch a socket", errno))?;
        }
        Ok(Self { device, pd, local, target, epoll, queues: Vec::new() })
    }

    /// The local address for a target: 127.0.0.2 for one on loopback, else the one that the system would use.
    ///
    /// # Errors
    /// When the target can't be reached.
    pub fn local_for(target: IpAddr) -> Result<IpAddr, HostError> {
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

    /// The other side.
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        self.target
    }

    /// Registers memory for the target to READ and WRITE, if `remote`, and for us.
    ///
    /// # Errors
    /// When the device is out of registrations.
    pub fn register(&mut self, region: &Arc<Region>, remote: RemoteAccess) -> Result<Mr, HostError> {
        let access = Access { local_write: true, remote_read: remote.read, remote_write: remote.write };
        Ok(self.device.reg_mr(self.pd, region, 0, region.len(), access)?)
    }

    /// Makes a registration that [`Self::post_memory`] gives memory.
    ///
    /// # Errors
    /// When the device is out of registrations.
    pub fn alloc_fast_reg(&mut self) -> Result<Mr, HostError> {
        let pages = self.device.caps().max_fast_reg_page_list_len;
        Ok(self.device.alloc_fast_reg(self.pd, pages)?)
    }

    /// Gives a registration back.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn deregister(&mut self, mr: &Mr) -> Result<(), HostError> {
        Ok(self.device.dereg_mr(mr.id)?)
    }

    /// Sums of the device.
    #[must_use]
    pub fn counters(&self) -> SoftCounters {
        self.device.counters()
    }

    /// Connects an NVMe queue of `entries` entries; the Connect command comes next. `cntlid` says which controller an I/O
    /// queue belongs to. Returns the queue's index.
    ///
    /// # Errors
    /// When the target refuses or does not answer.
    pub fn connect_queue(&mut self, qid: u16, entries: u32, cntlid: u16) -> Result<usize, HostError> {
        if !(2..=1 << 16).contains(&entries) {
            return Err(HostError::Invalid(format!("a queue has 2 to 65536 entries, not {entries}")));
        }
        let at = self.queues.len();
        let index = u32::try_from(at).expect("at most 65536 queues");
        // A registration and an invalidation for each command, and those not yet acknowledged.
        let extra = entries * 4;
        let queue = Queue::open(&mut self.device, self.pd, index, qid, entries, extra)?;
        let qpn = queue.qpn;
        self.queues.push(queue);
        let request = QueueRequest {
            qid,
            host_recv_entries: entries,
            host_send_entries: entries,
            cntlid: if qid == 0 { 0 } else { cntlid },
        };
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
                private: request.emit().as_bytes(),
            },
        );
        let id = asked.map_err(|error| HostError::Invalid(format!("connection request: {error}")))?;
        self.queues[at].cm = Some(id);
        let peer = self.await_reply(at, start)?;
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
        cm.send_rtu(now, id).map_err(|_| self.broken(at, Fault::Disconnected))?;
        self.device.transmit(now);
        Ok(at)
    }

    /// Waits for the answer to a connection request.
    fn await_reply(&mut self, at: usize, start: Instant) -> Result<PeerQp, HostError> {
        let until = start + CONNECT_TIMEOUT;
        let (qid, ours) = (self.queues[at].qid, self.queues[at].cm);
        loop {
            let now = clock::now();
            match self.device.poll_cm_event(now) {
                Some(CmEvent::ConnectReply { id, peer, .. }) if Some(id) == ours => return Ok(peer),
                Some(CmEvent::Rejected { id, reason, private }) if Some(id) == ours => {
                    self.queues[at].cm = None;
                    let refusal = Refusal::new(reason, &private);
                    return Err(HostError::Refused { target: self.target, qid, refusal });
                }
                Some(CmEvent::Unreachable { id }) if Some(id) == ours => break,
                Some(event) => self.on_cm_event(&event)?,
                None if now >= until => break,
                None => self.drive(until)?,
            }
        }
        Err(HostError::Timeout { target: self.target, what: "connection request", after: CONNECT_TIMEOUT })
    }

    /// Sends what waits, sleeps until something happens, or until `until`, and receives.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn drive(&mut self, until: Instant) -> Result<(), HostError> {
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

    /// Receives what is there, without waiting.
    #[inline]
    pub fn receive(&mut self, now: Instant) {
        self.device.receive(now);
    }

    /// Sends everything that waits.
    #[inline]
    pub fn transmit(&mut self, now: Instant) {
        self.device.transmit(now);
    }

    /// An identifier for a new command on a queue; `None` when the queue is full.
    pub fn free_cid(&mut self, queue: usize) -> Option<u16> {
        self.queues[queue].free_cid()
    }

    /// Sends a command, with the next [`Self::transmit`]; see `Queue::submit` for what is asked of its identifier and of
    /// in-capsule data.
    ///
    /// # Errors
    /// When the queue pair failed.
    #[inline]
    pub fn submit(&mut self, queue: usize, sqe: &Sqe, in_capsule: Option<Sge>) -> Result<Submit, HostError> {
        Ok(self.queues[queue].submit(&mut self.device, sqe, in_capsule)?)
    }

    /// Whether a queue's memory has room for another capsule. If not, it has again when earlier ones are acknowledged; taking
    /// completions brings that about.
    #[inline]
    #[must_use]
    pub fn has_room(&self, queue: usize) -> bool {
        self.queues[queue].has_room()
    }

    /// Posts a registration or invalidation on a queue: it is carried out before commands that are sent later.
    ///
    /// # Errors
    /// When the queue pair failed.
    pub fn post_memory(&mut self, queue: usize, op: SendOp, memory: &[Sge]) -> Result<(), HostError> {
        Ok(self.queues[queue].post_memory(&mut self.device, op, memory)?)
    }

    /// Whether a capsule will not be sent again, so that its in-capsule data may change.
    #[inline]
    #[must_use]
    pub fn is_acked(&self, queue: usize, number: u32) -> bool {
        self.queues[queue].is_acked(number)
    }

    /// Takes the next completion of a command.
    ///
    /// # Errors
    /// When a connection broke or the target's answer makes no sense.
    #[inline]
    pub fn next_completion(&mut self) -> Result<Option<Completion>, HostError> {
        while let Some(wc) = self.device.poll_cq() {
            let (index, work) = Queue::work(wc.wr_id);
            if wc.status != WcStatus::Success {
                return Err(self.work_failed(index, wc.status));
            }
            let queue = &mut self.queues[index];
            match work {
                Work::Receive(slot) => {
                    let cqe = match queue.on_receive(&mut self.device, slot, wc.byte_len)? {
                        Ok(cqe) => cqe,
                        Err(bad) => return Err(self.bad_response(index, bad)),
                    };
                    let invalidated = match wc.extra {
                        RecvExtra::Invalidated(key) => Some(key),
                        RecvExtra::None | RecvExtra::Imm(_) => None,
                    };
                    return Ok(Some(Completion {
                        queue: index,
                        cid: cqe.cid.get(),
                        status: cqe.status(),
                        result: cqe.result.get(),
                        invalidated,
                    }));
                }
                Work::Capsule(number) => queue.on_acked(number),
                Work::Memory => {}
            }
        }
        Ok(None)
    }

    /// Sees to it that the connections are still there.
    ///
    /// # Errors
    /// When one is not.
    pub fn check(&mut self, now: Instant) -> Result<(), HostError> {
        while let Some(event) = self.device.poll_cm_event(now) {
            self.on_cm_event(&event)?;
        }
        Ok(())
    }

    fn on_cm_event(&mut self, event: &CmEvent) -> Result<(), HostError> {
        match *event {
            CmEvent::Disconnected { id } | CmEvent::Unreachable { id } | CmEvent::Rejected { id, .. } => {
                match self.queues.iter().position(|queue| queue.cm == Some(id)) {
                    Some(at) => {
                        self.queues[at].cm = None;
                        Err(self.broken(at, Fault::Disconnected))
                    }
                    None => Ok(()),
                }
            }
            CmEvent::ConnectRequest { .. }
            | CmEvent::ConnectReply { .. }
            | CmEvent::Established { .. }
            | CmEvent::Released { .. } => Ok(()),
        }
    }

    /// Sends a command and waits for its completion. `in_capsule` may change when this returned.
    ///
    /// # Errors
    /// When the connection broke or the target does not answer within `timeout`; not for the command's own status.
    pub fn execute(
        &mut self,
        queue: usize,
        sqe: &Sqe,
        in_capsule: Option<Sge>,
        what: &'static str,
        timeout: Duration,
    ) -> Result<Completion, HostError> {
        let until = clock::now() + timeout;
        let number = loop {
            if let Submit::Sent(number) = self.submit(queue, sqe, in_capsule)? {
                break number;
            }
            self.step(until, what, timeout)?;
            // Only acknowledgements can be waited for here, and keep-alives.
            let _ = self.next_completion()?;
        };
        let mut done = None;
        loop {
            while let Some(completion) = self.next_completion()? {
                if completion.queue == queue && completion.cid == sqe.cid.get() {
                    done = Some(completion);
                }
            }
            match done {
                Some(completion) if in_capsule.is_none() || self.is_acked(queue, number) => {
                    return Ok(completion);
                }
                _ => self.step(until, what, timeout)?,
            }
        }
    }

    fn step(&mut self, until: Instant, what: &'static str, after: Duration) -> Result<(), HostError> {
        self.drive(until)?;
        let now = clock::now();
        self.check(now)?;
        if now >= until {
            return Err(HostError::Timeout { target: self.target, what, after });
        }
        Ok(())
    }

    /// A failed work request; that of a connection which the target closed is told as that.
    #[cold]
    fn work_failed(&mut self, index: usize, status: WcStatus) -> HostError {
        match self.check(clock::now()) {
            Err(closed) => closed,
            Ok(()) => self.broken(index, Fault::Work(status)),
        }
    }

    fn broken(&self, index: usize, fault: Fault) -> HostError {
        HostError::Broken { target: self.target, qid: self.queues[index].qid, fault }
    }

    #[cold]
    fn bad_response(&self, index: usize, bad: BadResponse) -> HostError {
        let qid = self.queues[index].qid;
        let what = match bad {
            BadResponse::Length(length) => format!("a response of {length} bytes on queue {qid}"),
            BadResponse::Cid(cid) => {
                format!("a response to command {cid} on queue {qid}, which is not in flight")
            }
            BadResponse::Sqhd(sqhd) => {
                format!("submission queue head {sqhd} of queue {qid} is outside the queue")
            }
        };
        HostError::Protocol { target: self.target, what }
    }

    /// Ends all connections and waits a moment for the target to confirm it.
    pub fn close(mut self) {
        self.disconnect();
        let until = clock::now() + GOODBYE;
        while self.queues.iter().any(|queue| queue.cm.is_some()) {
            let now = clock::now();
            while let Some(event) = self.device.poll_cm_event(now) {
                if let CmEvent::Disconnected { id } | CmEvent::Released { id } = event {
                    self.queues.iter_mut().filter(|q| q.cm == Some(id)).for_each(|q| q.cm = None);
                }
            }
            if now >= until || self.drive(until).is_err() {
                break;
            }
        }
        // What is left is not asked again.
        self.queues.iter_mut().for_each(|queue| queue.cm = None);
    }

    /// Tells the target that all connections end.
    fn disconnect(&mut self) {
        let now = clock::now();
        // I/O queues first, as hosts do.
        for queue in self.queues.iter().rev() {
            // It exists as long as the queue.
            let _ = self.device.error_qp(queue.qpn);
            if let (Some(id), Some(cm)) = (queue.cm, self.device.cm()) {
                // It may have ended by itself.
                let _ = cm.disconnect(now, id);
            }
        }
        self.device.transmit(now);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.queues.iter().any(|queue| queue.cm.is_some()) {
            self.disconnect();
        }
    }
}
