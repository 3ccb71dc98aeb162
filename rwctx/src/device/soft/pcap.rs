//! Traces of simulated traffic that Wireshark reads: classic pcap with nanoseconds, link type raw IP.
//!
//! Builds the IP and UDP headers that a kernel would have put before a RoCEv2 packet. It never decides anything and is
//! not used on the data path.

use std::io::{self, Write};
use std::net::IpAddr;
use std::time::Duration;

use super::RxMeta;
use super::wire::UDP_PORT;

/// Magic number of a capture with nanosecond time stamps.
const MAGIC_NANOSECONDS: u32 = 0xA1B2_3C4D;
/// Link type: the packet begins with its IP header.
const LINKTYPE_RAW: u32 = 101;
/// Longest packet that a capture holds.
const SNAP_LENGTH: u32 = 0x4_0000;

const PROTOCOL_UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;

/// Writes a capture.
#[derive(Debug)]
pub struct PcapWriter<W: Write> {
    to: W,
}

impl<W: Write> PcapWriter<W> {
    /// Begins a capture: writes the file header.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(mut to: W) -> io::Result<Self> {
        for word in [MAGIC_NANOSECONDS, 2 | 4 << 16, 0, 0, SNAP_LENGTH, LINKTYPE_RAW] {
            to.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { to })
    }

    /// Appends one datagram: `udp_payload` from the BTH to the ICRC, sent at `time` after the start of the trace (after
    /// the epoch in the file). `id` is the IPv4 Identification.
    ///
    /// # Errors
    /// Those of the writer; [`io::ErrorKind::InvalidInput`] for a payload that fits no datagram.
    pub fn write(
        &mut self,
        time: Duration,
        meta: &RxMeta,
        tos: u8,
        id: u16,
        udp_payload: &[u8],
    ) -> io::Result<()> {
        let datagram = ip_datagram(meta, tos, id, udp_payload)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "payload too long for a datagram"))?;
        let invalid = |_| io::Error::new(io::ErrorKind::InvalidInput, "time too late for a capture");
        let seconds = u32::try_from(time.as_secs()).map_err(invalid)?;
        let length = u32::try_from(datagram.len()).map_err(invalid)?;
        for word in [seconds, time.subsec_nanos(), length, length] {
            self.to.write_all(&word.to_le_bytes())?;
        }
        self.to.write_all(&datagram)
    }

    /// Ends the capture and returns the writer, flushed.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.flush()?;
        Ok(self.to)
    }
}

/// The IP datagram that carries `udp_payload`, with UDP checksum 0; `None` when it is too long.
fn ip_datagram(meta: &RxMeta, tos: u8, id: u16, udp_payload: &[u8]) -> Option<Vec<u8>> {
    let udp_len = u16::try_from(udp_payload.len() + 8).ok()?;
    let mut datagram = Vec::with_capacity(48 + udp_payload.len());
    match (meta.src, meta.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            datagram.extend([0x45, tos]);
            datagram.extend(udp_len.checked_add(20)?.to_be_bytes());
            datagram.extend(id.to_be_bytes());
            datagram.extend([0x40, 0, HOP_LIMIT, PROTOCOL_UDP, 0, 0]);
            datagram.extend(src.octets());
            datagram.extend(dst.octets());
            let sum = ones_complement_sum(&datagram);
            datagram[10..12].copy_from_slice(&(!sum).to_be_bytes());
        }
        (src, dst) => {
            let octets = |address| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            datagram.extend([0x60 | tos >> 4, tos << 4, 0, 0]);
            datagram.extend(udp_len.to_be_bytes());
            datagram.extend([PROTOCOL_UDP, HOP_LIMIT]);
            datagram.extend(octets(src));
            datagram.extend(octets(dst));
        }
    }
    datagram.extend(meta.src_port.to_be_bytes());
    datagram.extend(UDP_PORT.to_be_bytes());
    datagram.extend(udp_len.to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(udp_payload);
    Some(datagram)
}

/// The sum of the Internet checksum over an even number of bytes (RFC 1071).
fn ones_complement_sum(bytes: &[u8]) -> u16 {
    bytes.chunks_exact(2).fold(0, |sum: u16, pair| {
        let (sum, carry) = sum.overflowing_add(u16::from_be_bytes([pair[0], pair[1]]));
        sum + u16::from(carry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_of_rxe_gets_the_headers_that_its_kernel_gave_it() {
        let meta = RxMeta { src: [10, 77, 0, 1].into(), dst: [10, 77, 0, 2].into(), src_port: 0xF688 };
        let payload = [
            0x11, 0x00, 0xFF, 0xFF, 0, 0, 0, 0x11, 0, 0xE5, 0xFD, 0xF0, 0x1F, 0, 0, 1, 0xB3, 0x7D, 0x1B, 0x7F,
        ];
        let datagram = ip_datagram(&meta, 0, 0xFDF9, &payload).unwrap();
        let header = [
            0x45, 0, 0, 0x30, 0xFD, 0xF9, 0x40, 0, 0x40, 0x11, 0x28, 0x27, 10, 77, 0, 1, 10, 77, 0, 2, 0xF6,
            0x88, 0x12, 0xB7, 0, 0x1C, 0, 0,
        ];
        assert_eq!(datagram[..28], header);
        assert_eq!(datagram[28..], payload);
    }

    #[test]
    fn a_capture_has_a_header_and_a_record_for_each_packet() {
        let meta =
            RxMeta { src: "fd77::1".parse().unwrap(), dst: "fd77::2".parse().unwrap(), src_port: 0xC000 };
        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        writer.write(Duration::new(3, 5), &meta, 0xB8, 0, &[1; 16]).unwrap();
        assert!(writer.write(Duration::ZERO, &meta, 0, 0, &[0; 0x1_0000]).is_err());
        let bytes = writer.finish().unwrap();
        assert_eq!(bytes[..4], [0x4D, 0x3C, 0xB2, 0xA1]);
        assert_eq!(bytes[20..24], [101, 0, 0, 0]);
        assert_eq!(bytes[24..40], [3, 0, 0, 0, 5, 0, 0, 0, 64, 0, 0, 0, 64, 0, 0, 0]);
        assert_eq!(bytes[40..48], [0x6B, 0x80, 0, 0, 0, 24, 17, 64]);
        assert_eq!(bytes.len(), 24 + 16 + 64);
    }
}
