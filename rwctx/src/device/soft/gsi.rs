//! The general services interface: carries the connection manager's datagrams over queue pair 1 (IBTA 13, roce-wire 3.1).
//!
//! Wraps management datagrams into packets and checks those that come; owns no socket and no clock, and decides nothing
//! about connections.

use std::time::Instant;

use super::cm::{Cm, CmConfig, CmCounters, MadOut};
use super::icrc::IcrcChecker;
use super::wire::{Bth, Deth, Ext, GSI_QKEY, HEADER_MAX, Header, MAD_LEN, Opcode, Packet};
use super::{PacketSink, RxMeta, SinkFull, TxMeta};
use crate::device::Qpn;
use crate::mem::Iov;

/// Queue pair 1 with its connection manager.
#[derive(Debug)]
pub(super) struct Gsi {
    cm: Cm,
    /// `None`: what arrives is believed.
    icrc: Option<IcrcChecker>,
    /// Of the next packet. Nobody looks at it; Linux counts too.
    psn: u32,
    /// What the sink had no room for.
    waiting: Option<MadOut>,
    dropped: u64,
}

/// The queue pair of the general services interface.
pub(super) const QP1: Qpn = Qpn(1);

/// Whether a datagram is addressed to queue pair 1.
#[inline]
pub(super) fn is_for_gsi(udp_payload: &[u8]) -> bool {
    udp_payload.get(5..8) == Some(&[0, 0, 1])
}

impl Gsi {
    pub(super) fn new(config: CmConfig, icrc: Option<IcrcChecker>) -> Self {
        Self { cm: Cm::new(config), icrc, psn: 0, waiting: None, dropped: 0 }
    }

    /// Takes a datagram to queue pair 1. What is no management datagram is dropped and counted.
    pub(super) fn handle_datagram(&mut self, now: Instant, meta: &RxMeta, udp_payload: &[u8]) {
        let mad = match Packet::parse(udp_payload) {
            Ok(Packet { bth, ext: Ext::Deth(deth), payload })
                if bth.opcode == Opcode::UdSendOnly && deth.qkey == GSI_QKEY =>
            {
                payload
            }
            _ => {
                self.dropped += 1;
                return;
            }
        };
        if self.icrc.as_mut().is_some_and(|icrc| !icrc.check(meta, udp_payload)) {
            self.dropped += 1;
            return;
        }
        self.cm.handle_mad(now, meta.src, meta.dst, mad);
    }

    /// Hands the datagrams that are due to the sink, those to peers of whom nobody knows that they exist apart.
    ///
    /// # Errors
    /// [`SinkFull`]: flush it and call again.
    pub(super) fn poll_transmit(&mut self, now: Instant, sink: &mut impl PacketSink) -> Result<(), SinkFull> {
        while let Some(out) = self.waiting.take().or_else(|| self.cm.poll_mad(now)) {
            let header = Header {
                bth: Bth::new(Opcode::UdSendOnly, QP1, self.psn, MAD_LEN),
                ext: Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: QP1 }),
            };
            let mut bytes = [0; HEADER_MAX];
            let length = header.emit(&mut bytes);
            let to = TxMeta { src: out.src, dst: out.dst, tos: out.tos, peer_port: 0 };
            // As long as what the sink copies.
            let payload = [Iov::from_slice(&out.mad)];
            let pushed = if self.cm.knows(out.dst) {
                sink.push(&to, &bytes[..length], &payload)
            } else {
                sink.push_to_stranger(&to, &bytes[..length], &payload)
            };
            if let Err(full) = pushed {
                self.waiting = Some(out);
                return Err(full);
            }
            self.psn = self.psn.wrapping_add(1);
        }
        Ok(())
    }

    pub(super) fn cm(&mut self) -> &mut Cm {
        &mut self.cm
    }

    pub(super) fn cm_counters(&self) -> CmCounters {
        *self.cm.counters()
    }

    /// Whether [`Self::poll_transmit`] was stopped by a full sink.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.cm.next_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.cm.next_timeout().is_some_and(|due| due <= now) {
            self.cm.handle_timeout(now);
        }
    }

    /// Datagrams to queue pair 1 that were no management datagrams.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

const _: () = assert!(MAD_LEN <= super::COPIED_PAYLOAD, "management datagrams lie in no registered region");
