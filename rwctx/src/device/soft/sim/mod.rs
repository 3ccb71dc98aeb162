//! Two endpoints, a bad network between them and a virtual clock, all decided by a seed.
//!
//! Every step checks the invariants of both endpoints; every datagram that is sent again is compared with the first of
//! its PSN. What the applications on top do and check is in `app`.
//!
//! `INTACT_SIM_SEED=N` replays one seed, `INTACT_SIM_SEED=N..M` runs a range; `INTACT_SIM_PCAP=FILE` writes what went over the network.

mod app;
mod cases;
mod hostile;
mod judge;
mod pair;
mod registrations;
mod signature;
mod tests;
mod vectors;

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::BufWriter;
use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::endpoint::{Endpoint, EndpointConfig, Transmit};
use super::fault::{Faults, Link};
use super::pcap::PcapWriter;
use super::wire::{Ext, Opcode, Packet};
use super::{PacketSink, RxMeta, SinkFull, TxMeta};
use crate::device::{QpConnect, Qpn};
use crate::mem::Iov;

/// Virtual time after which a run counts as hung.
const PATIENCE: Duration = Duration::from_secs(100);

/// Side 0 or 1 of a world.
pub(super) type SideId = usize;

/// Two endpoints and the network between them.
pub(super) struct World {
    pub(super) start: Instant,
    pub(super) now: Instant,
    pub(super) endpoints: [Endpoint; 2],
    /// `links[side]` carries what `side` sends.
    pub(super) links: [Link; 2],
    pub(super) addresses: [IpAddr; 2],
    pub(super) rng: fastrand::Rng,
    /// Sinks report that they are full now and then.
    pub(super) choke: bool,
    tap: Tap,
}

/// Watches what is sent.
#[derive(Default)]
struct Tap {
    /// Hash of each SEND and WRITE packet by direction, queue pair and PSN.
    first: HashMap<(SideId, Qpn, u32), u64>,
    /// Furthest address asked for, by direction, queue pair and PSN after the end of the READ.
    reads: HashMap<(SideId, Qpn, u32), u64>,
    /// Path MTU in bytes, by direction and destination queue pair.
    mtu: HashMap<(SideId, Qpn), u32>,
    /// Memory changes while it is being sent: packets can't be compared.
    unsteady: bool,
    pcap: Option<PcapWriter<BufWriter<File>>>,
    /// What was sent, if somebody wants it.
    sent: Option<Vec<Sent>>,
}

/// A datagram as it was sent.
pub(super) struct Sent {
    pub(super) time: Duration,
    pub(super) meta: RxMeta,
    pub(super) bytes: Vec<u8>,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults, ipv6: bool, config: impl Fn(u64) -> EndpointConfig) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        #[expect(clippy::disallowed_methods, reason = "a base for the virtual clock")]
        let start = Instant::now();
        let addresses: [IpAddr; 2] = if ipv6 {
            ["fd77::1".parse().unwrap(), "fd77::2".parse().unwrap()]
        } else {
            ["10.77.0.1".parse().unwrap(), "10.77.0.2".parse().unwrap()]
        };
        let [a, b] = addresses;
        let pcap = std::env::var_os("INTACT_SIM_PCAP")
            .map(|path| PcapWriter::new(BufWriter::new(File::create(path).unwrap())).unwrap());
        Self {
            start,
            now: start,
            endpoints: [Endpoint::new(&config(rng.u64(..))), Endpoint::new(&config(rng.u64(..)))],
            links: [Link::new(a, b, faults, rng.u64(..)), Link::new(b, a, faults, rng.u64(..))],
            addresses,
            rng,
            choke: false,
            tap: Tap { pcap, ..Tap::default() },
        }
    }

    /// Connects a queue pair of each side with the other.
    pub(super) fn connect(&mut self, qpns: [Qpn; 2], parameters: [QpConnect; 2]) {
        for side in 0..2 {
            let to = QpConnect {
                local: self.addresses[side],
                remote: self.addresses[1 - side],
                dest_qpn: qpns[1 - side],
                ..parameters[side]
            };
            self.endpoints[side].connect_qp(qpns[side], &to).unwrap();
            self.tap.mtu.insert((side, qpns[1 - side]), to.path_mtu.bytes());
        }
    }

    /// Memory will change while it is being sent.
    pub(super) fn expect_unsteady_memory(&mut self) {
        self.tap.unsteady = true;
    }

    /// Keeps what is sent from now on.
    pub(super) fn record(&mut self) {
        self.tap.sent = Some(Vec::new());
    }

    /// Returns what was sent since [`Self::record`].
    pub(super) fn recorded(&mut self) -> Vec<Sent> {
        self.tap.sent.take().unwrap_or_default()
    }

    /// Lets both endpoints send until they are drained.
    pub(super) fn transmit(&mut self) {
        for side in 0..2 {
            loop {
                let room = if self.choke { self.rng.usize(0..40) } else { usize::MAX };
                let (tap, now, start) = (&mut self.tap, self.now, self.start);
                let watched = |meta: &RxMeta, bytes: &[u8]| tap.see(side, now - start, meta, bytes);
                let mut sink = Choked { sink: self.links[side].at(now, watched), room };
                if self.endpoints[side].poll_transmit(now, &mut sink) == Transmit::Drained {
                    break;
                }
            }
        }
        self.check();
    }

    /// When something happens next by itself.
    pub(super) fn next_event(&self) -> Option<Instant> {
        let arrivals = self.links.iter().filter_map(Link::next_arrival);
        let timeouts = self.endpoints.iter().filter_map(Endpoint::next_timeout);
        arrivals.chain(timeouts).min()
    }

    /// Moves the clock and delivers what has arrived and expired.
    pub(super) fn advance_to(&mut self, at: Instant) {
        self.now = self.now.max(at);
        let age = self.now - self.start;
        assert!(age < PATIENCE, "hung: {age:?}\n{:#?}\n{:#?}", self.endpoints[0], self.endpoints[1]);
        for side in 0..2 {
            while let Some((meta, datagram)) = self.links[side].receive(self.now) {
                self.endpoints[1 - side].handle_datagram(self.now, &meta, &datagram);
                self.check();
            }
        }
        for endpoint in &mut self.endpoints {
            if endpoint.next_timeout().is_some_and(|at| at <= self.now) {
                endpoint.handle_timeout(self.now);
            }
        }
        self.check();
    }

    /// Transmits and advances until nothing is left to happen, or `most` of virtual time has passed.
    pub(super) fn settle(&mut self, most: Duration) {
        let end = self.now + most;
        loop {
            self.transmit();
            match self.next_event() {
                Some(at) if at <= end => self.advance_to(at),
                _ => return,
            }
        }
    }

    fn check(&self) {
        self.endpoints.iter().for_each(Endpoint::check);
    }
}

impl Tap {
    fn see(&mut self, side: SideId, time: Duration, meta: &RxMeta, bytes: &[u8]) {
        if let Some(pcap) = &mut self.pcap {
            pcap.write(time, meta, 0, 0, bytes).unwrap();
        }
        if let Some(sent) = &mut self.sent {
            sent.push(Sent { time, meta: *meta, bytes: bytes.to_vec() });
        }
        let packet = Packet::parse(bytes).expect("endpoints send packets");
        let key = (side, packet.bth.dest_qpn, packet.bth.psn);
        if !self.unsteady && (packet.bth.opcode.is_send() || packet.bth.opcode.is_write()) {
            // The AckReq bit asks for an answer where one is needed at the time; all else is as the first time.
            let mut hasher = DefaultHasher::new();
            bytes[..8].hash(&mut hasher);
            bytes[9..bytes.len() - 4].hash(&mut hasher);
            let hash = hasher.finish();
            assert_eq!(
                *self.first.entry(key).or_insert(hash),
                hash,
                "sent again, but not the same: {packet:?}"
            );
        }
        if let (Opcode::ReadRequest, Ext::Reth(reth)) = (packet.bth.opcode, packet.ext) {
            let mtu = self.mtu[&(side, packet.bth.dest_qpn)];
            let end = (packet.bth.psn + reth.dma_len.div_ceil(mtu).max(1)) & 0xFF_FFFF;
            let furthest = self.reads.entry((side, packet.bth.dest_qpn, end)).or_insert(reth.va);
            assert!(*furthest <= reth.va, "a READ was asked for again from an earlier place");
            *furthest = reth.va;
        }
    }
}

/// A sink that takes so many packets.
struct Choked<S> {
    sink: S,
    room: usize,
}

impl<S: PacketSink> PacketSink for Choked<S> {
    fn push(&mut self, meta: &TxMeta, header: &[u8], payload: &[Iov<'_>]) -> Result<(), SinkFull> {
        if self.room == 0 {
            return Err(SinkFull);
        }
        self.room -= 1;
        self.sink.push(meta, header, payload)
    }
}

/// Says how to replay when the test panics.
pub(super) struct Replay {
    pub(super) test: &'static str,
    pub(super) seed: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "replay: INTACT_SIM_SEED={} INTACT_SIM_PCAP=/tmp/sim.pcap cargo test -p rwctx --lib -- --exact \
                 device::soft::sim::{} --nocapture",
                self.seed, self.test
            );
        }
    }
}

/// The seeds of a test: those that it names, or the one or the range that `INTACT_SIM_SEED` asks for.
pub(super) fn seeds(all: Range<u64>) -> Range<u64> {
    let Ok(asked) = std::env::var("INTACT_SIM_SEED") else { return all };
    let number = |text: &str| text.parse::<u64>().expect("INTACT_SIM_SEED is a number N or a range N..M");
    match asked.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&asked)..number(&asked) + 1,
    }
}
