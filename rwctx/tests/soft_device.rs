//! Two soft devices in one process, over real sockets on loopback: connect, move data in every way, disconnect.
//!
//! Each test has addresses of its own in 127.0.0.0/8, because port 4791 of an address has one owner.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "drives devices in real time; a test may panic"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rwctx::ctx::{Completion, RwCtx};
use rwctx::device::soft::cm::{AcceptParams, CmEvent, CmId, ConnectParams, PeerQp};
use rwctx::device::soft::device::{SoftConfig, SoftDevice};
use rwctx::device::soft::driver::Gso;
use rwctx::device::{Device, PathMtu, QpCap, QpConnect, QpState, Qpn, RemoteAccess};
use rwctx::mem::{Access, Mr, Pd, Region};
use rwctx::plan::{Direction, Integrity};
use rwctx::qp::RwQp;
use rwctx::remote::{RemoteAddr, Rkey};
use rwctx::signature::{CopyMask, SigAttrs, SigDomain, SigStatus, Signature, T10Dif};
use rwctx::wc::{RecvExtra, Wc, WcOpcode, WcStatus};
use rwctx::wr::{Fence, RecvWr, SendOp, SendWr, Sge, Signal, WrId};
use t10pi::{Checks, Field, Format, Guard, PiContext, PiType, Tags};

const PORT: u16 = 4420;
const HOST_PSN: u32 = 0xff_fffe;
const TARGET_PSN: u32 = 77;
const REGION: usize = 1 << 20;
const CAP: QpCap = QpCap {
    max_send_wr: 64,
    max_recv_wr: 64,
    max_send_sge: 4,
    max_recv_sge: 4,
    integrity: Integrity::Enabled,
};

fn fresh_address() -> IpAddr {
    Ipv4Addr::new(127, fastrand::u8(1..255), fastrand::u8(..), fastrand::u8(1..255)).into()
}

/// One side's queue pair and memory.
struct Side {
    reactor: usize,
    pd: Pd,
    qpn: Qpn,
    region: Arc<Region>,
    mr: Mr,
}

impl Side {
    fn new(devices: &mut [SoftDevice], reactor: usize) -> Self {
        let device = &mut devices[reactor];
        let pd = device.alloc_pd().unwrap();
        let region = Arc::new(Region::new(REGION).unwrap());
        let access = Access { local_write: true, remote_read: true, remote_write: true };
        let mr = device.reg_mr(pd, &region, 0, REGION, access).unwrap();
        let qpn = device.create_qp(pd, &CAP).unwrap();
        Self { reactor, pd, qpn, region, mr }
    }

    fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge { addr: self.mr.addr + offset as u64, length, lkey: self.mr.lkey }
    }

    fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.mr.addr + offset as u64, rkey: self.mr.rkey }
    }

    fn receive(&self, devices: &mut [SoftDevice], id: u64, offset: usize, length: u32) {
        let sges = [self.sge(offset, length)];
        devices[self.reactor].post_recv(self.qpn, &RecvWr { wr_id: WrId(id), sges: &sges }).unwrap();
    }

    fn send(&self, devices: &mut [SoftDevice], id: u64, op: SendOp, sges: &[Sge]) {
        let wr = SendWr { wr_id: WrId(id), op, sges, signal: Signal::Signaled, fence: Fence::None };
        devices[self.reactor].post_send(self.qpn, &wr).unwrap();
    }

    fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.region.read(offset, &mut bytes);
        bytes
    }

    fn connect(&self, devices: &mut [SoftDevice], local: IpAddr, remote: IpAddr, peer: &PeerQp, rq_psn: u32) {
        let to = QpConnect {
            local,
            remote,
            dest_qpn: peer.qpn,
            sq_psn: peer.psn,
            rq_psn,
            path_mtu: peer.path_mtu,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            ack_timeout: peer.ack_timeout,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            tos: peer.tos,
            remote_access: RemoteAccess { read: true, write: true },
            route: None,
        };
        devices[self.reactor].connect_qp(self.qpn, &to).unwrap();
    }
}

/// A host with one reactor and a target with some, on addresses of their own.
struct Pair {
    host: Vec<SoftDevice>,
    target: Vec<SoftDevice>,
    host_address: IpAddr,
    target_address: IpAddr,
    host_events: Vec<CmEvent>,
    target_events: Vec<CmEvent>,
    host_done: Vec<Wc>,
    target_done: Vec<Wc>,
}

impl Pair {
    fn open(reactors: usize, gso: Gso) -> Self {
        let (host_address, target_address) = (fresh_address(), fresh_address());
        let open = |address, reactors| {
            SoftDevice::open(&SoftConfig { gso, ..SoftConfig::new(vec![address], reactors) }).unwrap()
        };
        Self {
            host: open(host_address, 1),
            target: open(target_address, reactors),
            host_address,
            target_address,
            host_events: Vec::new(),
            target_events: Vec::new(),
            host_done: Vec::new(),
            target_done: Vec::new(),
        }
    }

    /// Drives both sides until `done` says so.
    fn run(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            let now = Instant::now();
            assert!(now - begun < Duration::from_secs(20), "{what}: {:?}", self.target[0].counters());
            for device in self.host.iter_mut().chain(&mut self.target) {
                device.poll(now);
            }
            while let Some(event) = self.host[0].poll_cm_event(now) {
                self.host_events.push(event);
            }
            while let Some(event) = self.target[0].poll_cm_event(now) {
                self.target_events.push(event);
            }
            for device in &mut self.host {
                self.host_done.extend(std::iter::from_fn(|| device.poll_cq()));
            }
            for device in &mut self.target {
                self.target_done.extend(std::iter::from_fn(|| device.poll_cq()));
            }
        }
    }

    /// Waits for completions, in order, and takes them.
    fn host_completes(&mut self, count: usize) -> Vec<Wc> {
        self.run("completions of the host", |p| p.host_done.len() >= count);
        std::mem::take(&mut self.host_done)
    }

    fn target_completes(&mut self, count: usize) -> Vec<Wc> {
        self.run("completions of the target", |p| p.target_done.len() >= count);
        std::mem::take(&mut self.target_done)
    }

    /// Connects a queue pair of the host with one of the target's reactor.
    fn connect(&mut self, reactor: usize) -> (Side, Side, CmId, CmId) {
        let now = Instant::now();
        let host = Side::new(&mut self.host, 0);
        assert_eq!(self.host[0].path_mtu(self.host_address), PathMtu::Mtu4096);
        let request = ConnectParams {
            local: self.host_address,
            remote: self.target_address,
            port: PORT,
            qpn: host.qpn,
            rq_psn: HOST_PSN,
            path_mtu: PathMtu::Mtu4096,
            responder_resources: 4,
            initiator_depth: 4,
            tos: 104,
            private: b"hello",
        };
        let host_id = self.host[0].cm().unwrap().connect(now, &request).unwrap();
        self.run("request", |p| !p.target_events.is_empty());
        let Some(CmEvent::ConnectRequest { id: target_id, local, remote, port, peer, private, .. }) =
            self.target_events.pop()
        else {
            panic!("a request comes first");
        };
        assert_eq!((local, remote, port), (self.target_address, self.host_address, PORT));
        assert_eq!((peer.qpn, peer.psn, peer.tos), (host.qpn, HOST_PSN, 104));
        assert!(private.starts_with(b"hello"));
        let target = Side::new(&mut self.target, reactor);
        assert_eq!(target.qpn.0 as usize % self.target.len(), reactor);
        target.connect(&mut self.target, local, remote, &peer, TARGET_PSN);
        let answer = AcceptParams {
            qpn: target.qpn,
            rq_psn: TARGET_PSN,
            responder_resources: 4,
            initiator_depth: 4,
            private: b"welcome",
        };
        self.target[0].cm().unwrap().accept(Instant::now(), target_id, &answer).unwrap();
        self.run("reply", |p| !p.host_events.is_empty());
        let Some(CmEvent::ConnectReply { id, peer, private }) = self.host_events.pop() else {
            panic!("a reply comes next");
        };
        assert_eq!((id, peer.qpn, peer.psn), (host_id, target.qpn, TARGET_PSN));
        assert!(private.starts_with(b"welcome"));
        host.connect(&mut self.host, self.host_address, self.target_address, &peer, HOST_PSN);
        self.host[0].cm().unwrap().send_rtu(Instant::now(), host_id).unwrap();
        self.run("establishment", |p| !p.target_events.is_empty());
        assert_eq!(self.target_events.pop(), Some(CmEvent::Established { id: target_id }));
        (host, target, host_id, target_id)
    }
}

fn success(wc: &Wc) -> (u64, WcOpcode, u32) {
    assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
    (wc.wr_id.0, wc.opcode, wc.byte_len)
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| at.to_le_bytes()[0].wrapping_mul(7) ^ at.to_le_bytes()[1] ^ seed).collect()
}

/// The life of a connection as NVMe lives it.
fn connect_move_data_and_disconnect(reactors: usize, reactor: usize, gso: Gso) {
    let mut pair = Pair::open(reactors, gso);
    pair.target[0].cm().unwrap().listen(PORT).unwrap();
    let (host, target, host_id, target_id) = pair.connect(reactor);

    // The host opens a window for the data of its command.
    let window = pair.host[0].alloc_fast_reg(host.pd, 16).unwrap();
    let key = Rkey(window.rkey.0 & !0xff | (window.rkey.0.wrapping_add(1) & 0xff));
    let register = SendOp::RegMr {
        mr: window.id,
        key,
        access: Access { local_write: true, remote_read: false, remote_write: true },
    };
    host.send(&mut pair.host, 0, register, &[host.sge(65_536, 32_768)]);
    let got = pair.host_completes(1);
    assert_eq!((success(&got[0]).0, got[0].opcode), (0, WcOpcode::RegMr));

    // The command comes.
    target.receive(&mut pair.target, 1, 0, 4096);
    host.region.write(0, &pattern(64, 1));
    host.send(&mut pair.host, 2, SendOp::Send, &[host.sge(0, 64)]);
    let got = pair.target_completes(1);
    assert_eq!(success(&got[0]), (1, WcOpcode::Recv, 64));
    assert_eq!(target.bytes(0, 64), pattern(64, 1));
    let got = pair.host_completes(1);
    assert_eq!((success(&got[0]).0, got[0].opcode), (2, WcOpcode::Send));

    // Its data goes to the host, in pieces and with an odd length, and a response with an invalidation behind it.
    host.receive(&mut pair.host, 3, 4096, 4096);
    target.region.write(8192, &pattern(20_001, 2));
    let sges = [target.sge(8192, 5), target.sge(8197, 12_000), target.sge(20_197, 7996)];
    let to = RemoteAddr { rkey: key, ..host.remote(65_536) };
    target.send(&mut pair.target, 4, SendOp::Write(to), &sges);
    target.region.write(0, &pattern(16, 3));
    target.send(&mut pair.target, 5, SendOp::SendWithInv(key), &[target.sge(0, 16)]);
    let got = pair.host_completes(1);
    assert_eq!(success(&got[0]), (3, WcOpcode::Recv, 16));
    assert_eq!(got[0].extra, RecvExtra::Invalidated(key));
    assert_eq!(host.bytes(4096, 16), pattern(16, 3));
    assert_eq!(host.bytes(65_536, 20_001), pattern(20_001, 2));
    let got = pair.target_completes(2);
    assert_eq!(success(&got[0]).0, 4);
    assert_eq!(success(&got[1]).0, 5);

    // A large READ of the host's memory, and a small one behind it.
    host.region.write(131_072, &pattern(300_003, 4));
    target.send(&mut pair.target, 6, SendOp::Read(host.remote(131_072)), &[target.sge(262_144, 300_003)]);
    target.send(&mut pair.target, 7, SendOp::Read(host.remote(131_072)), &[target.sge(0, 10)]);
    let got = pair.target_completes(2);
    assert_eq!(success(&got[0]), (6, WcOpcode::RdmaRead, 300_003));
    assert_eq!(success(&got[1]), (7, WcOpcode::RdmaRead, 10));
    assert_eq!(target.bytes(262_144, 300_003), pattern(300_003, 4));
    assert_eq!(target.bytes(0, 10), pattern(10, 4));

    // The host ends it.
    pair.host[0].cm().unwrap().disconnect(Instant::now(), host_id).unwrap();
    pair.run("disconnection", |p| {
        p.host_events.contains(&CmEvent::Disconnected { id: host_id })
            && p.target_events.contains(&CmEvent::Disconnected { id: target_id })
    });
    pair.host[0].error_qp(host.qpn).unwrap();
    pair.target[reactor].error_qp(target.qpn).unwrap();
    assert_eq!(pair.host[0].qp_state(host.qpn), Some(QpState::Error));
    pair.run("release", |p| {
        p.host_events.contains(&CmEvent::Released { id: host_id })
            && p.target_events.contains(&CmEvent::Released { id: target_id })
    });
    pair.host[0].destroy_qp(host.qpn).unwrap();
    pair.target[reactor].destroy_qp(target.qpn).unwrap();
    pair.host[0].dereg_mr(host.mr.id).unwrap();
    pair.target[reactor].dereg_mr(target.mr.id).unwrap();
    for counters in pair.host.iter().chain(&pair.target).map(SoftDevice::counters) {
        assert_eq!((counters.rx.drops, counters.rx.malformed, counters.gsi_dropped), (0, 0, 0));
        assert_eq!((counters.tx.errors, counters.tx.no_source), (0, 0));
        assert_eq!(counters.endpoint.drop_icrc, 0);
        assert_eq!(counters.endpoint.drop_qpn, 0, "datagrams are steered to the queue pair's reactor");
    }
}

#[test]
fn a_connection_lives_over_real_sockets() {
    connect_move_data_and_disconnect(1, 0, Gso::On);
}

#[test]
fn a_connection_lives_without_segmentation() {
    connect_move_data_and_disconnect(1, 0, Gso::Off);
}

#[test]
fn a_connection_of_another_reactor_than_the_connection_managers_lives() {
    connect_move_data_and_disconnect(2, 1, Gso::On);
    connect_move_data_and_disconnect(3, 2, Gso::On);
}

/// Blocks of 512 bytes with tuples on the wire alone: a WRITE makes them, a READ checks them and leaves them out.
#[test]
fn a_context_with_a_signature_inserts_on_the_way_out_and_checks_on_the_way_in() {
    const BLOCKS: usize = 8;
    const DATA: u32 = 4096;
    let mut pair = Pair::open(1, Gso::On);
    pair.target[0].cm().unwrap().listen(PORT).unwrap();
    let (host, target, ..) = pair.connect(0);
    let format = Format::new(Guard::Crc16, 512, 8).unwrap();
    let tags = Tags { app_tag: 0x1234, app_tag_mask: 0xffff, ref_tag: 77, ..Tags::default() };
    let attrs = SigAttrs {
        mem: SigDomain::None,
        wire: SigDomain::T10Dif(T10Dif::of_type(format, PiType::Type1, tags)),
        check_mask: Checks::ALL,
        copy_mask: CopyMask::Equal,
    };
    let mut qp = RwQp::init_mrs(&mut pair.target[0], target.pd, &CAP, 2).unwrap();
    let mut ctx = RwCtx::new();
    let data = pattern(DATA as usize, 5);
    let mut stream = vec![0; BLOCKS * 520];
    let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, tags).unwrap();
    pi.insert(&[&data], &mut [&mut stream]);

    let mut transfer = |pair: &mut Pair, at: usize, direction| {
        let signature = Signature::new(&attrs, direction).unwrap();
        let device = &mut pair.target[0];
        let wqes = ctx
            .signature_init(&qp, device, &[target.sge(at, DATA)], &[], &signature, host.remote(65_536))
            .unwrap();
        ctx.post(device, target.qpn, Completion::Own(WrId(9))).unwrap();
        let got = pair.target_completes(1);
        assert_eq!(success(&got[0]).0, 9);
        ctx.complete();
        let status = ctx.sig_status(&mut pair.target[0]).unwrap();
        ctx.destroy();
        (wqes, status)
    };
    target.region.write(8192, &data);
    assert_eq!(transfer(&mut pair, 8192, Direction::ToHost), (2, SigStatus::Clean));
    assert_eq!(host.bytes(65_536, stream.len()), stream, "tuples were made on the way");
    // What was used is invalidated before it is used again.
    assert_eq!(transfer(&mut pair, 65_536, Direction::FromHost), (3, SigStatus::Clean));
    assert_eq!(target.bytes(65_536, data.len()), data, "tuples were left out");
    // A bit of block 5 is damaged in the host's memory.
    host.region.write(65_536 + 5 * 520 + 100, &[stream[5 * 520 + 100] ^ 1]);
    let (_, status) = transfer(&mut pair, 131_072, Direction::FromHost);
    let mismatch = status.mismatch(&format).unwrap_err();
    assert_eq!((mismatch.block, mismatch.field), (5, Field::Guard));
    assert_eq!(target.bytes(131_072, 5 * 512), data[..5 * 512], "the blocks before it came");
    assert_eq!((qp.sig_mrs().used(), qp.sig_mrs().free()), (0, 2));
    qp.cleanup_mrs(&mut pair.target[0]);
}

#[test]
fn a_device_has_the_connection_manager_on_reactor_0_only_and_wants_nothing_when_idle() {
    let mut devices = SoftDevice::open(&SoftConfig::new(vec![fresh_address()], 2)).unwrap();
    assert!(devices[0].cm().is_some());
    assert!(devices[1].cm().is_none());
    for device in &mut devices {
        device.poll(Instant::now());
        assert_eq!(device.next_timeout(), None);
        assert_eq!(device.rx_fds().count(), 1);
        assert_eq!(device.tx_fds().count(), 0);
        assert!(device.rcvbuf() > 64 << 10);
    }
}
