//! One connection between two endpoints, for tests of single rules.

use std::sync::Arc;
use std::time::Duration;

use super::super::endpoint::{CAPS, EndpointConfig, IcrcCheck};
use super::super::fault::Faults;
use super::super::wire::{Bth, Ext, HEADER_MAX, Header, Opcode};
use super::super::{Counters, RxMeta};
use super::{SideId, World};
use crate::device::{DeviceCaps, PathMtu, PostError, QpCap, QpConnect, QpEvent, QpState, Qpn, RemoteAccess};
use crate::mem::{Access, Mr, Pd, Region};
use crate::plan::Integrity;
use crate::remote::{RemoteAddr, Rkey};
use crate::wc::{Wc, WcStatus};
use crate::wr::{Fence, RecvWr, SendOp, SendWr, Sge, Signal, WrId};

pub(super) const ALL: Access = Access { local_write: true, remote_read: true, remote_write: true };
pub(super) const LATENCY: Duration = Duration::from_micros(20);
/// Bytes of each side's memory.
pub(super) const MEMORY: usize = 1 << 20;
/// First PSN of each side's requests.
pub(super) const PSN: [u32; 2] = [0xFF_FFF0, 5];
pub(super) const MTU: usize = 1024;

/// Two connected queue pairs.
pub(super) struct Pair {
    pub(super) world: World,
    pub(super) qpns: [Qpn; 2],
    pub(super) pds: [Pd; 2],
    pub(super) regions: [Arc<Region>; 2],
    /// The whole region, with all rights.
    pub(super) mrs: [Mr; 2],
}

/// The parameters of a usual connection.
pub(super) fn usual(side: SideId) -> QpConnect {
    let nowhere = std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
    QpConnect {
        local: nowhere,
        remote: nowhere,
        dest_qpn: Qpn(0),
        sq_psn: PSN[side],
        rq_psn: PSN[1 - side],
        path_mtu: PathMtu::Mtu1024,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        ack_timeout: Duration::from_millis(67),
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        tos: 0,
        remote_access: RemoteAccess { read: true, write: true },
        route: None,
    }
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::with([usual(0), usual(1)])
    }

    pub(super) fn with(parameters: [QpConnect; 2]) -> Self {
        Self::with_caps(parameters, CAPS)
    }

    pub(super) fn with_caps(parameters: [QpConnect; 2], caps: DeviceCaps) -> Self {
        Self::over(1, Faults { latency: LATENCY, ..Faults::default() }, IcrcCheck::Off, caps, parameters)
    }

    /// Over a network that a seed and faults decide.
    pub(super) fn over(
        seed: u64,
        faults: Faults,
        icrc: IcrcCheck,
        caps: DeviceCaps,
        parameters: [QpConnect; 2],
    ) -> Self {
        let mut world = World::new(seed, faults, true, |seed| EndpointConfig {
            caps,
            icrc,
            max_qps: 16,
            ..EndpointConfig::new(seed, 0, 1)
        });
        let pds = [0, 1].map(|side: SideId| world.endpoints[side].alloc_pd().unwrap());
        let regions = [0, 1].map(|_| Arc::new(Region::new(MEMORY).unwrap()));
        let mrs = [0, 1].map(|side: SideId| {
            world.endpoints[side].reg_mr(pds[side], &regions[side], 0, MEMORY, ALL).unwrap()
        });
        let mut pair = Self { world, qpns: [Qpn(0); 2], pds, regions, mrs };
        pair.qpns = pair.connect(parameters);
        pair
    }

    /// Makes one more connection and returns its ends.
    pub(super) fn connect(&mut self, parameters: [QpConnect; 2]) -> [Qpn; 2] {
        let qpns = [0, 1].map(|side: SideId| {
            let endpoint = &mut self.world.endpoints[side];
            let has = endpoint.caps().max_pi_fast_reg_page_list_len > 0;
            let cap = QpCap {
                max_send_wr: 64,
                max_recv_wr: 16,
                max_send_sge: 4,
                max_recv_sge: 4,
                integrity: if has { Integrity::Enabled } else { Integrity::Off },
            };
            endpoint.create_qp(self.pds[side], &cap).unwrap()
        });
        self.world.connect(qpns, parameters);
        qpns
    }

    /// Replaces the connection by a fresh one.
    pub(super) fn reconnect(&mut self) {
        for side in 0..2 {
            self.world.endpoints[side].destroy_qp(self.qpns[side]).unwrap();
        }
        self.qpns = self.connect([usual(0), usual(1)]);
    }

    pub(super) fn sge(&self, side: SideId, offset: usize, length: usize) -> Sge {
        let addr = self.mrs[side].addr + offset as u64;
        Sge { addr, length: u32::try_from(length).unwrap(), lkey: self.mrs[side].lkey }
    }

    /// Memory of `side` as its peer names it.
    pub(super) fn remote(&self, side: SideId, offset: usize) -> RemoteAddr {
        self.remote_by(side, offset, self.mrs[side].rkey)
    }

    pub(super) fn remote_by(&self, side: SideId, offset: usize, rkey: Rkey) -> RemoteAddr {
        RemoteAddr { addr: self.mrs[side].addr + offset as u64, rkey }
    }

    pub(super) fn fill(&self, side: SideId, offset: usize, length: usize, byte: u8) {
        self.regions[side].write(offset, &vec![byte; length]);
    }

    pub(super) fn bytes(&self, side: SideId, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.regions[side].read(offset, &mut bytes);
        bytes
    }

    /// Posts a signaled work request.
    pub(super) fn post(&mut self, side: SideId, wr: u64, op: SendOp, sges: &[Sge]) {
        self.try_post(side, wr, op, sges, Signal::Signaled, Fence::None).unwrap();
    }

    pub(super) fn try_post(
        &mut self,
        side: SideId,
        wr: u64,
        op: SendOp,
        sges: &[Sge],
        signal: Signal,
        fence: Fence,
    ) -> Result<(), PostError> {
        let request = SendWr { wr_id: WrId(wr), op, sges, signal, fence };
        self.world.endpoints[side].post_send(self.qpns[side], &request)
    }

    pub(super) fn receive(&mut self, side: SideId, wr: u64, sges: &[Sge]) {
        let request = RecvWr { wr_id: WrId(wr), sges };
        self.world.endpoints[side].post_recv(self.qpns[side], &request).unwrap();
    }

    /// Lets everything happen that happens within `time`.
    pub(super) fn run(&mut self, time: Duration) {
        self.world.settle(time);
    }

    /// Lets everything happen, and returns what completed at `side`.
    pub(super) fn outcome(&mut self, side: SideId) -> Vec<(u64, WcStatus)> {
        self.run(Duration::from_secs(20));
        self.completions(side).iter().map(|wc| (wc.wr_id.0, wc.status)).collect()
    }

    pub(super) fn completions(&mut self, side: SideId) -> Vec<Wc> {
        std::iter::from_fn(|| self.world.endpoints[side].poll_cq()).collect()
    }

    pub(super) fn events(&mut self, side: SideId) -> Vec<QpEvent> {
        std::iter::from_fn(|| self.world.endpoints[side].poll_qp_event()).collect()
    }

    pub(super) fn states(&self) -> [Option<QpState>; 2] {
        [0, 1].map(|side: SideId| self.world.endpoints[side].qp_state(self.qpns[side]))
    }

    pub(super) fn counters(&self, side: SideId) -> &Counters {
        self.world.endpoints[side].counters()
    }

    /// Hands `side` a packet as from its peer; `ahead` is its distance from the peer's (responses: our) first PSN.
    pub(super) fn inject(&mut self, side: SideId, opcode: Opcode, ahead: u32, ext: Ext, payload: &[u8]) {
        let base =
            if opcode.role() == super::super::wire::Role::Response { PSN[side] } else { PSN[1 - side] };
        let bth = Bth::new(opcode, self.qpns[side], base.wrapping_add(ahead), payload.len()).with_ack_req();
        self.inject_header(side, &Header { bth, ext }, payload);
    }

    pub(super) fn inject_header(&mut self, side: SideId, header: &Header, payload: &[u8]) {
        let mut bytes = [0; HEADER_MAX];
        let length = header.emit(&mut bytes);
        let mut datagram = bytes[..length].to_vec();
        datagram.extend_from_slice(payload);
        datagram.resize(datagram.len() + usize::from(header.bth.pad_count) + 4, 0);
        self.inject_bytes(side, &datagram);
    }

    pub(super) fn inject_bytes(&mut self, side: SideId, datagram: &[u8]) {
        let meta =
            RxMeta { src: self.world.addresses[1 - side], dst: self.world.addresses[side], src_port: 0xC000 };
        let now = self.world.now;
        self.world.endpoints[side].handle_datagram(now, &meta, datagram);
    }
}
