//! Fabrics commands and the properties they reach (base 3.1.3 "Controller Properties", 6 "Fabrics Command Set").

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Fabrics command types (FCTYPE, SQE byte 4).
pub mod fctype {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect.
    pub const DISCONNECT: u8 = 0x08;
}

/// Property offsets (base 3.1.3).
pub mod property {
    /// Controller Capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version, 4 bytes.
    pub const VS: u32 = 0x08;
    /// Controller Configuration, 4 bytes.
    pub const CC: u32 = 0x14;
    /// Controller Status, 4 bytes.
    pub const CSTS: u32 = 0x1c;
    /// NVM Subsystem Reset, 4 bytes.
    pub const NSSR: u32 = 0x20;
    /// Controller Ready Timeouts, 4 bytes.
    pub const CRTO: u32 = 0x68;
}

/// Bytes of Connect's data.
pub const CONNECT_DATA_LEN: usize = 1024;
/// Longest NQN in bytes, without its terminating zero.
pub const NQN_MAX_LEN: usize = 223;
/// The well-known discovery NQN (base 4.5.1).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Connect data (base 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// Host Identifier.
    pub hostid: [u8; 16],
    /// Controller ID; FFFFh asks for a new (dynamic) controller.
    pub cntlid: U16,
    /// Reserved.
    pub rsvd18: [u8; 238],
    /// NVM Subsystem NQN, zero-padded.
    pub subnqn: [u8; 256],
    /// Host NQN, zero-padded.
    pub hostnqn: [u8; 256],
    /// Reserved.
    pub rsvd768: [u8; 256],
}

const _: () = assert!(size_of::<ConnectData>() == CONNECT_DATA_LEN);

/// Byte offsets in [`ConnectData`] that an Invalid Parameters answer points at.
pub mod connect_data_offset {
    /// HOSTID.
    pub const HOSTID: u16 = 0;
    /// CNTLID.
    pub const CNTLID: u16 = 16;
    /// SUBNQN.
    pub const SUBNQN: u16 = 256;
    /// HOSTNQN.
    pub const HOSTNQN: u16 = 512;
}

/// Byte offsets in the Connect SQE that an Invalid Parameters answer points at.
pub mod connect_sqe_offset {
    /// QID.
    pub const QID: u16 = 42;
    /// SQSIZE.
    pub const SQSIZE: u16 = 44;
    /// CATTR.
    pub const CATTR: u16 = 46;
    /// KATO.
    pub const KATO: u16 = 48;
}

/// CATTR bit 2: disable SQ flow control.
pub const CATTR_DISABLE_SQFC: u8 = 1 << 2;
