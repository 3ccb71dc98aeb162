//! The extension transport headers that follow a BTH (IBTA 9.3 and 9.4).

use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ExtKind, MASK_24, Syndrome};
use crate::device::Qpn;
use crate::remote::Rkey;

/// Q_Key of the general services interface, QP1.
pub const GSI_QKEY: u32 = 0x8001_0000;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawReth {
    va: U64,
    rkey: U32,
    dma_len: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAeth {
    /// Syndrome, then 24 bits of MSN.
    word: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDeth {
    qkey: U32,
    /// A reserved byte, then 24 bits of QPN.
    src_qpn: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAtomicEth {
    va: U64,
    rkey: U32,
    swap_or_add: U64,
    compare: U64,
}

const _: () = assert!(size_of::<RawReth>() == 16);
const _: () = assert!(size_of::<RawAeth>() == 4);
const _: () = assert!(size_of::<RawDeth>() == 8);
const _: () = assert!(size_of::<RawAtomicEth>() == 28);

/// RDMA extended transport header: the memory of the responder that a WRITE or READ names (IBTA 9.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address of the first byte.
    pub va: u64,
    /// Key that grants access.
    pub rkey: Rkey,
    /// Bytes of the whole message, 0 to 2^31; the receiver checks the bound.
    pub dma_len: u32,
}

/// ACK extended transport header (IBTA 9.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// What the responder says.
    pub syndrome: Syndrome,
    /// Message sequence number: messages completed, modulo 2^24.
    pub msn: u32,
}

/// Immediate data, in the order of the wire (IBTA 9.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmDt(pub [u8; 4]);

/// Invalidate extended transport header: the key of the responder that a SEND invalidates (IBTA 9.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ieth(pub Rkey);

/// Datagram extended transport header (IBTA 9.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key; [`GSI_QKEY`] for QP1.
    pub qkey: u32,
    /// Queue pair of the sender.
    pub src_qpn: Qpn,
}

/// Atomic extended transport header (IBTA 9.3.4). Parsed so that atomics can be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address of the 8 bytes.
    pub va: u64,
    /// Key that grants access.
    pub rkey: Rkey,
    /// Value to store, or to add.
    pub swap_or_add: u64,
    /// Value that must be there for a swap.
    pub compare: u64,
}

/// Atomic ACK extended transport header: the value that was there before (IBTA 9.3.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth(pub u64);

/// The extension headers of one packet; which one is a function of the opcode ([`super::Opcode::ext_kind`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ext {
    /// None.
    None,
    /// SEND or WRITE LAST, SEND ONLY with immediate data.
    Imm(ImmDt),
    /// WRITE FIRST or ONLY, READ request.
    Reth(Reth),
    /// WRITE ONLY with immediate data.
    RethImm(Reth, ImmDt),
    /// Acknowledge, READ response FIRST, LAST or ONLY.
    Aeth(Aeth),
    /// Atomic acknowledge.
    AethAtomicAck(Aeth, AtomicAckEth),
    /// Atomic request.
    Atomic(AtomicEth),
    /// SEND with invalidate.
    Ieth(Ieth),
    /// Datagram.
    Deth(Deth),
    /// Datagram with immediate data.
    DethImm(Deth, ImmDt),
    /// Congestion notification; its 16 bytes are reserved.
    Cnp,
}

impl Reth {
    #[inline]
    fn from_raw(raw: &RawReth) -> Self {
        Self { va: raw.va.get(), rkey: Rkey(raw.rkey.get()), dma_len: raw.dma_len.get() }
    }

    #[inline]
    fn to_raw(self) -> RawReth {
        RawReth { va: U64::new(self.va), rkey: U32::new(self.rkey.0), dma_len: U32::new(self.dma_len) }
    }
}

impl Aeth {
    #[inline]
    fn from_raw(raw: &RawAeth) -> Self {
        let [syndrome, ..] = raw.word.to_bytes();
        Self { syndrome: Syndrome::from(syndrome), msn: raw.word.get() & MASK_24 }
    }

    #[inline]
    fn to_raw(self) -> RawAeth {
        RawAeth { word: U32::new(u32::from(u8::from(self.syndrome)) << 24 | (self.msn & MASK_24)) }
    }
}

impl Deth {
    #[inline]
    fn from_raw(raw: &RawDeth) -> Self {
        Self { qkey: raw.qkey.get(), src_qpn: Qpn(raw.src_qpn.get() & MASK_24) }
    }

    #[inline]
    fn to_raw(self) -> RawDeth {
        RawDeth { qkey: U32::new(self.qkey), src_qpn: U32::new(self.src_qpn.0 & MASK_24) }
    }
}

impl AtomicEth {
    #[inline]
    fn from_raw(raw: &RawAtomicEth) -> Self {
        Self {
            va: raw.va.get(),
            rkey: Rkey(raw.rkey.get()),
            swap_or_add: raw.swap_or_add.get(),
            compare: raw.compare.get(),
        }
    }

    #[inline]
    fn to_raw(self) -> RawAtomicEth {
        RawAtomicEth {
            va: U64::new(self.va),
            rkey: U32::new(self.rkey.0),
            swap_or_add: U64::new(self.swap_or_add),
            compare: U64::new(self.compare),
        }
    }
}

impl Ext {
    /// Which headers these are.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> ExtKind {
        match self {
            Self::None => ExtKind::None,
            Self::Imm(_) => ExtKind::Imm,
            Self::Reth(_) => ExtKind::Reth,
            Self::RethImm(..) => ExtKind::RethImm,
            Self::Aeth(_) => ExtKind::Aeth,
            Self::AethAtomicAck(..) => ExtKind::AethAtomicAck,
            Self::Atomic(_) => ExtKind::Atomic,
            Self::Ieth(_) => ExtKind::Ieth,
            Self::Deth(_) => ExtKind::Deth,
            Self::DethImm(..) => ExtKind::DethImm,
            Self::Cnp => ExtKind::Cnp,
        }
    }

    /// Reads the headers of `kind` from the start of `bytes`; `None` when they are cut short. The rest follows them.
    #[inline]
    pub(super) fn parse(kind: ExtKind, bytes: &[u8]) -> Option<(Self, &[u8])> {
        fn imm(bytes: &[u8]) -> Option<(ImmDt, &[u8])> {
            let (raw, rest) = bytes.split_first_chunk::<4>()?;
            Some((ImmDt(*raw), rest))
        }
        Some(match kind {
            ExtKind::None => (Self::None, bytes),
            ExtKind::Imm => {
                let (imm, rest) = imm(bytes)?;
                (Self::Imm(imm), rest)
            }
            ExtKind::Reth => {
                let (raw, rest) = RawReth::ref_from_prefix(bytes).ok()?;
                (Self::Reth(Reth::from_raw(raw)), rest)
            }
            ExtKind::RethImm => {
                let (raw, rest) = RawReth::ref_from_prefix(bytes).ok()?;
                let (imm, rest) = imm(rest)?;
                (Self::RethImm(Reth::from_raw(raw), imm), rest)
            }
            ExtKind::Aeth => {
                let (raw, rest) = RawAeth::ref_from_prefix(bytes).ok()?;
                (Self::Aeth(Aeth::from_raw(raw)), rest)
            }
            ExtKind::AethAtomicAck => {
                let (raw, rest) = RawAeth::ref_from_prefix(bytes).ok()?;
                let (value, rest) = U64::ref_from_prefix(rest).ok()?;
                (Self::AethAtomicAck(Aeth::from_raw(raw), AtomicAckEth(value.get())), rest)
            }
            ExtKind::Atomic => {
                let (raw, rest) = RawAtomicEth::ref_from_prefix(bytes).ok()?;
                (Self::Atomic(AtomicEth::from_raw(raw)), rest)
            }
            ExtKind::Ieth => {
                let (raw, rest) = U32::ref_from_prefix(bytes).ok()?;
                (Self::Ieth(Ieth(Rkey(raw.get()))), rest)
            }
            ExtKind::Deth => {
                let (raw, rest) = RawDeth::ref_from_prefix(bytes).ok()?;
                (Self::Deth(Deth::from_raw(raw)), rest)
            }
            ExtKind::DethImm => {
                let (raw, rest) = RawDeth::ref_from_prefix(bytes).ok()?;
                let (imm, rest) = imm(rest)?;
                (Self::DethImm(Deth::from_raw(raw), imm), rest)
            }
            ExtKind::Cnp => (Self::Cnp, bytes.get(ExtKind::Cnp.len()..)?),
        })
    }

    /// Writes the headers to the start of `to`, which has room for them; returns their length.
    #[inline]
    pub(super) fn emit(&self, to: &mut [u8]) -> usize {
        let length = self.kind().len();
        let to = &mut to[..length];
        match self {
            Self::None => {}
            Self::Imm(imm) => to.copy_from_slice(&imm.0),
            Self::Reth(reth) => to.copy_from_slice(reth.to_raw().as_bytes()),
            Self::RethImm(reth, imm) => {
                to[..16].copy_from_slice(reth.to_raw().as_bytes());
                to[16..].copy_from_slice(&imm.0);
            }
            Self::Aeth(aeth) => to.copy_from_slice(aeth.to_raw().as_bytes()),
            Self::AethAtomicAck(aeth, value) => {
                to[..4].copy_from_slice(aeth.to_raw().as_bytes());
                to[4..].copy_from_slice(&value.0.to_be_bytes());
            }
            Self::Atomic(atomic) => to.copy_from_slice(atomic.to_raw().as_bytes()),
            Self::Ieth(ieth) => to.copy_from_slice(&ieth.0.0.to_be_bytes()),
            Self::Deth(deth) => to.copy_from_slice(deth.to_raw().as_bytes()),
            Self::DethImm(deth, imm) => {
                to[..8].copy_from_slice(deth.to_raw().as_bytes());
                to[8..].copy_from_slice(&imm.0);
            }
            Self::Cnp => to.fill(0),
        }
        length
    }
}
