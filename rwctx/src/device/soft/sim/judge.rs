//! tshark as a judge: it reads in our packets what we meant, and has nothing to complain of. It verifies no ICRC; the
//! recorded traffic of Linux does.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::cm::{AcceptParams, CmConfig, CmEvent, CmId, ConnectParams};
use super::super::fault::{Faults, Link};
use super::super::gsi::Gsi;
use super::super::pcap::PcapWriter;
use super::super::wire::cm::{CmMessage, SidrReq};
use super::super::wire::{Aeth, Deth, Ext, Ieth, ImmDt, Opcode, Packet, RejReason, Reth};
use super::cases::window;
use super::pair::{LATENCY, MTU, Pair, usual};
use super::{Sent, SideId};
use crate::device::{PathMtu, Qpn};
use crate::wr::SendOp;

/// What tshark is asked for: the fields of each packet, then what it complains of.
const FIELDS: [&str; 17] = [
    "infiniband.bth.opcode",
    "infiniband.bth.padcnt",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
    "infiniband.bth.a",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.immdt",
    "infiniband.ieth",
    "infiniband.deth.srcqp",
    "infiniband.mad.attributeid",
    "_ws.malformed",
    "_ws.expert.message",
];

/// The same fields of a packet, as we read it.
fn ours(sent: &Sent) -> Vec<String> {
    let packet = Packet::parse(&sent.bytes).expect("we send packets");
    let bth = packet.bth;
    let fields = RefCell::new(vec![String::new(); FIELDS.len()]);
    let put = |name: &str, value: String| {
        let at = FIELDS.iter().position(|field| field.ends_with(name)).expect("a field of the list");
        fields.borrow_mut()[at] = value;
    };
    let set = |name: &str, value: u64| put(name, value.to_string());
    let bytes = |name: &str, value: [u8; 4]| put(name, format!("{:08x}", u32::from_be_bytes(value)));
    set("bth.opcode", u8::from(bth.opcode).into());
    set("bth.padcnt", bth.pad_count.into());
    set("bth.p_key", bth.pkey.into());
    set("bth.destqp", bth.dest_qpn.0.into());
    set("bth.psn", bth.psn.into());
    set("bth.a", bth.ack_req.into());
    let reth = |Reth { va, rkey, dma_len }: Reth| {
        set("reth.va", va);
        set("reth.r_key", rkey.0.into());
        set("reth.dmalen", dma_len.into());
    };
    match packet.ext {
        Ext::None => {}
        Ext::Imm(ImmDt(data)) => bytes("immdt", data),
        Ext::Reth(header) => reth(header),
        Ext::RethImm(header, ImmDt(data)) => {
            reth(header);
            bytes("immdt", data);
        }
        Ext::Aeth(Aeth { syndrome, msn }) => {
            set("aeth.syndrome", u8::from(syndrome).into());
            set("aeth.msn", msn.into());
        }
        Ext::Ieth(Ieth(key)) => bytes("ieth", key.0.to_be_bytes()),
        Ext::Deth(Deth { src_qpn, .. }) => {
            set("deth.srcqp", src_qpn.0.into());
            set("mad.attributeid", u16::from_be_bytes([packet.payload[16], packet.payload[17]]).into());
        }
        other => panic!("we don't send {other:?}"),
    }
    fields.into_inner()
}

/// The fields of each packet of a capture, as tshark reads them; numbers in decimal.
fn tsharks(capture: &[u8]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark")
        .args(["-n", "-r", "-", "-T", "fields", "-E", "occurrence=f"])
        // Its default takes a wrong checksum for right; a zero one over IPv6 is what a capture of ours has.
        .args(["-o", "ip.check_checksum:TRUE", "-o", "udp.ignore_ipv6_zero_checksum:TRUE"])
        // It guesses what a payload is, and takes these for calls that are cut short.
        .args(["--disable-protocol", "rpcordma"])
        .args(FIELDS.iter().flat_map(|field| ["-e", field]))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("tshark doesn't run ({error}); `./test.sh packages` installs it"));
    let mut input = tshark.stdin.take().expect("it is piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(capture).expect("tshark reads its input"));
        tshark.wait_with_output().expect("tshark ends")
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("tshark writes UTF-8");
    let value = |field: &str| match field.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).expect("a number").to_string(),
        None => field.to_owned(),
    };
    text.lines().map(|line| line.split('\t').map(value).collect()).collect()
}

/// Lets tshark read what was sent, and compares; returns the opcodes, with attributes of management datagrams.
fn judge(sent: &[Sent]) -> BTreeSet<(u8, String)> {
    let mut capture = PcapWriter::new(Vec::new()).unwrap();
    for (id, Sent { time, meta, bytes }) in (0..).zip(sent) {
        capture.write(*time, meta, 0, id, bytes).unwrap();
    }
    let read = tsharks(&capture.finish().unwrap());
    assert_eq!(read.len(), sent.len(), "tshark reads each packet");
    let mut kinds = BTreeSet::new();
    for (number, (theirs, sent)) in (1..).zip(read.iter().zip(sent)) {
        let ours = ours(sent);
        assert_eq!(*theirs, ours, "packet {number}, fields {FIELDS:?}");
        kinds.insert((sent.bytes[0], ours[14].clone()));
    }
    kinds
}

#[test]
fn tshark_reads_reliable_connections_as_we_meant_them() {
    let mut pair = Pair::new();
    let keys = [window(&mut pair), window(&mut pair)];
    pair.world.record();
    let room = pair.sge(1, 0, 3 * MTU);
    let long = pair.sge(0, 8192, 3 * MTU - 1);
    let short = pair.sge(0, 8192, 5);
    let to = pair.remote(1, 8192);
    let mut wr = 0;
    for sge in [long, short] {
        for op in [
            SendOp::Send,
            SendOp::SendWithImm([1, 2, 3, 4]),
            SendOp::Write(to),
            SendOp::WriteWithImm(to, [5, 6, 7, 8]),
            SendOp::Read(to),
        ] {
            wr += 1;
            pair.receive(1, 100 + wr, &[room]);
            pair.post(0, wr, op, &[sge]);
        }
        pair.run(Duration::from_millis(5));
    }
    pair.receive(1, 200, &[room]);
    pair.post(0, 50, SendOp::SendWithInv(keys[0]), &[short]);
    pair.receive(1, 201, &[room]);
    pair.post(0, 51, SendOp::SendWithInv(keys[1]), &[long]);
    pair.run(Duration::from_millis(5));
    // A gap, a receiver that is not ready, and a request that is refused for good.
    pair.world.links[0].set_faults(Faults { lose: 1000, ..Faults::default() });
    pair.post(0, 60, SendOp::Write(to), &[short]);
    pair.world.transmit();
    pair.world.links[0].set_faults(Faults { latency: LATENCY, ..Faults::default() });
    pair.post(0, 61, SendOp::Write(to), &[short]);
    pair.run(Duration::from_millis(100));
    pair.qpns = pair.connect([usual(0), usual(1)]);
    pair.post(0, 70, SendOp::Send, &[short]);
    pair.run(Duration::from_millis(5));
    pair.post(0, 71, SendOp::Write(pair.remote_by(1, 0, keys[0])), &[short]);
    pair.run(Duration::from_millis(5));
    pair.receive(1, 300, &[room]);
    pair.run(Duration::from_millis(100));
    let counters = pair.counters(1);
    let naks = [counters.tx_sequence_naks, counters.tx_rnr_naks, counters.tx_fatal_naks];
    assert!(naks.iter().all(|&naks| naks > 0), "each kind of NAK was sent: {naks:?}");
    let seen: Vec<Opcode> =
        judge(&pair.world.recorded()).into_iter().map(|(opcode, _)| Opcode::from(opcode)).collect();
    // All that an endpoint sends, in the order of their numbers.
    assert_eq!(
        seen,
        [
            Opcode::SendFirst,
            Opcode::SendMiddle,
            Opcode::SendLast,
            Opcode::SendLastWithImm,
            Opcode::SendOnly,
            Opcode::SendOnlyWithImm,
            Opcode::WriteFirst,
            Opcode::WriteMiddle,
            Opcode::WriteLast,
            Opcode::WriteLastWithImm,
            Opcode::WriteOnly,
            Opcode::WriteOnlyWithImm,
            Opcode::ReadRequest,
            Opcode::ReadResponseFirst,
            Opcode::ReadResponseMiddle,
            Opcode::ReadResponseLast,
            Opcode::ReadResponseOnly,
            Opcode::Acknowledge,
            Opcode::SendLastWithInvalidate,
            Opcode::SendOnlyWithInvalidate,
        ]
    );
}

const PORT: u16 = 4420;

/// Queue pair 1 of two machines, and the network between them.
struct Managers {
    start: Instant,
    now: Instant,
    ends: [Gsi; 2],
    links: [Link; 2],
    addresses: [IpAddr; 2],
    sent: Vec<Sent>,
}

impl Managers {
    fn new(addresses: [IpAddr; 2]) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a base for the virtual clock")]
        let start = Instant::now();
        let faults = Faults { latency: LATENCY, ..Faults::default() };
        let [a, b] = addresses;
        let mut ends = [1, 2].map(|guid| Gsi::new(CmConfig::new(guid, guid, PathMtu::Mtu4096), None));
        ends[1].cm().listen(PORT).unwrap();
        let links = [Link::new(a, b, faults, 1), Link::new(b, a, faults, 2)];
        Self { start, now: start, ends, links, addresses, sent: Vec::new() }
    }

    /// Carries datagrams both ways until none is left.
    fn exchange(&mut self) {
        loop {
            for side in 0..2 {
                let (time, sent) = (self.now - self.start, &mut self.sent);
                let see =
                    |meta: &_, bytes: &[u8]| sent.push(Sent { time, meta: *meta, bytes: bytes.to_vec() });
                self.ends[side].poll_transmit(self.now, &mut self.links[side].at(self.now, see)).unwrap();
            }
            let Some(arrival) = self.links.iter().filter_map(Link::next_arrival).min() else { return };
            self.now = arrival;
            for side in 0..2 {
                while let Some((meta, datagram)) = self.links[side].receive(self.now) {
                    self.ends[1 - side].handle_datagram(self.now, &meta, &datagram);
                }
            }
        }
    }

    fn connect(&mut self, qpn: u32, port: u16) -> CmId {
        let [local, remote] = self.addresses;
        let to = ConnectParams {
            local,
            remote,
            port,
            qpn: Qpn(qpn),
            rq_psn: 0xABC_DEF,
            path_mtu: PathMtu::Mtu1024,
            responder_resources: 16,
            initiator_depth: 1,
            tos: 0,
            private: b"hello",
        };
        let id = self.ends[0].cm().connect(self.now, &to).unwrap();
        self.exchange();
        id
    }

    fn event(&mut self, side: SideId) -> CmEvent {
        self.ends[side].cm().poll_event().expect("something happened")
    }
}

#[test]
fn tshark_reads_the_connection_manager_as_we_meant_it() {
    let addresses: [[&str; 2]; 2] = [["10.77.0.1", "10.77.0.2"], ["fd77::1", "fd77::2"]];
    for addresses in addresses.map(|both| both.map(|address| address.parse().unwrap())) {
        let mut net = Managers::new(addresses);
        let active = net.connect(0x100, PORT);
        let CmEvent::ConnectRequest { id: passive, .. } = net.event(1) else { panic!("a request") };
        // Asked again before anybody decided: more time is wanted.
        net.now = net.ends[0].next_timeout().unwrap();
        let now = net.now;
        net.ends[0].handle_timeout(now);
        net.exchange();
        let now = net.now;
        let with = AcceptParams {
            qpn: Qpn(0x200),
            rq_psn: 0x123_456,
            responder_resources: 1,
            initiator_depth: 16,
            private: b"welcome",
        };
        net.ends[1].cm().accept(now, passive, &with).unwrap();
        net.exchange();
        let now = net.now;
        net.ends[0].cm().send_rtu(now, active).unwrap();
        net.exchange();
        let now = net.now;
        net.ends[0].cm().disconnect(now, active).unwrap();
        net.exchange();
        // One that its user refuses, one to nobody, and another kind of service.
        net.connect(0x101, PORT);
        let refused = std::iter::from_fn(|| net.ends[1].cm().poll_event())
            .find_map(|event| match event {
                CmEvent::ConnectRequest { id, .. } => Some(id),
                _ => None,
            })
            .unwrap();
        let now = net.now;
        net.ends[1].cm().reject(now, refused, RejReason::Consumer, b"no").unwrap();
        net.exchange();
        net.connect(0x102, PORT + 1);
        let [a, b] = addresses;
        let now = net.now;
        let datagram = CmMessage::SidrReq(SidrReq { request_id: 7, service_id: 8 }).emit(9);
        net.ends[1].cm().handle_mad(now, a, b, &datagram);
        net.exchange();
        let kinds: BTreeSet<String> = judge(&net.sent).into_iter().map(|(_, attribute)| attribute).collect();
        let expected = [
            0x10, // REQ
            0x11, // MRA
            0x12, // REJ
            0x13, // REP
            0x14, // RTU
            0x15, // DREQ
            0x16, // DREP
            0x18, // SIDR_REP
        ];
        assert_eq!(kinds, expected.map(|attribute: u16| attribute.to_string()).into());
    }
}
