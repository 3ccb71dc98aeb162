//! One RoCEv2 packet: the UDP payload from the BTH to before the ICRC.

use thiserror::Error;
use zerocopy::{FromBytes, IntoBytes};

use super::bth::RawBth;
use super::{BTH_LEN, Bth, Ext, Role};

/// Bytes of the invariant CRC that ends every packet.
pub const ICRC_LEN: usize = 4;

/// Room for any header that [`Header::emit`] writes.
pub const HEADER_MAX: usize = 48;

const _: () = assert!(BTH_LEN + 28 <= HEADER_MAX);

/// The headers of one packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers, of the kind that the opcode demands.
    pub ext: Ext,
}

/// One received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// Extension headers, of the kind that the opcode demands.
    pub ext: Ext,
    /// Payload without pad bytes.
    pub payload: &'a [u8],
}

/// Why bytes are no packet. Such packets are dropped in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Shorter than its headers, pad bytes and ICRC.
    #[error("packet cut short")]
    Truncated,
    /// The length is no multiple of 4.
    #[error("packet length is no multiple of 4")]
    Unaligned,
    /// Transport version other than 0.
    #[error("transport version {0}")]
    Version(u8),
    /// A partition that is not ours.
    #[error("partition key {0:#06x}")]
    Pkey(u16),
    /// An opcode of a transport that we do not speak.
    #[error("opcode {0:#04x}")]
    Opcode(u8),
    /// Payload where the operation has none.
    #[error("payload on a packet that carries none")]
    UnexpectedPayload,
}

impl Header {
    /// Writes the headers to the start of `to` and returns their length, a multiple of 4.
    ///
    /// # Panics
    /// In debug builds, when the extension headers are not those of the opcode.
    #[inline]
    pub fn emit(&self, to: &mut [u8; HEADER_MAX]) -> usize {
        debug_assert_eq!(self.ext.kind(), self.bth.opcode.ext_kind(), "{:?}", self.bth.opcode);
        to[..BTH_LEN].copy_from_slice(self.bth.to_raw().as_bytes());
        BTH_LEN + self.ext.emit(&mut to[BTH_LEN..])
    }
}

impl<'a> Packet<'a> {
    /// Reads a UDP payload, whose last four bytes are the ICRC; that is not looked at.
    ///
    /// Operations of the reliable connection that we do not know come back as [`super::Opcode::Unknown`] without extension
    /// headers, so that the responder can refuse them. Payload lengths are checked by the queue pair, which knows the
    /// path MTU: a wrong one is a NAK, not a silent drop.
    ///
    /// # Errors
    /// When it is no packet that anything here could answer; see [`ParseError`].
    #[inline]
    pub fn parse(udp_payload: &'a [u8]) -> Result<Self, ParseError> {
        let Some((covered, _icrc)) = udp_payload.split_last_chunk::<ICRC_LEN>() else {
            return Err(ParseError::Truncated);
        };
        let (raw, rest) = RawBth::ref_from_prefix(covered).map_err(|_| ParseError::Truncated)?;
        let (bth, version) = Bth::from_raw(raw);
        if version != 0 {
            return Err(ParseError::Version(version));
        }
        if bth.opcode.role() == Role::Unknown {
            return Err(ParseError::Opcode(bth.opcode.into()));
        }
        if !bth.pkey_is_default() {
            return Err(ParseError::Pkey(bth.pkey));
        }
        let (ext, body) = Ext::parse(bth.opcode.ext_kind(), rest).ok_or(ParseError::Truncated)?;
        if body.len() % 4 != 0 {
            return Err(ParseError::Unaligned);
        }
        let payload_len = body.len().checked_sub(usize::from(bth.pad_count)).ok_or(ParseError::Truncated)?;
        let (payload, _pad) = body.split_at(payload_len);
        if !body.is_empty() && !bth.opcode.may_carry_payload() {
            return Err(ParseError::UnexpectedPayload);
        }
        Ok(Self { bth, ext, payload })
    }

    /// Its headers.
    #[must_use]
    #[inline]
    pub fn header(&self) -> Header {
        Header { bth: self.bth, ext: self.ext }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Aeth, Deth, GSI_QKEY, Ieth, NakCode, Opcode, Reth, Syndrome};
    use super::*;
    use crate::device::Qpn;
    use crate::remote::Rkey;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn emitted(packet: &Packet<'_>) -> Vec<u8> {
        let mut header = [0; HEADER_MAX];
        let length = packet.header().emit(&mut header);
        let mut bytes = header[..length].to_vec();
        bytes.extend_from_slice(packet.payload);
        bytes.extend(std::iter::repeat_n(0, usize::from(packet.bth.pad_count)));
        bytes
    }

    #[test]
    fn a_read_request_of_rxe_parses_to_its_fields() {
        let bytes = hex("0c00ffff00000013804c1ab1 ffff8ba1c290fc00 00000bc8 00000400 39a9e1ca");
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.bth.opcode, Opcode::ReadRequest);
        assert_eq!((packet.bth.dest_qpn, packet.bth.psn), (Qpn(0x13), 0x4C_1AB1));
        assert!(packet.bth.ack_req && !packet.bth.mig_req);
        let reth = Reth { va: 0xFFFF_8BA1_C290_FC00, rkey: Rkey(0xBC8), dma_len: 1024 };
        assert_eq!(packet.ext, Ext::Reth(reth));
        assert_eq!(emitted(&packet), bytes[..bytes.len() - ICRC_LEN]);
    }

    #[test]
    fn a_send_with_invalidate_of_rxe_parses_to_its_fields() {
        let bytes = hex("1700ffff00000013804c1ab2 00000bc8 01000000000000000100000000000000 cd626ffb");
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.ext, Ext::Ieth(Ieth(Rkey(0xBC8))));
        assert_eq!(packet.payload.len(), 16);
        assert_eq!(emitted(&packet), bytes[..bytes.len() - ICRC_LEN]);
    }

    #[test]
    fn a_sequence_nak_of_rxe_parses_to_its_fields() {
        let bytes = hex("1100ffff00005152002f4a09 60000001 7eaf070e");
        let packet = Packet::parse(&bytes).unwrap();
        let aeth = Aeth { syndrome: Syndrome::Nak(NakCode::PsnSequence), msn: 1 };
        assert_eq!(packet.ext, Ext::Aeth(aeth));
        assert_eq!(packet.bth.psn, 0x2F_4A09);
    }

    #[test]
    fn a_padded_write_keeps_five_bytes_of_payload() {
        let bytes =
            hex("0a30ffff00000011802f4a1c ffff8b3682536c00 0000030c 00000005 6162636465 000000 9c1a2c51");
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.payload, b"abcde");
        assert_eq!(emitted(&packet), bytes[..bytes.len() - ICRC_LEN]);
    }

    #[test]
    fn headers_that_we_send_carry_the_migrated_bit_the_default_partition_and_the_padding() {
        let mut bytes = [0; HEADER_MAX];
        let bth = Bth::new(Opcode::SendOnly, Qpn(0xFF00_0013), 0xFF00_0001, 5).with_ack_req();
        let length = Header { bth, ext: Ext::None }.emit(&mut bytes);
        assert_eq!(bytes[..length], hex("0470ffff0000001380000001"));
        let deth = Deth { qkey: GSI_QKEY, src_qpn: Qpn(1) };
        let bth = Bth::new(Opcode::UdSendOnly, Qpn(1), 4, 256);
        let length = Header { bth, ext: Ext::Deth(deth) }.emit(&mut bytes);
        assert_eq!(bytes[..length], hex("6440ffff00000001000000048001000000000001"));
    }

    #[test]
    fn packets_that_break_a_rule_are_refused_with_the_rule() {
        let good = hex("1100ffff00005152002f4a09 60000001 7eaf070e");
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Packet::parse(&bytes).map(|_| ()).unwrap_err()
        };
        assert_eq!(with(1, 0x01), ParseError::Version(1));
        assert_eq!(with(2, 0x00), ParseError::Pkey(0x00FF));
        assert_eq!(with(0, 0x24), ParseError::Opcode(0x24));
        assert_eq!(with(0, 0x0C), ParseError::Truncated);
        assert_eq!(with(1, 0x10), ParseError::Truncated);
        let mut long = good.clone();
        long.extend_from_slice(&[0; 4]);
        assert_eq!(Packet::parse(&long), Err(ParseError::UnexpectedPayload));
        long.push(0);
        assert_eq!(Packet::parse(&long), Err(ParseError::Unaligned));
        for length in 0..good.len() {
            assert!(Packet::parse(&good[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn limited_partition_members_are_accepted() {
        let bytes = hex("11007fff00005152002f4a09 60000001 7eaf070e");
        assert_eq!(Packet::parse(&bytes).unwrap().bth.pkey, 0x7FFF);
    }

    #[test]
    fn unknown_operations_of_the_reliable_connection_reach_the_responder() {
        for code in [0x15, 0x18, 0x1C, 0x1D, 0x1F] {
            let mut bytes = hex("1100ffff00005152002f4a09 60000001 7eaf070e");
            bytes[0] = code;
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!(packet.bth.opcode, Opcode::Unknown(code));
            assert_eq!(packet.bth.opcode.role(), Role::Request);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail_and_what_parses_is_emitted_again(
            opcode in prop_oneof![0_u8..0x20, 0x64_u8..0x66, Just(0x81), any::<u8>()],
            flags in any::<u8>(),
            mut tail in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let mut bytes = vec![opcode, flags, 0xFF, 0xFF];
            bytes.append(&mut tail);
            if let Ok(packet) = Packet::parse(&bytes) {
                let again = emitted(&packet);
                let mut whole = again.clone();
                whole.extend_from_slice(&[0; ICRC_LEN]);
                prop_assert_eq!(whole.len(), bytes.len());
                let second = Packet::parse(&whole).unwrap();
                prop_assert_eq!(second, packet);
            }
        }
    }
}
