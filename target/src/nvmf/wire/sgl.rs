//! SGL descriptors (base 4.1.2.1; RDMA keyed forms in the RDMA transport specification): 16 bytes whose last one
//! holds the type (7:4) and subtype (3:0).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Type 0h subtype 1h: data block at an offset into the capsule's data.
pub const IN_CAPSULE: u8 = 0x01;
/// Type 3h subtype 1h: last segment of descriptors, at an offset into the capsule's data.
pub const LAST_SEGMENT_IN_CAPSULE: u8 = 0x31;
/// Type 4h subtype 0h: keyed data block.
pub const KEYED: u8 = 0x40;
/// Type 4h subtype Fh: keyed data block whose key the response invalidates.
pub const KEYED_INVALIDATE: u8 = 0x4f;

/// Bytes of a descriptor.
pub const SGL_DESCRIPTOR_LEN: usize = 16;

/// SGL Data Block descriptor (type 0h), and, with the same layout, SGL Last Segment descriptor (type 3h); subtype 1h gives
/// an offset for the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DataBlock {
    /// Address, or offset from the start of in-capsule data.
    pub addr: U64,
    /// Bytes of data, or of descriptors.
    pub length: U32,
    /// Reserved.
    pub rsvd12: [u8; 3],
    /// SGL Identifier.
    pub sglid: u8,
}

/// Keyed SGL Data Block descriptor (type 4h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct KeyedDataBlock {
    /// Address in the host's memory.
    pub addr: U64,
    /// Bytes, 24 bits little-endian.
    pub length: [u8; 3],
    /// Memory key.
    pub key: U32,
    /// SGL Identifier.
    pub sglid: u8,
}

const _: () = assert!(size_of::<DataBlock>() == SGL_DESCRIPTOR_LEN);
const _: () = assert!(size_of::<KeyedDataBlock>() == SGL_DESCRIPTOR_LEN);

impl KeyedDataBlock {
    /// Largest length a keyed descriptor can state, in bytes.
    pub const MAX_LENGTH: u32 = (1 << 24) - 1;
}
