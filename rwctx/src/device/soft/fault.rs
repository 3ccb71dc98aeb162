//! A network that loses, duplicates, delays, reorders and corrupts datagrams, all decided by a seed, for tests.
//!
//! [`Link`] is one direction between two endpoints under a virtual clock: a [`PacketSink`] on one side (see [`Link::at`]),
//! datagrams with their arrival times on the other. It knows nothing of the protocol. [`FaultySender`] does harm to the packets of
//! a device with real sockets.

mod sender;
mod tamper;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::icrc::IcrcFlow;
use super::{PacketSink, RxMeta, SinkFull, TxMeta};
use crate::mem::Iov;

pub use sender::{FaultySender, FaultySink, SendFaults, SenderCounters};
pub use tamper::{Tampering, tamper};

/// UDP source port of simulated packets.
const SRC_PORT: u16 = 0xC123;

/// How a network misbehaves. Probabilities are in 1/1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A datagram vanishes.
    pub lose: u32,
    /// A datagram arrives twice.
    pub duplicate: u32,
    /// A datagram is held back for up to `hold`.
    pub reorder: u32,
    /// One to three bits of a datagram flip.
    pub corrupt: u32,
    /// Time that every datagram takes.
    pub latency: Duration,
    /// Most extra time of a datagram that is held back.
    pub hold: Duration,
}

/// What a link did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Datagrams given to it.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Held back.
    pub held: u64,
    /// Corrupted.
    pub corrupted: u64,
}

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    arrival: Instant,
    /// Keeps the order of datagrams that arrive at the same time.
    number: u64,
    datagram: Vec<u8>,
}

/// One direction of a network.
#[derive(Debug)]
pub struct Link {
    meta: RxMeta,
    flow: IcrcFlow,
    faults: Faults,
    rng: fastrand::Rng,
    flights: BinaryHeap<Reverse<Flight>>,
    number: u64,
    counters: LinkCounters,
}

impl Link {
    /// A link from `meta.src` to `meta.dst`.
    #[must_use]
    pub fn new(src: std::net::IpAddr, dst: std::net::IpAddr, faults: Faults, seed: u64) -> Self {
        Self {
            meta: RxMeta { src, dst, src_port: SRC_PORT },
            flow: IcrcFlow::new(src, dst, SRC_PORT),
            faults,
            rng: fastrand::Rng::with_seed(seed),
            flights: BinaryHeap::new(),
            number: 0,
            counters: LinkCounters::default(),
        }
    }

    /// The sending end, at a time. `tap` sees every datagram before anything happens to it.
    pub fn at<'l, T: FnMut(&RxMeta, &[u8])>(&'l mut self, now: Instant, tap: T) -> LinkSink<'l, T> {
        LinkSink { link: self, now, tap }
    }

    /// Changes how it misbehaves, for datagrams sent from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// When the next datagram arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.flights.peek().map(|Reverse(flight)| flight.arrival)
    }

    /// Takes the next datagram that has arrived.
    pub fn receive(&mut self, now: Instant) -> Option<(RxMeta, Vec<u8>)> {
        if self.next_arrival()? > now {
            return None;
        }
        self.flights.pop().map(|Reverse(flight)| (self.meta, flight.datagram))
    }

    /// What it did.
    #[must_use]
    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    /// Puts a datagram on its way, or not.
    pub fn send(&mut self, now: Instant, mut datagram: Vec<u8>) {
        self.counters.sent += 1;
        if self.happens(self.faults.lose) {
            self.counters.lost += 1;
            return;
        }
        if self.happens(self.faults.duplicate) {
            self.counters.duplicated += 1;
            self.launch(now, datagram.clone());
        }
        if self.happens(self.faults.corrupt) {
            self.counters.corrupted += 1;
            for _ in 0..self.rng.u32(1..=3) {
                let bit = self.rng.usize(0..datagram.len() * 8);
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
        }
        self.launch(now, datagram);
    }

    fn launch(&mut self, now: Instant, datagram: Vec<u8>) {
        let mut arrival = now + self.faults.latency;
        if self.happens(self.faults.reorder) {
            self.counters.held += 1;
            arrival += self.faults.hold.mul_f64(self.rng.f64());
        }
        self.flights.push(Reverse(Flight { arrival, number: self.number, datagram }));
        self.number += 1;
    }

    fn happens(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.rng.u32(0..1000) < per_mille
    }
}

/// The sending end of a [`Link`] at one time.
#[derive(Debug)]
pub struct LinkSink<'l, T> {
    link: &'l mut Link,
    now: Instant,
    tap: T,
}

impl<T: FnMut(&RxMeta, &[u8])> PacketSink for LinkSink<'_, T> {
    fn push(&mut self, meta: &TxMeta, header: &[u8], payload: &[Iov<'_>]) -> Result<(), SinkFull> {
        debug_assert_eq!((meta.src, meta.dst), (self.link.meta.src, self.link.meta.dst));
        let mut datagram = header.to_vec();
        payload.iter().for_each(|piece| piece.append_to(&mut datagram));
        let mut icrc = self.link.flow.begin(0, header, datagram.len() - header.len());
        icrc.update(&datagram[header.len()..]);
        datagram.extend_from_slice(icrc.finish().as_bytes());
        (self.tap)(&self.link.meta, &datagram);
        self.link.send(self.now, datagram);
        Ok(())
    }
}
