//! Submission queue entry: the first 64 bytes of every command capsule (base 3.3.3.1, figure "Common Command
//! Format"; fabrics capsule layout in base 3.3.2).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a submission queue entry.
pub const SQE_LEN: usize = 64;

/// Submission queue entry, common format.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Sqe {
    /// Opcode (CDW0 7:0).
    pub opc: u8,
    /// FUSE (1:0) and PSDT (7:6) of CDW0 15:8.
    pub flags: u8,
    /// Command Identifier (CDW0 31:16).
    pub cid: U16,
    /// Namespace Identifier; for Fabrics commands the low byte is FCTYPE.
    pub nsid: U32,
    /// Command specific.
    pub cdw2: U32,
    /// Command specific.
    pub cdw3: U32,
    /// Metadata Pointer; reserved over fabrics.
    pub mptr: U64,
    /// Data Pointer: SGL descriptor 1.
    pub dptr: [u8; 16],
    /// Command specific.
    pub cdw10: U32,
    /// Command specific.
    pub cdw11: U32,
    /// Command specific.
    pub cdw12: U32,
    /// Command specific.
    pub cdw13: U32,
    /// Command specific.
    pub cdw14: U32,
    /// Command specific.
    pub cdw15: U32,
}

const _: () = assert!(size_of::<Sqe>() == SQE_LEN);

/// PSDT field of [`Sqe::flags`].
pub const PSDT_MASK: u8 = 0xc0;
/// PSDT 01b: SGL in DPTR, metadata contiguous; the only form that fabrics uses.
pub const PSDT_SGL: u8 = 0x40;
/// FUSE field of [`Sqe::flags`].
pub const FUSE_MASK: u8 = 0x03;

/// Opcodes of Fabrics and Admin commands (base 5, figure "Opcodes for Admin Commands").
pub mod admin_opcode {
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Fabrics command; FCTYPE says which.
    pub const FABRICS: u8 = 0x7f;
}

/// Opcodes of I/O commands (NVM 3, figure "Opcodes for NVM Commands").
pub mod io_opcode {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Compare.
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Verify.
    pub const VERIFY: u8 = 0x0c;
}

/// Bits of CDW12 in I/O commands that name a range of blocks (NVM 3.2).
pub mod rw_bits {
    /// Number of Logical Blocks, 0's based (15:0).
    pub const NLB: u32 = 0xffff;
    /// Command Extension Type (19:16).
    pub const CETYPE: u32 = 0xf << 16;
    /// Directive Type (23:20) of writes.
    pub const DTYPE: u32 = 0xf << 20;
    /// Namespace Zeroes (23) of Write Zeroes.
    pub const NSZ: u32 = 1 << 23;
    /// Storage Tag Check (24).
    pub const STC: u32 = 1 << 24;
    /// Deallocate (25) of Write Zeroes.
    pub const DEAC: u32 = 1 << 25;
    /// PRCHK: reference tag (26).
    pub const PRCHK_REF: u32 = 1 << 26;
    /// PRCHK: application tag (27).
    pub const PRCHK_APP: u32 = 1 << 27;
    /// PRCHK: guard (28).
    pub const PRCHK_GUARD: u32 = 1 << 28;
    /// Protection Information Action (29).
    pub const PRACT: u32 = 1 << 29;
    /// Force Unit Access (30).
    pub const FUA: u32 = 1 << 30;
    /// Limited Retry (31).
    pub const LR: u32 = 1 << 31;
}

/// One entry of the Dataset Management range list (NVM 3.2.3).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DsmRange {
    /// Context Attributes; hints.
    pub cattr: U32,
    /// Length in logical blocks (not 0's based).
    pub nlb: U32,
    /// Starting LBA.
    pub slba: U64,
}

const _: () = assert!(size_of::<DsmRange>() == 16);
