//! Faults of the real network, on the sending side: packets that are lost before the kernel sees them, and a watch that
//! no retransmission differs from its first try.
//!
//! What is lost follows from a seed. The watch keeps a checksum of each SEND and WRITE packet of the last [`SLOTS`], by
//! destination and PSN: header but for AckReq, and payload. READ responses are not watched: a request that is answered twice may find
//! memory changed that the requester has let go of. READ requests are not either: one that is sent again asks for the rest.
//! Spec: roce-wire 2.4 (a request that is sent again is the same packet).

use std::net::IpAddr;

use t10pi::Ahead;

use super::tamper::tampered;
use crate::device::Qpn;
use crate::device::soft::{PacketSink, SinkFull, TxMeta};
use crate::mem::Iov;

/// Packets that the watch knows: more than all windows of the queue pairs that tests use.
const SLOTS: usize = 1 << 16;

/// Opcodes of reliable SEND and WRITE packets are below this, or one of the two SENDs with invalidation.
const FIRST_READ_OPCODE: u8 = 0x0c;
const SENDS_WITH_INVALIDATE: [u8; 2] = [0x16, 0x17];
/// The AckReq bit, in the byte before the PSN.
const ACK_REQ: u8 = 0x80;

/// What goes wrong while sending.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SendFaults {
    /// Probability that a packet is lost, 0 to 1.
    pub loss: f64,
    /// What loss follows from; random when not given.
    pub seed: Option<u64>,
    /// Whether retransmissions are compared with the first try; one that differs panics.
    pub check: bool,
}

impl SendFaults {
    /// What variables of the environment ask for: `INTACT_FAULT_LOSS` (0 to 1), `INTACT_FAULT_SEED`, `INTACT_FAULT_CHECK` (1).
    ///
    /// # Errors
    /// Names the variable that makes no sense.
    pub fn from_variables(value: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let loss = match value("INTACT_FAULT_LOSS") {
            None => 0.0,
            Some(text) => text
                .parse()
                .ok()
                .filter(|loss| (0.0..=1.0).contains(loss))
                .ok_or_else(|| format!("INTACT_FAULT_LOSS: a number from 0 to 1, not {text:?}"))?,
        };
        let seed = match value("INTACT_FAULT_SEED") {
            None => None,
            Some(text) => {
                Some(text.parse().map_err(|_| format!("INTACT_FAULT_SEED: an integer, not {text:?}"))?)
            }
        };
        let check = match value("INTACT_FAULT_CHECK").as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => return Err(format!("INTACT_FAULT_CHECK: 0 or 1, not {other:?}")),
        };
        Ok(Self { loss, seed, check })
    }

    /// Whether anything goes wrong.
    #[must_use]
    pub fn any(&self) -> bool {
        self.loss > 0.0 || self.check
    }
}

/// What was done to packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Packets that the endpoint sent.
    pub packets: u64,
    /// Of these, lost.
    pub lost: u64,
    /// SEND and WRITE packets that were compared with their first try.
    pub compared: u64,
}

/// The faults of one device; see the module.
#[derive(Debug)]
pub struct FaultySender {
    faults: SendFaults,
    rng: fastrand::Rng,
    /// Empty when nothing is watched.
    watched: Box<[Watched]>,
    scratch: Vec<u8>,
    counters: SenderCounters,
    /// Checksum of the payload of the next packet, when it is known.
    sum: Option<u32>,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Watched {
    to: IpAddr,
    qpn: u32,
    psn: u32,
    length: usize,
    checksum: u32,
}

impl FaultySender {
    /// The faults of reactor `reactor`'s device.
    #[must_use]
    pub fn new(faults: SendFaults, reactor: u32) -> Self {
        let seed = faults.seed.unwrap_or_else(|| fastrand::u64(..)) ^ u64::from(reactor) << 32;
        if faults.any() {
            tracing::warn!(
                reactor,
                loss = faults.loss,
                seed,
                check = faults.check,
                "FAULTS ARE ON: packets get lost on purpose"
            );
        }
        // Queue pair numbers have 24 bits: this one names none.
        let none = Watched { to: IpAddr::from([0, 0, 0, 0]), qpn: u32::MAX, psn: 0, length: 0, checksum: 0 };
        Self {
            faults,
            rng: fastrand::Rng::with_seed(seed),
            watched: vec![none; if faults.check { SLOTS } else { 0 }].into_boxed_slice(),
            scratch: Vec::new(),
            counters: SenderCounters::default(),
            sum: None,
        }
    }

    /// A sink that passes on to `inner` what is not lost.
    pub fn sink<'f, S>(&'f mut self, inner: &'f mut S) -> FaultySink<'f, S> {
        FaultySink { sender: self, inner }
    }

    /// A connection to this queue pair begins: what was sent to one of its number before is forgotten.
    pub fn connected(&mut self, to: IpAddr, qpn: Qpn) {
        for slot in self.watched.iter_mut().filter(|slot| slot.to == to && slot.qpn == qpn.0) {
            slot.qpn = u32::MAX;
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> SenderCounters {
        self.counters
    }

    /// Compares a packet with its first try, if it has one, else keeps it as that.
    fn watch(&mut self, to: IpAddr, header: &[u8], payload: &[Iov<'_>]) {
        let opcode = header[0];
        if self.watched.is_empty() || opcode >= FIRST_READ_OPCODE && !SENDS_WITH_INVALIDATE.contains(&opcode)
        {
            return;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(header);
        self.scratch[8] &= !ACK_REQ;
        payload.iter().for_each(|piece| piece.append_to(&mut self.scratch));
        let [qpn, psn] = [5, 9].map(|at| u32::from_be_bytes([0, header[at], header[at + 1], header[at + 2]]));
        let sent = Watched {
            to,
            qpn,
            psn,
            length: self.scratch.len(),
            checksum: t10pi::Kernel::active().crc32(0, &self.scratch),
        };
        // Neighbours of a flow lie side by side, flows anywhere: what is overwritten is not compared.
        let flow = qpn.wrapping_mul(0x9e37_79b9);
        let slot = &mut self.watched[flow.wrapping_add(psn) as usize % SLOTS];
        if (slot.to, slot.qpn, slot.psn) == (to, qpn, psn) {
            self.counters.compared += 1;
            if (slot.length, slot.checksum) != (sent.length, sent.checksum) {
                tracing::error!(%to, qpn, psn, opcode, first = slot.length, again = sent.length, "RETRANSMISSION DIFFERS");
                panic!(
                    "retransmission differs from its first try: to {to}, queue pair {qpn:#x}, PSN {psn:#x}, opcode {opcode:#x}"
                );
            }
        } else {
            *slot = sent;
        }
    }
}

impl Drop for FaultySender {
    fn drop(&mut self) {
        if self.faults.any() {
            let SenderCounters { packets, lost, compared } = self.counters;
            tracing::info!(packets, lost, compared, "faults on the way out");
        }
    }
}

/// A sink with faults.
#[derive(Debug)]
pub struct FaultySink<'f, S> {
    sender: &'f mut FaultySender,
    inner: &'f mut S,
}

impl<S: PacketSink> PacketSink for FaultySink<'_, S> {
    fn push(&mut self, meta: &TxMeta, header: &[u8], payload: &[Iov<'_>]) -> Result<(), SinkFull> {
        let sum = self.sender.sum.take();
        if self.loses() {
            // It is counted.
        } else if let Some(tampered) = tampered(meta.src, payload) {
            self.inner.push(meta, header, &[Iov::from_slice(tampered.payload)])?;
            tampered.sent();
        } else {
            if let Some(sum) = sum {
                self.inner.know_payload(sum);
            }
            self.inner.push(meta, header, payload)?;
        }
        self.sender.counters.packets += 1;
        self.sender.watch(meta.dst, header, payload);
        Ok(())
    }

    fn announce(&mut self, next: Ahead) {
        self.inner.announce(next);
    }

    fn know_payload(&mut self, sum: u32) {
        self.sender.sum = Some(sum);
    }

    fn push_to_stranger(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[Iov<'_>],
    ) -> Result<(), SinkFull> {
        if !self.loses() {
            self.inner.push_to_stranger(meta, header, payload)?;
        }
        self.sender.counters.packets += 1;
        Ok(())
    }
}

impl<S> FaultySink<'_, S> {
    /// Whether the next packet is lost.
    fn loses(&mut self) -> bool {
        let loses = self.sender.faults.loss > 0.0 && self.sender.rng.f64() < self.sender.faults.loss;
        self.sender.counters.lost += u64::from(loses);
        loses
    }
}

#[cfg(test)]
mod tests {
    use super::super::tamper;
    use super::*;

    const SEND_ONLY: u8 = 0x04;
    const READ_REQUEST: u8 = 0x0c;

    /// Counts what arrives.
    #[derive(Debug, Default)]
    struct Arrivals(u64);

    impl PacketSink for Arrivals {
        fn push(&mut self, _: &TxMeta, _: &[u8], _: &[Iov<'_>]) -> Result<(), SinkFull> {
            self.0 += 1;
            Ok(())
        }
    }

    fn meta() -> TxMeta {
        TxMeta { src: IpAddr::from([127, 0, 0, 1]), dst: IpAddr::from([127, 0, 0, 2]), tos: 0, peer_port: 0 }
    }

    fn header(opcode: u8, psn: u8) -> [u8; 12] {
        [opcode, 0, 0xff, 0xff, 0, 0, 0, 9, 0, 0, 0, psn]
    }

    fn send(sender: &mut FaultySender, header: &[u8], payload: &[u8]) {
        let mut arrivals = Arrivals::default();
        sender.sink(&mut arrivals).push(&meta(), header, &[Iov::from_slice(payload)]).unwrap();
    }

    fn watching() -> FaultySender {
        FaultySender::new(SendFaults { check: true, ..SendFaults::default() }, 0)
    }

    #[test]
    fn the_share_of_lost_packets_is_as_asked_and_follows_from_the_seed() {
        let lost = |seed| {
            let mut sender = FaultySender::new(SendFaults { loss: 0.1, seed: Some(seed), check: false }, 0);
            let mut arrivals = Arrivals::default();
            for psn in 0..200 {
                sender.sink(&mut arrivals).push(&meta(), &header(SEND_ONLY, psn), &[]).unwrap();
            }
            let counters = sender.counters();
            assert_eq!((counters.packets, counters.packets - counters.lost), (200, arrivals.0));
            counters.lost
        };
        assert!((5..40).contains(&lost(1)), "{}", lost(1));
        assert_eq!(lost(1), lost(1));
    }

    #[test]
    fn a_retransmission_may_differ_in_its_ack_request_only() {
        let mut sender = watching();
        send(&mut sender, &header(SEND_ONLY, 1), b"data");
        let mut again = header(SEND_ONLY, 1);
        again[8] = ACK_REQ;
        send(&mut sender, &again, b"data");
        send(&mut sender, &header(SEND_ONLY, 2), b"more");
        assert_eq!(sender.counters().compared, 1);
    }

    #[test]
    #[should_panic(expected = "retransmission differs")]
    fn a_retransmission_with_other_data_is_found() {
        let mut sender = watching();
        send(&mut sender, &header(SEND_ONLY, 1), b"data");
        send(&mut sender, &header(SEND_ONLY, 1), b"dare");
    }

    #[test]
    fn reads_and_new_connections_are_not_compared() {
        let mut sender = watching();
        send(&mut sender, &header(READ_REQUEST, 1), b"one");
        send(&mut sender, &header(READ_REQUEST, 1), b"two");
        send(&mut sender, &header(SEND_ONLY, 2), b"one");
        sender.connected(meta().dst, Qpn(9));
        send(&mut sender, &header(SEND_ONLY, 2), b"two");
        assert_eq!(sender.counters().compared, 0);
    }

    #[test]
    fn tampered_payload_leaves_its_sender_damaged_once() {
        /// Keeps what arrives.
        struct Payloads(Vec<Vec<u8>>);
        impl PacketSink for Payloads {
            fn push(&mut self, _: &TxMeta, _: &[u8], payload: &[Iov<'_>]) -> Result<(), SinkFull> {
                let mut bytes = Vec::new();
                payload.iter().for_each(|piece| piece.append_to(&mut bytes));
                self.0.push(bytes);
                Ok(())
            }
        }
        let meta = TxMeta { src: IpAddr::from([127, 0, 0, 77]), ..meta() };
        let original: Vec<u8> = (0..40).collect();
        let mut damaged = original.clone();
        (damaged[3], damaged[39]) = (99, 98);
        let tampering = tamper(meta.src, &original, &damaged);
        let (mut sender, mut payloads) = (watching(), Payloads(Vec::new()));
        for psn in 0..2 {
            let pieces = [&original[..7], &original[7..]].map(Iov::from_slice);
            sender.sink(&mut payloads).push(&meta, &header(READ_REQUEST, psn), &pieces).unwrap();
        }
        assert_eq!(payloads.0, [damaged, original.clone()]);
        assert_eq!(tampering.left(), 0);
        assert_eq!(tamper(meta.src, &original, &[0; 40]).left(), 3);
    }

    #[test]
    fn variables_say_what_goes_wrong() {
        let of = |set: &[(&str, &str)]| {
            SendFaults::from_variables(|name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[]), Ok(SendFaults::default()));
        let all = [("INTACT_FAULT_LOSS", "0.01"), ("INTACT_FAULT_SEED", "7"), ("INTACT_FAULT_CHECK", "1")];
        assert_eq!(of(&all), Ok(SendFaults { loss: 0.01, seed: Some(7), check: true }));
        for wrong in [("INTACT_FAULT_LOSS", "2"), ("INTACT_FAULT_SEED", "x"), ("INTACT_FAULT_CHECK", "yes")] {
            assert!(of(&[wrong]).unwrap_err().starts_with(wrong.0));
        }
    }
}
