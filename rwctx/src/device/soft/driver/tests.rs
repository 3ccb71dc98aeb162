//! The driver over loopback: every test has addresses of its own in 127.0.0.0/8, so that tests can run side by side.
#![allow(unsafe_code, reason = "socket options and credentials that no safe wrapper offers; memory to send")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::*;
use crate::device::soft::{PacketSink, SinkFull, TxMeta};
use crate::mem::{Iov, Region};

/// An address that no other test uses.
fn fresh_address() -> IpAddr {
    Ipv4Addr::new(127, fastrand::u8(1..255), fastrand::u8(..), fastrand::u8(1..255)).into()
}

fn open(config: &DriverConfig) -> Vec<Driver> {
    Driver::open(config).expect("loopback addresses are local and free")
}

fn one(address: IpAddr) -> Driver {
    open(&DriverConfig::new(vec![address], 1)).remove(0)
}

/// A BTH with the destination queue pair and a tag in its PSN.
fn bth(qpn: u32, tag: u32) -> [u8; 12] {
    let mut header = [0; 12];
    header[0] = 0x04;
    header[2..4].copy_from_slice(&[0xff, 0xff]);
    header[4..8].copy_from_slice(&qpn.to_be_bytes());
    header[8..12].copy_from_slice(&tag.to_be_bytes());
    header
}

/// A received datagram: addressing, queue pair, tag, bytes after the BTH.
#[derive(Debug)]
struct Got {
    meta: RxMeta,
    qpn: u32,
    tag: u32,
    payload: Vec<u8>,
    icrc: [u8; 4],
    whole: Vec<u8>,
}

/// Receives until `count` datagrams have come.
fn collect(driver: &mut Driver, count: usize) -> Vec<Got> {
    let mut all = Vec::new();
    while all.len() < count {
        {
            let mut fds: Vec<_> = driver.rx_fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            let ready = poll(&mut fds, PollTimeout::from(10_000u16)).unwrap();
            assert!(ready > 0, "{} of {count} datagrams came", all.len());
        }
        driver.receive(|meta, bytes| {
            let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
            all.push(Got {
                meta: *meta,
                qpn: word(4),
                tag: word(8),
                payload: bytes[12..bytes.len() - 4].to_vec(),
                icrc: bytes[bytes.len() - 4..].try_into().unwrap(),
                whole: bytes[..bytes.len() - 4].to_vec(),
            });
        });
    }
    all
}

/// Memory with a pattern, and packets of it.
struct Payload {
    region: Arc<Region>,
}

impl Payload {
    fn new() -> Self {
        let region = Arc::new(Region::new(1 << 20).unwrap());
        let bytes: Vec<u8> = (0..1usize << 20).map(|i| (i ^ (i >> 8) ^ (i >> 16)).to_le_bytes()[0]).collect();
        region.write(0, &bytes);
        Self { region }
    }

    fn push(
        &self,
        driver: &mut Driver,
        to: &TxMeta,
        qpn: u32,
        tag: u32,
        length: usize,
    ) -> Result<(), SinkFull> {
        let offset = usize::try_from(tag).unwrap() * 4096 % (1 << 19);
        // Two pieces, so that gathering is exercised.
        let cut = length / 3;
        // SAFETY: nobody writes the region after `new`.
        let bytes = unsafe { self.region.bytes(offset, length) };
        let pieces = [Iov::from_slice(&bytes[..cut]), Iov::from_slice(&bytes[cut..])];
        // Of every other packet the checksum is said, which counts for payloads of its size alone.
        if tag.is_multiple_of(2) {
            driver.tx().know_payload(!t10pi::Kernel::active().crc32(u32::MAX, bytes));
        }
        driver.tx().push(to, &bth(qpn, tag), &pieces)
    }

    fn expected(&self, tag: u32, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.region.read(usize::try_from(tag).unwrap() * 4096 % (1 << 19), &mut bytes);
        bytes.resize(length.next_multiple_of(4), 0);
        bytes
    }
}

/// The ICRC that a packet must have, bit by bit, for the IPv4 Identification `id`.
fn slow_icrc(got: &Got, id: u16) -> [u8; 4] {
    let length = u16::try_from(got.whole.len() + 4 + 8).unwrap();
    let mut input = vec![0xff; 8];
    match (got.meta.src, got.meta.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            input.extend([0x45, 0xff]);
            input.extend((length + 20).to_be_bytes());
            input.extend(id.to_be_bytes());
            input.extend([0x40, 0, 0xff, 17, 0xff, 0xff]);
            input.extend(src.octets());
            input.extend(dst.octets());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            input.extend([0x6f, 0xff, 0xff, 0xff]);
            input.extend(length.to_be_bytes());
            input.extend([17, 0xff]);
            input.extend(src.octets());
            input.extend(dst.octets());
        }
        _ => panic!("mixed families"),
    }
    input.extend(got.meta.src_port.to_be_bytes());
    input.extend(ROCE_PORT.to_be_bytes());
    input.extend(length.to_be_bytes());
    input.extend([0xff, 0xff]);
    let bth = input.len();
    input.extend(&got.whole);
    input[bth + 4] = 0xff;
    let mut crc = u32::MAX;
    for byte in input {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    (!crc).to_le_bytes()
}

/// Sends packets of these lengths and checks what arrives: order, bytes, and ICRCs for the positions given.
fn exchange(from: &mut Driver, to: &mut Driver, meta: &TxMeta, lengths: &[usize], positions: &[u16]) {
    let payload = Payload::new();
    for (tag, &length) in (0..).zip(lengths) {
        payload.push(from, meta, 0x1234, tag, length).unwrap();
    }
    from.flush();
    assert!(!from.has_unsent());
    let got = collect(to, lengths.len());
    assert_eq!(got.len(), lengths.len());
    for ((tag, got), (&length, &position)) in (0..).zip(&got).zip(lengths.iter().zip(positions)) {
        assert_eq!((got.meta.src, got.meta.dst), (meta.src, meta.dst));
        assert!(got.meta.src_port >= 0xc000);
        assert_eq!((got.qpn, got.tag), (0x1234, tag), "order is kept");
        assert_eq!(got.payload, payload.expected(tag, length), "packet {tag}");
        assert_eq!(got.icrc, slow_icrc(got, position), "ICRC of packet {tag}");
    }
}

fn pair() -> (Driver, Driver, TxMeta) {
    let (src, dst) = (fresh_address(), fresh_address());
    (one(src), one(dst), TxMeta { src, dst, tos: 0, peer_port: 0 })
}

#[test]
fn packets_of_mixed_sizes_arrive_in_order_with_the_icrc_of_their_position() {
    let (mut a, mut b, meta) = pair();
    let lengths = [4096, 4096, 4096, 20, 4096, 20, 20, 20, 0, 5, 6, 7, 1024, 1025, 257, 256, 255];
    // A message ends after a packet shorter than its first, and before one that is longer; pads count.
    let positions = [0, 1, 2, 3, 0, 1, 0, 1, 2, 0, 1, 2, 0, 0, 1, 0, 1];
    exchange(&mut a, &mut b, &meta, &lengths, &positions);
    assert!(a.tx_counters().messages < lengths.len() as u64);
    assert_eq!(a.tx_counters().packets, lengths.len() as u64);
    assert_eq!(a.tx_counters().calls, 1);
    assert_eq!(b.rx_counters().datagrams, lengths.len() as u64);
}

#[test]
fn a_message_holds_at_most_64_packets_and_65507_bytes() {
    let (mut a, mut b, meta) = pair();
    let positions: Vec<u16> = (0..130).map(|i| i % 64).collect();
    exchange(&mut a, &mut b, &meta, &[16; 130], &positions);
    assert_eq!(a.tx_counters().messages, 3);
    let positions: Vec<u16> = (0..40).map(|i| i % 15).collect();
    exchange(&mut a, &mut b, &meta, &[4096; 40], &positions);
    assert_eq!(a.tx_counters().messages, 6);
}

#[test]
fn without_segmentation_every_packet_is_position_0() {
    for checksum in [Checksum::Full, Checksum::Zero] {
        let (src, dst) = (fresh_address(), fresh_address());
        let gso = if checksum == Checksum::Full { Gso::Off } else { Gso::On };
        let config = DriverConfig { gso, checksum, ..DriverConfig::new(vec![src], 1) };
        let (mut a, mut b) = (open(&config).remove(0), one(dst));
        exchange(
            &mut a,
            &mut b,
            &TxMeta { src, dst, tos: 0, peer_port: 0 },
            &[4096, 4096, 16, 16, 5],
            &[0; 5],
        );
        assert_eq!(a.tx_counters().messages, 5);
    }
}

#[test]
fn a_destination_that_refuses_segments_gets_single_datagrams() {
    let (mut a, mut b, meta) = pair();
    a.tx().refuse_segments(meta.dst);
    exchange(&mut a, &mut b, &meta, &[4096, 4096, 16], &[0; 3]);
    assert_eq!(a.tx_counters().messages, 3);
}

#[test]
fn what_the_kernel_refused_to_segment_is_sent_again_singly_with_fresh_icrcs() {
    let (mut a, mut b, meta) = pair();
    // A socket without checksums refuses segmentation (EINVAL), like paths without checksum offload do (EIO).
    for (fd, _) in a.tx().sources() {
        nix::sys::socket::setsockopt(&fd, NoCheck, &1).unwrap();
    }
    let lengths = [4096, 4096, 300, 16, 16, 16, 15, 4096];
    exchange(&mut a, &mut b, &meta, &lengths, &[0; 8]);
    let counters = a.tx_counters();
    assert_eq!((counters.packets, counters.messages), (8, 8));
    assert_eq!(counters.segmentation_refused, 2);
    assert_eq!(counters.errors, 0);
    exchange(&mut a, &mut b, &meta, &[1000, 1000], &[0; 2]);
    assert_eq!(a.tx_counters().segmentation_refused, 2, "the path is known now");
}

/// `SO_NO_CHECK`, which the library lacks.
#[derive(Clone, Copy)]
struct NoCheck;

impl nix::sys::socket::SetSockOpt for NoCheck {
    type Val = i32;

    fn set<F: AsFd>(&self, fd: &F, value: &i32) -> nix::Result<()> {
        // SAFETY: the value is readable for the size given.
        let result = unsafe {
            libc::setsockopt(
                fd.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                (&raw const *value).cast(),
                4,
            )
        };
        nix::errno::Errno::result(result).map(drop)
    }
}

#[test]
fn a_full_sink_says_so_and_loses_nothing() {
    let (mut a, mut b, meta) = pair();
    let payload = Payload::new();
    let mut sent = 0;
    while payload.push(&mut a, &meta, 7, sent, 64).is_ok() {
        sent += 1;
    }
    assert!(sent >= 512, "{sent} packets fit");
    a.flush();
    payload.push(&mut a, &meta, 7, sent, 64).expect("there is room again");
    a.flush();
    let got = collect(&mut b, usize::try_from(sent).unwrap() + 1);
    assert!(got.iter().map(|g| g.tag).eq(0..=sent));
}

#[test]
fn packets_of_different_queue_pairs_or_classes_share_no_message() {
    let (mut a, mut b, meta) = pair();
    let payload = Payload::new();
    payload.push(&mut a, &meta, 7, 0, 64).unwrap();
    payload.push(&mut a, &meta, 8, 1, 64).unwrap();
    payload.push(&mut a, &TxMeta { tos: 104, ..meta }, 8, 2, 64).unwrap();
    payload.push(&mut a, &TxMeta { tos: 104, ..meta }, 8, 3, 64).unwrap();
    a.flush();
    assert_eq!(a.tx_counters().messages, 3);
    let got = collect(&mut b, 4);
    assert!(got.iter().map(|g| g.tag).eq(0..4));
    assert_eq!(got[3].icrc, slow_icrc(&got[3], 1));
}

#[test]
fn queue_pairs_of_one_thread_of_the_peer_share_messages_and_each_keeps_its_order() {
    let (mut a, mut b, meta) = pair();
    let meta = TxMeta { peer_port: 0xc001, ..meta };
    let other = TxMeta { peer_port: 0xc002, ..meta };
    let payload = Payload::new();
    // Pairs of a long and a short packet, queue pair by queue pair; one queue pair belongs to another thread.
    let send = |a: &mut Driver| {
        let mut tag = 0;
        for qpn in [10, 11, 12, 13] {
            for _ in 0..3 {
                for length in [4096, 20] {
                    let to = if qpn == 12 { &other } else { &meta };
                    payload.push(a, to, qpn, tag, length).unwrap();
                    tag += 1;
                }
            }
        }
        a.flush();
    };
    // In the first batch the driver learns that there are several.
    for expected in [3 + 6 + 6, 6 + 6] {
        let before = a.tx_counters().messages;
        send(&mut a);
        assert_eq!(a.tx_counters().messages - before, expected);
        let got = collect(&mut b, 24);
        for qpn in [10, 11, 12, 13] {
            let tags: Vec<u32> = got.iter().filter(|g| g.qpn == qpn).map(|g| g.tag).collect();
            let first = (qpn - 10) * 6;
            assert_eq!(tags, Vec::from_iter(first..first + 6), "order of queue pair {qpn}");
        }
        for got in &got {
            let length = if got.tag % 2 == 0 { 4096 } else { 20 };
            assert_eq!(got.payload, payload.expected(got.tag, length));
            assert!((0..4).any(|position| got.icrc == slow_icrc(got, position)), "packet {}", got.tag);
        }
    }
}

#[test]
fn random_traffic_arrives_whole_and_in_the_order_of_each_queue_pair() {
    let (mut a, mut b, meta) = pair();
    let payload = Payload::new();
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..60 {
        let mut sent: Vec<(u32, u32, usize)> = Vec::new();
        for tag in 0..random.u32(1..200) {
            // More queue pairs than the driver remembers exactly.
            let qpn = random.u32(0..if round % 2 == 0 { 6 } else { 1000 });
            let length = *random.choice(&[4096, 4096, 16, 16, 64, 1000, 0, 300]).unwrap();
            let peer_port = if qpn.is_multiple_of(3) { 0 } else { u16::try_from(qpn % 3).unwrap() };
            while payload.push(&mut a, &TxMeta { peer_port, ..meta }, qpn, tag, length).is_err() {
                a.flush();
            }
            sent.push((qpn, tag, length));
            if random.u8(..) < 10 {
                a.tx().room(random.usize(0..5));
                a.flush();
                a.tx().room(usize::MAX);
            }
        }
        a.flush();
        let got = collect(&mut b, sent.len());
        assert_eq!(got.len(), sent.len());
        for &(qpn, tag, length) in &sent {
            let position = got.iter().position(|g| g.tag == tag).expect("every packet arrives");
            let g = &got[position];
            assert_eq!((g.qpn, &g.payload), (qpn, &payload.expected(tag, length)));
            assert!(got[..position].iter().all(|g| g.qpn != qpn || g.tag < tag), "order of queue pair {qpn}");
        }
        let mut checker = crate::device::soft::icrc::IcrcChecker::new();
        for g in &got {
            let whole: Vec<u8> = g.whole.iter().chain(&g.icrc).copied().collect();
            let id = checker.identify(&g.meta, &whole);
            assert!(id.is_some_and(|id| id < 64), "Identification of packet {}: {id:?}", g.tag);
        }
    }
}

#[test]
fn the_traffic_class_of_a_packet_is_on_the_wire() {
    let (src, dst) = (fresh_address(), fresh_address());
    let mut a = one(src);
    let b = UdpSocket::bind(SocketAddr::new(dst, ROCE_PORT)).unwrap();
    nix::sys::socket::setsockopt(&b, nix::sys::socket::sockopt::IpRecvTos, &true).unwrap();
    Payload::new().push(&mut a, &TxMeta { src, dst, tos: 104, peer_port: 0 }, 8, 2, 64).unwrap();
    a.flush();
    let mut bytes = [0; 256];
    let mut vectors = [std::io::IoSliceMut::new(&mut bytes)];
    let mut space = vec![0; 64];
    let got = nix::sys::socket::recvmsg::<()>(
        b.as_raw_fd(),
        &mut vectors,
        Some(&mut space),
        nix::sys::socket::MsgFlags::empty(),
    )
    .unwrap();
    let tos: Vec<u8> = got
        .cmsgs()
        .unwrap()
        .filter_map(|c| match c {
            nix::sys::socket::ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
            _ => None,
        })
        .collect();
    assert_eq!(tos, [104]);
}

#[test]
fn datagrams_are_steered_by_queue_pair_number() {
    let (src, dst) = (fresh_address(), fresh_address());
    let mut a = one(src);
    let meta = TxMeta { src, dst, tos: 0, peer_port: 0 };
    let payload = Payload::new();
    for reactors in [2, 3] {
        let mut group = open(&DriverConfig::new(vec![dst], reactors));
        let numbers = [1, 2, 3, 4, 5, 6, 7, 0xff_fffe, 0xff_ffff, 0x10_0001];
        for (tag, &qpn) in (0..).zip(&numbers) {
            payload.push(&mut a, &meta, qpn, tag, 16).unwrap();
            payload.push(&mut a, &meta, qpn, tag, 16).unwrap();
        }
        a.flush();
        for (index, driver) in (0u32..).zip(&mut group) {
            let owner = |qpn: u32| if qpn == 1 { 0 } else { qpn % u32::try_from(reactors).unwrap() };
            let wanted: Vec<u32> = numbers.iter().copied().filter(|&qpn| owner(qpn) == index).collect();
            let got = collect(driver, 2 * wanted.len());
            assert!(got.chunks(2).map(|g| g[0].qpn).eq(wanted), "reactor {index} of {reactors}");
        }
    }
}

#[test]
fn a_driver_with_two_addresses_sends_and_receives_on_each() {
    let (one_address, other, peer) = (fresh_address(), fresh_address(), fresh_address());
    let mut a = open(&DriverConfig::new(vec![one_address, other], 1)).remove(0);
    let mut b = one(peer);
    for local in [one_address, other] {
        let meta = TxMeta { src: local, dst: peer, tos: 0, peer_port: 0 };
        exchange(&mut a, &mut b, &meta, &[100, 100], &[0, 1]);
        exchange(
            &mut b,
            &mut a,
            &TxMeta { src: peer, dst: local, tos: 0, peer_port: 0 },
            &[100, 100],
            &[0, 1],
        );
    }
    let stranger = TxMeta { src: fresh_address(), dst: peer, tos: 0, peer_port: 0 };
    Payload::new().push(&mut a, &stranger, 1, 1, 1).unwrap();
    assert_eq!(a.tx_counters().no_source, 1);
}

#[test]
fn ipv6_works_like_ipv4_and_accepts_datagrams_without_checksum() {
    // There is one IPv6 loopback address: whoever tests with it takes turns.
    let lock = std::fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(std::env::temp_dir().join("intact-ipv6-loopback.lock"))
        .unwrap();
    lock.lock().unwrap();
    let address = IpAddr::from(Ipv6Addr::LOCALHOST);
    let meta = TxMeta { src: address, dst: address, tos: 0, peer_port: 0 };
    let payload = Payload::new();
    for checksum in [Checksum::Full, Checksum::Zero] {
        let mut a = open(&DriverConfig { checksum, ..DriverConfig::new(vec![address], 1) }).remove(0);
        for (tag, length) in [(0, 4096), (1, 4096), (2, 17)] {
            payload.push(&mut a, &meta, 5, tag, length).unwrap();
        }
        a.flush();
        let got = collect(&mut a, 3);
        for (got, (tag, length)) in got.iter().zip([(0, 4096), (1, 4096), (2, 17)]) {
            assert_eq!(got.payload, payload.expected(tag, length));
            assert_eq!(got.icrc, slow_icrc(got, 0), "IPv6 has no Identification");
        }
    }
}

#[test]
fn drops_for_want_of_buffer_are_counted() {
    let (src, dst) = (fresh_address(), fresh_address());
    let mut a = one(src);
    let mut b = open(&DriverConfig { rcvbuf: 64 << 10, ..DriverConfig::new(vec![dst], 1) }).remove(0);
    assert!(b.rcvbuf() <= 64 << 10);
    let meta = TxMeta { src, dst, tos: 0, peer_port: 0 };
    let payload = Payload::new();
    for tag in 0..200 {
        payload.push(&mut a, &meta, 5, tag, 1000).unwrap();
    }
    a.flush();
    let mut came = 0;
    b.receive(|_, _| came += 1);
    assert!(came < 200);
    // The kernel tells with the next datagram that it queues.
    payload.push(&mut a, &meta, 5, 200, 1000).unwrap();
    a.flush();
    assert_eq!(collect(&mut b, 1).len(), 1);
    assert!(b.rx_counters().drops > 0);
}

#[test]
fn packets_beyond_the_mtu_or_without_a_route_are_counted_and_do_not_hold_up_others() {
    let (mut a, mut b, meta) = pair();
    let payload = Payload::new();
    let nowhere = TxMeta { dst: Ipv4Addr::new(255, 255, 255, 255).into(), ..meta };
    payload.push(&mut a, &nowhere, 5, 0, 100).unwrap();
    payload.push(&mut a, &meta, 5, 1, 100).unwrap();
    a.flush();
    assert!(!a.has_unsent());
    assert_eq!(a.tx_counters().errors, 1);
    assert_eq!(collect(&mut b, 1)[0].tag, 1);
}

#[test]
fn transmit_sockets_receive_nothing() {
    let (mut a, b, _) = pair();
    let from = b.addresses().next().unwrap();
    let stray = UdpSocket::bind(SocketAddr::new(from, 0)).unwrap();
    let tx = a.tx();
    let (fd, source) = tx.sources().next().unwrap();
    stray.send_to(b"stray", source).unwrap();
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::ZERO).unwrap(), 0);
}

#[test]
fn what_the_kernel_has_no_room_for_is_sent_later_in_order() {
    for refuse in [false, true] {
        let (mut a, mut b, meta) = pair();
        if refuse {
            for (fd, _) in a.tx().sources() {
                nix::sys::socket::setsockopt(&fd, NoCheck, &1).unwrap();
            }
        }
        let payload = Payload::new();
        let mut tag = 0;
        let mut push = |a: &mut Driver, length: usize| {
            payload.push(a, &meta, 5, tag, length).unwrap();
            tag += 1;
        };
        for length in [1000, 1000, 1000, 16, 2000, 2000, 16] {
            push(&mut a, length);
        }
        a.tx().room(0);
        a.flush();
        assert!(a.has_unsent());
        assert_eq!(a.tx_fds().count(), 1);
        a.tx().room(1);
        a.flush();
        assert!(a.has_unsent());
        for length in [16, 16, 2000] {
            push(&mut a, length);
        }
        a.tx().room(2);
        a.flush();
        assert!(a.has_unsent() || !refuse);
        a.tx().room(usize::MAX);
        a.flush();
        assert!(!a.has_unsent());
        assert_eq!(a.tx_fds().count(), 0);
        let got = collect(&mut b, 10);
        assert!(got.iter().map(|g| g.tag).eq(0..10));
        // The second batch found the last message handed to the kernel already, so it began another one.
        let positions = if refuse { [0; 10] } else { [0, 1, 2, 3, 0, 1, 2, 0, 1, 0] };
        for (got, position) in got.iter().zip(positions) {
            assert_eq!(got.icrc, slow_icrc(got, position), "packet {}", got.tag);
        }
        assert_eq!(a.tx_counters().packets, 10);
    }
}

#[test]
fn packets_that_the_kernel_had_no_room_for_keep_the_bytes_that_they_had() {
    let (mut a, mut b, meta) = pair();
    let payload = Payload::new();
    let mut sent = Vec::new();
    let mut tag = 0;
    for (room, lengths) in
        [(1, [4096, 4096, 16, 1000]), (1, [300, 2000, 4096, 4096]), (0, [4096, 257, 256, 3])]
    {
        for length in lengths {
            payload.push(&mut a, &meta, 5, tag, length).unwrap();
            sent.push(payload.expected(tag, length));
            tag += 1;
        }
        a.tx().room(room);
        a.flush();
        assert!(a.has_unsent(), "room for {room} messages");
    }
    // Nobody needs the memory any more.
    payload.region.write(0, &vec![0xee; payload.region.len()]);
    a.tx().room(usize::MAX);
    a.flush();
    let got = collect(&mut b, sent.len());
    for (got, sent) in got.iter().zip(&sent) {
        assert_eq!(got.payload, *sent, "packet {}", got.tag);
        assert!((0..4).any(|position| got.icrc == slow_icrc(got, position)), "packet {}", got.tag);
    }
    assert_eq!(a.tx_counters().packets, sent.len() as u64);
}

#[test]
fn a_taken_port_a_foreign_address_and_useless_addresses_are_told_apart() {
    let address = fresh_address();
    for reactors in [1, 2] {
        let first = open(&DriverConfig::new(vec![address], reactors));
        let error = Driver::open(&DriverConfig::new(vec![address], 2)).unwrap_err();
        assert!(matches!(error, OpenError::PortTaken { .. }), "{error}");
        assert!(error.to_string().contains("4791"), "{error}");
        drop(first);
    }
    let foreign: IpAddr = "203.0.113.77".parse().unwrap();
    let error = Driver::open(&DriverConfig::new(vec![foreign], 1)).unwrap_err();
    assert!(matches!(error, OpenError::NotLocal(a) if a == foreign), "{error}");
    for useless in ["0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "fe80::1", "::ffff:127.0.0.1"] {
        let error = Driver::open(&DriverConfig::new(vec![useless.parse().unwrap()], 1)).unwrap_err();
        assert!(matches!(error, OpenError::Unusable { .. }), "{useless}: {error}");
    }
    assert!(matches!(Driver::open(&DriverConfig::new(vec![], 1)), Err(OpenError::Nothing("address"))));
    assert!(matches!(Driver::open(&DriverConfig::new(vec![address], 0)), Err(OpenError::Nothing("reactor"))));
}

#[test]
fn no_privilege_is_needed() {
    // Credentials belong to threads in the kernel; only the C library spreads them over a process.
    std::thread::spawn(|| {
        if nix::unistd::geteuid().is_root() {
            // SAFETY: changes the credentials of this thread, which ends with this test; touches no memory.
            let failed = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
            assert_eq!(failed, 0);
        }
        let (src, dst) = (fresh_address(), fresh_address());
        let mut a = one(src);
        let mut b = open(&DriverConfig { rcvbuf: 1 << 30, ..DriverConfig::new(vec![dst], 2) });
        assert!(b[0].rcvbuf() < 1 << 30, "the system's limit holds");
        assert!(b[0].rcvbuf() > 64 << 10);
        exchange(
            &mut a,
            &mut b[0],
            &TxMeta { src, dst, tos: 104, peer_port: 0 },
            &[4096, 4096, 16],
            &[0, 1, 2],
        );
    })
    .join()
    .unwrap();
}

#[test]
fn packets_to_strangers_hold_nobody_up() {
    let [from, to] = [fresh_address(), fresh_address()];
    let (mut a, mut b) = (one(from), one(to));
    let meta = TxMeta { src: from, dst: to, tos: 0, peer_port: 0 };
    let stranger = |driver: &mut Driver, tag| driver.tx().push_to_stranger(&meta, &bth(1, tag), &[]).unwrap();
    let known = |driver: &mut Driver, tag| driver.tx().push(&meta, &bth(5, tag), &[]).unwrap();
    // Nobody is known to be there: what the kernel has no room for is lost, and nothing waits for it.
    stranger(&mut a, 0);
    a.tx().room(0);
    a.flush();
    assert!(!a.has_unsent() && a.tx_fds().next().is_none());
    assert_eq!((a.tx_counters().no_room, a.tx_counters().packets), (1, 0));
    // Others wait as ever.
    known(&mut a, 1);
    a.flush();
    assert!(a.has_unsent());
    a.tx().room(usize::MAX);
    stranger(&mut a, 2);
    a.flush();
    let mut got = collect(&mut b, 2);
    got.sort_by_key(|got| got.tag);
    assert_eq!([&got[0], &got[1]].map(|got| (got.qpn, got.tag)), [(5, 1), (1, 2)]);
    assert_ne!(got[0].meta.src_port, got[1].meta.src_port, "a full socket of theirs is theirs alone");
    assert!(got.iter().all(|got| got.icrc == slow_icrc(got, 0)));
    assert_eq!((a.tx_counters().no_room, a.tx_counters().packets), (1, 2));
}
