//! A peer on a soft device that sends whatever it is told to: any private data, any capsule, in any order.

#![expect(clippy::disallowed_methods, reason = "tests of real programs run in real time")]

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use intact::nvmf::command::{ConnectFields, DataPointer, FabricsCommand, FabricsOp, PropertySize};
use intact::nvmf::wire::cqe::{CQE_LEN, Cqe};
use intact::nvmf::wire::fabrics::{ConnectData, property};
use intact::nvmf::wire::private_data::{QueueRequest, RejectData};
use intact::nvmf::wire::sqe::Sqe;
use intact::nvmf::wire::status::Status;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rwctx::device::soft::cm::{CmEvent, CmId, ConnectParams};
use rwctx::device::soft::device::{SoftConfig, SoftDevice};
use rwctx::device::soft::wire::RejReason;
use rwctx::device::{Device, PathMtu, QpCap, QpConnect, Qpn, RemoteAccess};
use rwctx::mem::{Access, Mr, Pd, Region};
use rwctx::plan::Integrity;
use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};
use rwctx::wc::{RecvExtra, WcOpcode, WcStatus};
use rwctx::wr::{Fence, RecvWr, SendOp, SendWr, Sge, Signal, WrId};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::world::{HOST_NQN, NQN};

/// How long an answer may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// CC that enables a controller: entry sizes of 64 and 16 bytes.
const CC_ENABLE: u64 = 0x46_0001;
/// Bytes of a slot that capsules are sent from.
const SEND_SLOT: usize = 12 << 10;
const SEND_SLOTS: u32 = 512;

/// A peer.
pub(crate) struct Peer {
    pub(crate) device: SoftDevice,
    pd: Pd,
    pub(crate) local: IpAddr,
    pub(crate) target: SocketAddr,
    /// Memory for data, that the target may READ and WRITE.
    pub(crate) memory: Arc<Region>,
    pub(crate) mr: Mr,
    pub(crate) queues: Vec<PeerQueue>,
    /// Connections that it ends, and that the target did not confirm to be over.
    leaving: BTreeSet<CmId>,
}

/// One of its queue pairs.
pub(crate) struct PeerQueue {
    pub(crate) qpn: Qpn,
    pub(crate) cm: CmId,
    /// The target's queue pair.
    pub(crate) remote: Qpn,
    region: Arc<Region>,
    mr: Mr,
    receives: u32,
    reposts: bool,
    sent: u32,
    responses: VecDeque<Response>,
    /// What ended it.
    pub(crate) end: Option<End>,
}

/// A completion of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) cid: u16,
    pub(crate) status: Status,
    pub(crate) result: u64,
    pub(crate) invalidated: Option<Rkey>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The target disconnected.
    Disconnected,
    /// A work request failed.
    Failed(WcStatus),
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The target's connection manager refused.
    Manager(RejReason),
    /// The target refused with this NVMe status.
    Nvme(u16),
    /// No answer.
    Silence,
}

/// What a connection request says besides its private data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Receives that are posted.
    pub(crate) receives: u32,
    /// READs that the peer says it serves.
    pub(crate) reads: u8,
    /// Whether a receive is posted again when it was used.
    pub(crate) reposts: bool,
}

impl Default for How {
    fn default() -> Self {
        Self { receives: 256, reads: 16, reposts: true }
    }
}

/// Private data of a request for a queue.
pub(crate) fn private(qid: u16, entries: u32, cntlid: u16) -> Vec<u8> {
    let request = QueueRequest { qid, host_recv_entries: entries, host_send_entries: entries, cntlid };
    request.emit().as_bytes().to_vec()
}

/// Connect's data.
pub(crate) fn connect_data(cntlid: u16, subnqn: &str, hostnqn: &str) -> ConnectData {
    let mut data = ConnectData::new_zeroed();
    data.hostid = [7; 16];
    data.cntlid = cntlid.into();
    data.subnqn[..subnqn.len()].copy_from_slice(subnqn.as_bytes());
    data.hostnqn[..hostnqn.len()].copy_from_slice(hostnqn.as_bytes());
    data
}

/// A Connect command with in-capsule data.
pub(crate) fn connect_sqe(cid: u16, fields: ConnectFields) -> Sqe {
    let dptr = DataPointer::InCapsule { offset: 0, length: 1024 };
    FabricsCommand { cid, op: FabricsOp::Connect(fields), dptr }.emit()
}

/// The usual fields of a Connect command.
pub(crate) fn connect_fields(qid: u16, entries: u32) -> ConnectFields {
    ConnectFields { recfmt: 0, qid, sq_entries: entries, cattr: 0, kato_ms: 0 }
}

impl Peer {
    /// A peer at `local` with `bytes` of memory that it grants.
    pub(crate) fn open(local: IpAddr, target: SocketAddr, bytes: usize) -> Self {
        let mut device = SoftDevice::open(&SoftConfig::new(vec![local], 1))
            .unwrap_or_else(|error| panic!("{local}: {error}"))
            .remove(0);
        let pd = device.alloc_pd().unwrap();
        let memory = Arc::new(Region::new(bytes).unwrap());
        let access = Access { local_write: true, remote_read: true, remote_write: true };
        let mr = device.reg_mr(pd, &memory, 0, bytes, access).unwrap();
        Self { device, pd, local, target, memory, mr, queues: Vec::new(), leaving: BTreeSet::new() }
    }

    /// A keyed descriptor of granted memory.
    pub(crate) fn keyed(&self, offset: u64, length: u32) -> DataPointer {
        let at = RemoteAddr { addr: self.mr.addr + offset, rkey: self.mr.rkey };
        DataPointer::Keyed { segment: RemoteSegment { at, length }, invalidate: false }
    }

    /// A key of its own for a part of the memory, made by a queue.
    pub(crate) fn window(&mut self, at: usize, offset: u64, length: u32) -> Rkey {
        let window = self.device.alloc_fast_reg(self.pd, 16).unwrap();
        let key = Rkey(window.rkey.0 & !0xff | (window.rkey.0.wrapping_add(1) & 0xff));
        let register = SendOp::RegMr {
            mr: window.id,
            key,
            access: Access { local_write: true, remote_read: true, remote_write: true },
        };
        let memory = Sge { addr: self.mr.addr + offset, length, lkey: self.mr.lkey };
        let wr_id = WrId((at as u64) << 32 | u64::from(u32::MAX));
        let sges = &[memory];
        let wr = SendWr { wr_id, op: register, sges, signal: Signal::Unsignaled, fence: Fence::None };
        self.device.post_send(self.queues[at].qpn, &wr).unwrap();
        key
    }

    /// Asks for a connection and establishes it; returns the queue's index.
    pub(crate) fn connect(&mut self, private: &[u8], how: How) -> Result<usize, Refused> {
        loop {
            let at = self.request(private, how);
            match self.establish(at, how) {
                Ok(()) => return Ok(at),
                // By chance our number is one that an earlier peer at this address had: hosts ask again then.
                Err(Refused::Manager(RejReason::Stale)) => {}
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Asks for a connection, and no more.
    pub(crate) fn request(&mut self, private: &[u8], how: How) -> usize {
        let cap = QpCap {
            max_send_wr: SEND_SLOTS,
            max_recv_wr: how.receives.max(1),
            max_send_sge: 1,
            max_recv_sge: 1,
            integrity: Integrity::Off,
        };
        let qpn = self.device.create_qp(self.pd, &cap).unwrap();
        let length = SEND_SLOTS as usize * SEND_SLOT + how.receives as usize * CQE_LEN;
        let region = Arc::new(Region::new(length).unwrap());
        let access = Access { local_write: true, ..Access::default() };
        let mr = self.device.reg_mr(self.pd, &region, 0, length, access).unwrap();
        let now = Instant::now();
        let params = ConnectParams {
            local: self.local,
            remote: self.target.ip(),
            port: self.target.port(),
            qpn,
            rq_psn: 0xff_fff0,
            path_mtu: PathMtu::Mtu4096,
            responder_resources: how.reads,
            initiator_depth: 0,
            tos: 0,
            private,
        };
        let cm = self.device.cm().unwrap().connect(now, &params).unwrap();
        self.device.transmit(now);
        self.queues.push(PeerQueue {
            qpn,
            cm,
            remote: Qpn(0),
            region,
            mr,
            receives: how.receives,
            reposts: how.reposts,
            sent: 0,
            responses: VecDeque::new(),
            end: None,
        });
        self.queues.len() - 1
    }

    /// Waits for the answer to a request, and confirms it.
    pub(crate) fn establish(&mut self, at: usize, how: How) -> Result<(), Refused> {
        let until = Instant::now() + PATIENCE;
        let peer = loop {
            let now = Instant::now();
            self.exchange();
            let Some(event) = self.device.poll_cm_event(now) else {
                if now > until {
                    return Err(Refused::Silence);
                }
                self.nap();
                continue;
            };
            let ours = self.queues[at].cm;
            match event {
                CmEvent::ConnectReply { id, peer, .. } if id == ours => break peer,
                CmEvent::Rejected { id, reason, private } if id == ours => {
                    return Err(match RejectData::ref_from_prefix(&private) {
                        Ok((data, _)) if reason == RejReason::Consumer => Refused::Nvme(data.sts.get()),
                        _ => Refused::Manager(reason),
                    });
                }
                CmEvent::Unreachable { id } if id == ours => return Err(Refused::Silence),
                other => self.on_cm_event(&other),
            }
        };
        let queue = &mut self.queues[at];
        queue.remote = peer.qpn;
        for slot in 0..queue.receives {
            queue.post_receive(&mut self.device, at, slot);
        }
        let to = QpConnect {
            local: self.local,
            remote: self.target.ip(),
            dest_qpn: peer.qpn,
            sq_psn: peer.psn,
            rq_psn: 0xff_fff0,
            path_mtu: PathMtu::Mtu4096,
            max_rd_atomic: 0,
            max_dest_rd_atomic: how.reads,
            ack_timeout: peer.ack_timeout,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            tos: 0,
            remote_access: RemoteAccess { read: true, write: true },
            route: None,
        };
        self.device.connect_qp(queue.qpn, &to).unwrap();
        let cm = queue.cm;
        let now = Instant::now();
        self.device.cm().unwrap().send_rtu(now, cm).map_err(|_| Refused::Silence)?;
        self.device.transmit(now);
        Ok(())
    }

    /// Sends any bytes as one capsule.
    pub(crate) fn send(&mut self, at: usize, capsule: &[u8]) {
        self.post(at, capsule, SendOp::Send);
    }

    /// Posts a SEND of any bytes, or another operation with them as its memory.
    pub(crate) fn post(&mut self, at: usize, bytes: &[u8], op: SendOp) {
        let queue = &mut self.queues[at];
        let slot = queue.sent % SEND_SLOTS;
        queue.sent = queue.sent.wrapping_add(1);
        let offset = slot as usize * SEND_SLOT;
        queue.region.write(offset, bytes);
        let length = u32::try_from(bytes.len()).unwrap();
        let sge = Sge { addr: queue.mr.addr + offset as u64, length, lkey: queue.mr.lkey };
        let sges = if length == 0 { &[][..] } else { &[sge][..] };
        let wr_id = WrId((at as u64) << 32 | u64::from(u32::MAX));
        let wr = SendWr { wr_id, op, sges, signal: Signal::Unsignaled, fence: Fence::None };
        // A queue pair that failed takes no more: what ended it is told by its completions.
        let _ = self.device.post_send(queue.qpn, &wr);
    }

    /// Sends a command.
    pub(crate) fn submit(&mut self, at: usize, sqe: &Sqe, in_capsule: &[u8]) {
        let mut capsule = sqe.as_bytes().to_vec();
        capsule.extend_from_slice(in_capsule);
        self.send(at, &capsule);
    }

    /// Sends and receives what there is.
    pub(crate) fn exchange(&mut self) {
        let now = Instant::now();
        self.device.transmit(now);
        self.device.receive(now);
        while let Some(wc) = self.device.poll_cq() {
            let at = usize::try_from(wc.wr_id.0 >> 32).unwrap();
            let queue = &mut self.queues[at];
            if wc.status != WcStatus::Success {
                queue.end.get_or_insert(End::Failed(wc.status));
            } else if wc.opcode == WcOpcode::Recv {
                let slot = u32::try_from(wc.wr_id.0 & 0xffff_ffff).unwrap();
                let mut bytes = [0; CQE_LEN];
                queue.region.read(queue.receive_offset(slot), &mut bytes);
                let cqe = Cqe::read_from_bytes(&bytes).unwrap();
                let invalidated = match wc.extra {
                    RecvExtra::Invalidated(key) => Some(key),
                    _ => None,
                };
                queue.responses.push_back(Response {
                    cid: cqe.cid.get(),
                    status: cqe.status(),
                    result: cqe.result.get(),
                    invalidated,
                });
                if queue.reposts {
                    queue.post_receive(&mut self.device, at, slot);
                }
            }
        }
        self.device.transmit(now);
    }

    /// Exchanges, and takes events of the connection manager.
    pub(crate) fn turn(&mut self) {
        self.exchange();
        let now = Instant::now();
        while let Some(event) = self.device.poll_cm_event(now) {
            self.on_cm_event(&event);
        }
        self.device.transmit(now);
    }

    fn on_cm_event(&mut self, event: &CmEvent) {
        if let CmEvent::Disconnected { id }
        | CmEvent::Unreachable { id }
        | CmEvent::Rejected { id, .. }
        | CmEvent::Released { id } = event
        {
            self.leaving.remove(id);
            if let Some(queue) = self.queues.iter_mut().find(|queue| queue.cm == *id) {
                queue.end.get_or_insert(End::Disconnected);
            }
        }
    }

    /// Waits a moment for packets.
    pub(crate) fn nap(&self) {
        let mut fds: Vec<PollFd<'_>> =
            self.device.rx_fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let _ = poll(&mut fds, PollTimeout::from(1u8));
    }

    /// Takes turns for a while.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.turn();
            self.nap();
        }
    }

    /// The next response of a queue, or how it ended.
    pub(crate) fn response(&mut self, at: usize) -> Result<Response, End> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.turn();
            let queue = &mut self.queues[at];
            if let Some(response) = queue.responses.pop_front() {
                return Ok(response);
            }
            if let Some(end) = queue.end {
                return Err(end);
            }
            assert!(Instant::now() < until, "no answer of the target on queue {at} in {PATIENCE:?}");
            self.nap();
        }
    }

    /// Waits until the target ends a connection.
    pub(crate) fn await_end(&mut self, at: usize) -> End {
        loop {
            if let Err(end) = self.response(at) {
                return end;
            }
        }
    }

    /// Sends a command and waits for its response.
    pub(crate) fn execute(&mut self, at: usize, sqe: &Sqe, in_capsule: &[u8]) -> Result<Response, End> {
        self.submit(at, sqe, in_capsule);
        self.response(at)
    }

    /// Makes a controller and enables it: the admin queue's index and the controller's identifier.
    pub(crate) fn admin(&mut self, kato_ms: u32) -> (usize, u16) {
        let (at, cntlid) = self.try_admin(kato_ms).unwrap_or_else(|refused| panic!("{refused:?}"));
        let set = |offset, value| FabricsCommand {
            cid: 1,
            op: FabricsOp::PropertySet { size: PropertySize::Dword, offset, value },
            dptr: DataPointer::None,
        };
        let done = self.execute(at, &set(property::CC, CC_ENABLE).emit(), &[]).unwrap();
        assert_eq!(done.status, Status::SUCCESS);
        (at, cntlid)
    }

    /// Makes a controller that is not enabled.
    pub(crate) fn try_admin(&mut self, kato_ms: u32) -> Result<(usize, u16), Refused> {
        let at = self.connect(&private(0, 32, 0), How::default())?;
        let fields = ConnectFields { kato_ms, ..connect_fields(0, 32) };
        let data = connect_data(0xffff, NQN, HOST_NQN);
        let done = self.execute(at, &connect_sqe(0, fields), data.as_bytes()).unwrap();
        assert_eq!(done.status, Status::SUCCESS);
        Ok((at, u16::try_from(done.result & 0xffff).unwrap()))
    }

    /// Adds an I/O queue to a controller.
    pub(crate) fn io(&mut self, cntlid: u16, qid: u16, entries: u32, how: How) -> usize {
        let at =
            self.connect(&private(qid, entries, cntlid), how).unwrap_or_else(|refused| panic!("{refused:?}"));
        let data = connect_data(cntlid, NQN, HOST_NQN);
        let done = self.execute(at, &connect_sqe(0, connect_fields(qid, entries)), data.as_bytes()).unwrap();
        assert_eq!(done.status, Status::SUCCESS);
        at
    }

    /// Ends a connection.
    pub(crate) fn disconnect(&mut self, at: usize) {
        let now = Instant::now();
        let (qpn, cm) = (self.queues[at].qpn, self.queues[at].cm);
        let _ = self.device.error_qp(qpn);
        if self.device.cm().unwrap().disconnect(now, cm).is_ok() {
            self.leaving.insert(cm);
        }
        self.device.transmit(now);
    }

    /// Waits until the target knows of the end of all connections that this peer ended. Who goes away before may have said
    /// so in a packet that got lost, and never says it again: without a keep-alive timer the target keeps the connection.
    pub(crate) fn await_departure(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            self.turn();
            if self.leaving.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "the target does not confirm the end of {:?}", self.leaving);
            self.nap();
        }
    }

    /// Forgets the queue pairs of all queues that ended, without a word.
    pub(crate) fn forget_queues(&mut self) {
        for queue in self.queues.drain(..) {
            let _ = self.device.destroy_qp(queue.qpn);
            let _ = self.device.dereg_mr(queue.mr.id);
        }
    }
}

impl PeerQueue {
    fn post_receive(&self, device: &mut SoftDevice, at: usize, slot: u32) {
        let addr = self.mr.addr + self.receive_offset(slot) as u64;
        let length = u32::try_from(CQE_LEN).unwrap();
        let sge = Sge { addr, length, lkey: self.mr.lkey };
        let wr_id = WrId((at as u64) << 32 | u64::from(slot));
        // It fails only when the queue pair did.
        let _ = device.post_recv(self.qpn, &RecvWr { wr_id, sges: &[sge] });
    }

    fn receive_offset(&self, slot: u32) -> usize {
        SEND_SLOTS as usize * SEND_SLOT + slot as usize * CQE_LEN
    }
}
