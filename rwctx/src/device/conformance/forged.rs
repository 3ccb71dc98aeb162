//! A peer that is no device: it answers READs with whatever packets it likes. For the soft device, which reads packets itself.
#![expect(clippy::disallowed_methods, reason = "drives a device in real time")]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bench::{OWN, PAGE};
use super::link::ALL;
use super::soft::{fresh_address, open};
use crate::ctx::RwCtx;
use crate::device::soft::device::SoftDevice;
use crate::device::soft::endpoint::IcrcCheck;
use crate::device::soft::wire::{Aeth, Bth, Ext, HEADER_MAX, Header, Opcode, Packet, Syndrome, UDP_PORT};
use crate::device::{Device, DeviceCaps, PathMtu, QpCap, QpConnect, QpState, Qpn, RemoteAccess};
use crate::mem::{Mr, Region};
use crate::plan::{Direction, Integrity};
use crate::qp::RwQp;
use crate::remote::{RemoteAddr, Rkey};
use crate::wc::WcStatus;
use crate::wr::Sge;

use WcStatus::{BadRespErr, RetryExcErr, Success};

const MTU: usize = 1024;
const PACKETS: usize = PAGE / MTU;
/// What our memory holds where nothing was written.
const FRESH: u8 = 0xEE;
const ACK: Ext = Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 1 });
const OPCODES: [Opcode; PACKETS] = [
    Opcode::ReadResponseFirst,
    Opcode::ReadResponseMiddle,
    Opcode::ReadResponseMiddle,
    Opcode::ReadResponseLast,
];

/// A device with a READ of a page under way, whose sink is the middle one of three pages.
struct Forger {
    device: SoftDevice,
    address: IpAddr,
    socket: UdpSocket,
    qpn: Qpn,
    qp: RwQp,
    region: Arc<Region>,
    mr: Mr,
    ctx: RwCtx,
    /// PSN of the READ.
    psn: u32,
}

impl Forger {
    fn new(caps: DeviceCaps) -> Self {
        let (address, peer) = (fresh_address(), fresh_address());
        let mut device = open(address, caps, IcrcCheck::Off);
        let socket = UdpSocket::bind(SocketAddr::new(peer, UDP_PORT)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let pd = device.alloc_pd().unwrap();
        let region = Arc::new(Region::new(3 * PAGE).unwrap());
        region.write(0, &[FRESH; 3 * PAGE]);
        let mr = device.reg_mr(pd, &region, 0, 3 * PAGE, ALL).unwrap();
        let cap = QpCap {
            max_send_wr: 16,
            max_recv_wr: 1,
            max_send_sge: caps.max_send_sge,
            max_recv_sge: 1,
            integrity: Integrity::Off,
        };
        let qpn = device.create_qp(pd, &cap).unwrap();
        let to = QpConnect {
            local: address,
            remote: peer,
            dest_qpn: Qpn(0x77),
            sq_psn: 0xFF_FFFE,
            rq_psn: 0,
            path_mtu: PathMtu::Mtu1024,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            ack_timeout: Duration::from_millis(17),
            retry_cnt: 2,
            rnr_retry: 0,
            min_rnr_timer: 12,
            tos: 0,
            remote_access: RemoteAccess::default(),
            route: None,
        };
        device.connect_qp(qpn, &to).unwrap();
        let qp = RwQp::init_mrs(&mut device, pd, &cap, 1).unwrap();
        let mut ctx = RwCtx::new();
        let list = [Sge { addr: mr.addr + PAGE as u64, length: crate::mem::PAGE, lkey: mr.lkey }];
        let remote = RemoteAddr { addr: 0x1000, rkey: Rkey(0x4242) };
        ctx.init(&qp, &list, 0, remote, Direction::FromHost).unwrap();
        ctx.post(&mut device, qpn, OWN).unwrap();
        let mut forger = Self { device, address, socket, qpn, qp, region, mr, ctx, psn: 0 };
        forger.psn = forger.asked();
        forger
    }

    /// Waits until the device asks, and returns the PSN of its request.
    fn asked(&mut self) -> u32 {
        let begun = Instant::now();
        loop {
            self.poll();
            let mut datagram = [0; 4200];
            if let Ok((length, _)) = self.socket.recv_from(&mut datagram) {
                let packet = Packet::parse(&datagram[..length]).expect("a device sends packets");
                assert_eq!(packet.bth.opcode, Opcode::ReadRequest);
                return packet.bth.psn;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no READ was asked for");
        }
    }

    fn poll(&mut self) {
        let _ = self.device.poll(Instant::now());
    }

    /// Sends an answer, `ahead` of the request's PSN, and lets the device see it.
    fn answer(&mut self, opcode: Opcode, ahead: usize, payload: &[u8]) {
        let ahead = u32::try_from(ahead).unwrap();
        let bth = Bth::new(opcode, self.qpn, self.psn.wrapping_add(ahead), payload.len());
        let ext = if opcode == Opcode::ReadResponseMiddle { Ext::None } else { ACK };
        let mut header = [0; HEADER_MAX];
        let length = Header { bth, ext }.emit(&mut header);
        let mut datagram = [&header[..length], payload].concat();
        datagram.resize(datagram.len() + usize::from(bth.pad_count) + 4, 0);
        let before = self.device.counters().rx.datagrams;
        self.socket.send_to(&datagram, SocketAddr::new(self.address, UDP_PORT)).unwrap();
        let begun = Instant::now();
        while self.device.counters().rx.datagrams == before {
            self.poll();
            assert!(begun.elapsed() < Duration::from_secs(20), "loopback loses nothing");
        }
    }

    fn completed(&mut self) -> Option<WcStatus> {
        self.poll();
        self.device.poll_cq().map(|wc| wc.status)
    }

    fn completes(&mut self) -> WcStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.completed() {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no completion");
        }
    }

    /// Our memory is this, and the pages before and behind it are as they were.
    fn holds(&self, page: &[u8]) {
        let mut bytes = vec![0; 3 * PAGE];
        self.region.read(0, &mut bytes);
        assert!(bytes[..PAGE].iter().chain(&bytes[2 * PAGE..]).all(|&byte| byte == FRESH));
        assert!(bytes[PAGE..2 * PAGE] == *page);
    }

    /// The context is done with; nothing is left of it.
    fn end(mut self, state: QpState) {
        self.ctx.complete();
        self.ctx.destroy();
        assert_eq!(self.qp.rdma_mrs().used(), 0);
        assert_eq!(self.device.qp_state(self.qpn), Some(state));
        self.device.destroy_qp(self.qpn).unwrap();
        self.qp.cleanup_mrs(&mut self.device);
        self.device.dereg_mr(self.mr.id).unwrap();
        assert_eq!(self.device.counters().memory_regions, 0);
    }
}

/// The right answer's bytes.
fn page(byte: u8) -> Vec<u8> {
    (0..PAGE).map(|at| byte ^ at.to_le_bytes()[0]).collect()
}

pub(crate) fn a_read_that_is_answered_short_fails(make: impl Fn() -> DeviceCaps) {
    let right = page(1);
    for (packet, length) in [(0, MTU - 4), (1, 0), (1, MTU - 1), (3, MTU - 4), (3, MTU + 4)] {
        let mut forger = Forger::new(make());
        for before in 0..packet {
            forger.answer(OPCODES[before], before, &right[before * MTU..][..MTU]);
        }
        forger.answer(OPCODES[packet], packet, &vec![0; length]);
        assert_eq!(forger.completes(), BadRespErr, "packet {packet} of {length} bytes");
        assert_eq!(forger.completed(), None, "once");
        let mut held = right[..packet * MTU].to_vec();
        held.resize(PAGE, FRESH);
        forger.holds(&held);
        forger.end(QpState::Error);
    }
}

pub(crate) fn an_answer_that_comes_twice_counts_once(make: impl Fn() -> DeviceCaps) {
    let (right, other) = (page(2), page(3));
    let mut forger = Forger::new(make());
    for (packet, opcode) in OPCODES.into_iter().enumerate() {
        let range = packet * MTU..(packet + 1) * MTU;
        forger.answer(opcode, packet, &right[range.clone()]);
        forger.answer(opcode, packet, &other[range]);
    }
    assert_eq!(forger.completes(), Success);
    assert_eq!(forger.completed(), None, "once");
    forger.holds(&right);
    forger.end(QpState::Rts);
}

pub(crate) fn answers_to_nothing_are_no_answers(make: impl Fn() -> DeviceCaps) {
    let (right, other) = (page(4), page(5));
    let mut forger = Forger::new(make());
    // Of other requests: behind this one, before it, far away.
    for ahead in [PACKETS, PACKETS + 100, 0xFF_FFFF, 0x80_0000] {
        for opcode in [Opcode::ReadResponseOnly, Opcode::ReadResponseFirst, Opcode::ReadResponseLast] {
            forger.answer(opcode, ahead, &other[..MTU]);
        }
    }
    assert_eq!(forger.completed(), None);
    forger.holds(&[FRESH; PAGE]);
    for packet in 0..PACKETS {
        forger.answer(OPCODES[packet], packet, &right[packet * MTU..][..MTU]);
    }
    assert_eq!(forger.completes(), Success);
    forger.holds(&right);
    forger.end(QpState::Rts);
}

pub(crate) fn an_answer_that_comes_too_late_reaches_nobody(make: impl Fn() -> DeviceCaps) {
    let right = page(6);
    let mut forger = Forger::new(make());
    forger.answer(OPCODES[0], 0, &right[..MTU]);
    forger.device.error_qp(forger.qpn).unwrap();
    assert_eq!(forger.completes(), WcStatus::WrFlushErr);
    let mut held = right[..MTU].to_vec();
    held.resize(PAGE, FRESH);
    for packet in 1..PACKETS {
        forger.answer(OPCODES[packet], packet, &right[packet * MTU..][..MTU]);
    }
    assert_eq!(forger.completed(), None);
    forger.holds(&held);
    forger.end(QpState::Error);
}

pub(crate) fn a_peer_that_falls_silent_is_given_up(make: impl Fn() -> DeviceCaps) {
    let right = page(7);
    let mut forger = Forger::new(make());
    forger.answer(OPCODES[0], 0, &right[..MTU]);
    assert_eq!(forger.completes(), RetryExcErr);
    let mut held = right[..MTU].to_vec();
    held.resize(PAGE, FRESH);
    forger.holds(&held);
    forger.end(QpState::Error);
}
