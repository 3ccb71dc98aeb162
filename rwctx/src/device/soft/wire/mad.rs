//! Management datagrams: the 256 bytes that QP1 carries (IBTA 13.4).

use thiserror::Error;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a management datagram.
pub const MAD_LEN: usize = 256;

/// Bytes of its header.
pub(super) const MAD_HEADER_LEN: usize = 24;

const BASE_VERSION: u8 = 1;
const CLASS_CM: u8 = 7;
const CLASS_VERSION_CM: u8 = 2;
const METHOD_SEND: u8 = 3;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMadHeader {
    base_version: u8,
    class: u8,
    class_version: u8,
    method: u8,
    status: U16,
    class_specific: U16,
    transaction_id: U64,
    attribute_id: U16,
    reserved: U16,
    attribute_modifier: U32,
}

const _: () = assert!(size_of::<RawMadHeader>() == MAD_HEADER_LEN);

/// Which message of the communication management class a datagram is (IBTA 12.6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Attribute {
    Req,
    Mra,
    Rej,
    Rep,
    Rtu,
    Dreq,
    Drep,
    SidrReq,
    SidrRep,
    /// Any other, of which LAP (0x19) and APR (0x1A) have a meaning that RoCE does not use.
    Unknown(u16),
}

/// Why a datagram is no message of the connection manager. Such datagrams are dropped in silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MadError {
    /// Not 256 bytes.
    #[error("{0} bytes are no management datagram")]
    Length(usize),
    /// Another version of the format, or of the class.
    #[error("management datagram version {base}, class version {class}")]
    Version {
        /// Base version.
        base: u8,
        /// Class version.
        class: u8,
    },
    /// Another management class.
    #[error("management class {0:#04x}")]
    Class(u8),
    /// Another method than Send.
    #[error("method {0:#04x}")]
    Method(u8),
    /// A message that we do not take.
    #[error("attribute {0:#06x}")]
    Attribute(u16),
}

impl From<u16> for Attribute {
    fn from(id: u16) -> Self {
        match id {
            0x10 => Self::Req,
            0x11 => Self::Mra,
            0x12 => Self::Rej,
            0x13 => Self::Rep,
            0x14 => Self::Rtu,
            0x15 => Self::Dreq,
            0x16 => Self::Drep,
            0x17 => Self::SidrReq,
            0x18 => Self::SidrRep,
            other => Self::Unknown(other),
        }
    }
}

impl From<Attribute> for u16 {
    fn from(attribute: Attribute) -> Self {
        match attribute {
            Attribute::Req => 0x10,
            Attribute::Mra => 0x11,
            Attribute::Rej => 0x12,
            Attribute::Rep => 0x13,
            Attribute::Rtu => 0x14,
            Attribute::Dreq => 0x15,
            Attribute::Drep => 0x16,
            Attribute::SidrReq => 0x17,
            Attribute::SidrRep => 0x18,
            Attribute::Unknown(other) => other,
        }
    }
}

/// Splits a datagram of the connection manager into transaction ID, message kind and body (232 bytes).
pub(super) fn parse(mad: &[u8]) -> Result<(u64, Attribute, &[u8]), MadError> {
    if mad.len() != MAD_LEN {
        return Err(MadError::Length(mad.len()));
    }
    let (header, body) =
        RawMadHeader::ref_from_prefix(mad).expect("256 bytes begin with a header of 24, alignment 1");
    if header.class != CLASS_CM {
        return Err(MadError::Class(header.class));
    }
    if header.base_version != BASE_VERSION || header.class_version != CLASS_VERSION_CM {
        return Err(MadError::Version { base: header.base_version, class: header.class_version });
    }
    if header.method != METHOD_SEND {
        return Err(MadError::Method(header.method));
    }
    Ok((header.transaction_id.get(), header.attribute_id.get().into(), body))
}

/// A datagram of the connection manager with an empty body.
pub(super) fn emit(transaction_id: u64, attribute: Attribute) -> [u8; MAD_LEN] {
    let header = RawMadHeader {
        base_version: BASE_VERSION,
        class: CLASS_CM,
        class_version: CLASS_VERSION_CM,
        method: METHOD_SEND,
        status: U16::ZERO,
        class_specific: U16::ZERO,
        transaction_id: U64::new(transaction_id),
        attribute_id: U16::new(attribute.into()),
        reserved: U16::ZERO,
        attribute_modifier: U32::ZERO,
    };
    let mut mad = [0; MAD_LEN];
    mad[..MAD_HEADER_LEN].copy_from_slice(header.as_bytes());
    mad
}
