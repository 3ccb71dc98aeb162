//! The base transport header (IBTA 9.2).

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{MASK_24, Opcode};
use crate::device::Qpn;

/// Bytes of a BTH.
pub const BTH_LEN: usize = 12;

/// The partition key of RoCE: the default partition, full member.
pub const PKEY_DEFAULT: u16 = 0xFFFF;

const SOLICITED: u8 = 0x80;
const MIG_REQ: u8 = 0x40;
const PAD_SHIFT: u32 = 4;
const PAD_MASK: u8 = 0x03;
const TVER_MASK: u8 = 0x0F;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQ: u8 = 0x80;

/// ```text
///  0       1                 2       4              5         8               9
/// | opcode | SE M Pad2 TVer4 | P_Key | F B reserved | DestQPN | A reserved    | PSN |
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawBth {
    opcode: u8,
    flags: u8,
    pkey: U16,
    /// FECN, BECN and six reserved bits, then 24 bits of QPN.
    dest: U32,
    /// AckReq and seven reserved bits, then 24 bits of PSN.
    psn: U32,
}

const _: () = assert!(size_of::<RawBth>() == BTH_LEN);

/// A base transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Operation.
    pub opcode: Opcode,
    /// Solicited event: the receiver wants to be woken. Meaningless to us.
    pub solicited: bool,
    /// Migration state; hardware sends 1, receivers of RoCE ignore it.
    pub mig_req: bool,
    /// Zero bytes between payload and ICRC, 0-3.
    pub pad_count: u8,
    /// Partition key.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// Queue pair of the receiver.
    pub dest_qpn: Qpn,
    /// The sender wants an acknowledge for this packet.
    pub ack_req: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

impl Bth {
    /// The header of a packet that we send: P_Key 0xFFFF, MigReq 1, no flags, padding for `payload_len` bytes of
    /// payload. Of `dest_qpn` and `psn` the low 24 bits count.
    #[must_use]
    #[inline]
    pub fn new(opcode: Opcode, dest_qpn: Qpn, psn: u32, payload_len: usize) -> Self {
        Self {
            opcode,
            solicited: false,
            mig_req: true,
            pad_count: pad_count(payload_len),
            pkey: PKEY_DEFAULT,
            fecn: false,
            becn: false,
            dest_qpn: Qpn(dest_qpn.0 & MASK_24),
            ack_req: false,
            psn: psn & MASK_24,
        }
    }

    /// The same header with AckReq set.
    #[must_use]
    #[inline]
    pub fn with_ack_req(self) -> Self {
        Self { ack_req: true, ..self }
    }

    /// Whether the partition is the default one; the membership bit does not matter.
    #[must_use]
    #[inline]
    pub fn pkey_is_default(&self) -> bool {
        self.pkey & 0x7FFF == PKEY_DEFAULT & 0x7FFF
    }

    /// The fields, and the transport version, which must be 0.
    #[inline]
    pub(super) fn from_raw(raw: &RawBth) -> (Self, u8) {
        let [notifications, ..] = raw.dest.to_bytes();
        let [request, ..] = raw.psn.to_bytes();
        let bth = Self {
            opcode: Opcode::from(raw.opcode),
            solicited: raw.flags & SOLICITED != 0,
            mig_req: raw.flags & MIG_REQ != 0,
            pad_count: (raw.flags >> PAD_SHIFT) & PAD_MASK,
            pkey: raw.pkey.get(),
            fecn: notifications & FECN != 0,
            becn: notifications & BECN != 0,
            dest_qpn: Qpn(raw.dest.get() & MASK_24),
            ack_req: request & ACK_REQ != 0,
            psn: raw.psn.get() & MASK_24,
        };
        (bth, raw.flags & TVER_MASK)
    }

    /// As on the wire, reserved bits 0.
    #[inline]
    pub(super) fn to_raw(self) -> RawBth {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        RawBth {
            opcode: self.opcode.into(),
            flags: flag(self.solicited, SOLICITED)
                | flag(self.mig_req, MIG_REQ)
                | (self.pad_count & PAD_MASK) << PAD_SHIFT,
            pkey: U16::new(self.pkey),
            dest: U32::new(
                u32::from(flag(self.fecn, FECN) | flag(self.becn, BECN)) << 24 | (self.dest_qpn.0 & MASK_24),
            ),
            psn: U32::new(u32::from(flag(self.ack_req, ACK_REQ)) << 24 | (self.psn & MASK_24)),
        }
    }
}

/// Pad bytes after `payload_len` bytes of payload: to the next multiple of 4.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "0 to 3")]
fn pad_count(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() & 3) as u8
}
