//! The soft device: a userspace RoCEv2 RC endpoint over UDP port 4791.
//!
//! `endpoint` and what it owns are sans-IO: datagrams, commands and time in; packets, completions and events out.
//! `driver` owns the sockets and the clock.

pub mod cm;
mod counters;
pub mod device;
pub mod driver;
pub mod endpoint;
#[cfg(any(test, feature = "_fault"))]
pub mod fault;
mod gsi;
pub mod icrc;
pub mod pcap;
pub mod persona;
mod provider;
mod psn;
mod qp;
mod qp_table;
mod queue;
mod requester;
mod responder;
#[cfg(test)]
mod sim;
mod timers;
mod window;
pub mod wire;

use std::net::IpAddr;

use t10pi::Ahead;

use crate::mem::Iov;

pub use counters::Counters;

/// Addressing of one packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxMeta {
    /// Our address.
    pub src: IpAddr,
    /// The peer's address; the port is always 4791.
    pub dst: IpAddr,
    /// IP traffic class.
    pub tos: u8,
    /// The UDP port that the peer's queue pair last sent from, 0 when unknown. Queue pairs of a peer that send from one
    /// port are taken to belong to one thread of it: their packets may share a segmentation batch.
    pub peer_port: u16,
}

/// Addressing of one received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxMeta {
    /// The sender's address.
    pub src: IpAddr,
    /// Our address that it was sent to.
    pub dst: IpAddr,
    /// The sender's UDP port (covered by the ICRC, otherwise meaningless).
    pub src_port: u16,
}

/// The sink took nothing: try again after it was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkFull;

/// Payloads up to this many bytes are copied by [`PacketSink::push`].
pub const COPIED_PAYLOAD: usize = 256;

/// Takes packets from the endpoint. It appends pad bytes (zero, to a multiple of 4 of the payload) and the ICRC, which
/// depends on the UDP source port and on the position in a segmentation batch, and so is the sink's business.
pub trait PacketSink {
    /// Takes one packet: BTH and extension headers (12 to 48 bytes), then `payload` in order. BTH.PadCnt is already set.
    /// A payload of at most [`COPIED_PAYLOAD`] bytes in all may be any memory; longer ones may be sent in place, after
    /// the call: they lie in registered regions, which stay mapped until the sink let go of the packet.
    ///
    /// # Errors
    /// [`SinkFull`] when it can't take more now; the packet was not taken.
    fn push(&mut self, meta: &TxMeta, header: &[u8], payload: &[Iov<'_>]) -> Result<(), SinkFull>;

    /// Says what the payload behind that of the next packet will be. Who reads payloads may ask for its memory meanwhile.
    #[inline]
    fn announce(&mut self, _next: Ahead) {}

    /// Says that the payload of the next packet is [`SUM_PIECE`](crate::device::SUM_PIECE) bytes with this CRC-32 from register
    /// 0, without the final complement. Who makes the ICRC need not read it.
    #[inline]
    fn know_payload(&mut self, _sum: u32) {}

    /// As [`Self::push`], to a peer that may not exist: the packet must hold up no others, and may be lost.
    ///
    /// # Errors
    /// As [`Self::push`].
    fn push_to_stranger(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[Iov<'_>],
    ) -> Result<(), SinkFull> {
        self.push(meta, header, payload)
    }
}
