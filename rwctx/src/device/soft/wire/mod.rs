//! The layouts of RoCEv2: base and extension transport headers, management datagrams, CM messages.
//!
//! Every byte offset of the protocol lives in this folder and nowhere else. Bytes become values here, once:
//! [`Packet::parse`] makes all checks that need no connection state, and what it returns is native-endian and in
//! range. Nothing here allocates, and nothing here knows a queue pair. IBTA volume 1, chapters 9, 12 and 13;
//! annex A17 (RoCEv2).

mod bth;
pub mod cm;
mod ext;
mod mad;
mod opcode;
mod packet;
mod reason;
mod syndrome;

pub use bth::{BTH_LEN, Bth, PKEY_DEFAULT};
pub use ext::{Aeth, AtomicAckEth, AtomicEth, Deth, Ext, GSI_QKEY, Ieth, ImmDt, Reth};
pub use mad::{MAD_LEN, MadError};
pub use opcode::{ExtKind, Opcode, Place, Role};
pub use packet::{HEADER_MAX, Header, ICRC_LEN, Packet, ParseError};
pub use reason::RejReason;
pub use syndrome::{CREDITS_NOT_REPORTED, NakCode, RnrTimer, Syndrome};

/// UDP destination port of every RoCEv2 packet, in both directions.
pub const UDP_PORT: u16 = 4791;

/// Bits of a packet sequence number, queue pair number or message sequence number.
const MASK_24: u32 = 0x00FF_FFFF;
