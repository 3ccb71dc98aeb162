//! Identify data structures (base 5.17.2; NVM 4.1.5): 4096 bytes each.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of every Identify data structure.
pub const IDENTIFY_LEN: usize = 4096;
/// Most entries of a namespace list.
pub const NSID_LIST_LEN: usize = 1024;

/// Controller or Namespace Structure values.
pub mod cns {
    /// Identify Namespace.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active Namespace ID list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// I/O Command Set specific Identify Namespace.
    pub const CSI_NAMESPACE: u8 = 0x05;
    /// I/O Command Set specific Identify Controller.
    pub const CSI_CONTROLLER: u8 = 0x06;
    /// I/O Command Set specific Active Namespace ID list.
    pub const CSI_ACTIVE_NAMESPACES: u8 = 0x07;
    /// I/O Command Set Independent Identify Namespace.
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
}

/// Command Set Identifier of the NVM Command Set.
pub const CSI_NVM: u8 = 0x00;

/// Identify Controller (CNS 01h).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI Vendor ID.
    pub vid: U16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: U16,
    /// Serial Number, ASCII, space-padded.
    pub sn: [u8; 20],
    /// Model Number, ASCII, space-padded.
    pub mn: [u8; 40],
    /// Firmware Revision, ASCII, space-padded.
    pub fr: [u8; 8],
    /// Recommended Arbitration Burst, log2.
    pub rab: u8,
    /// IEEE OUI.
    pub ieee: [u8; 3],
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities.
    pub cmic: u8,
    /// Maximum Data Transfer Size, log2 of pages; 0 = no limit.
    pub mdts: u8,
    /// Controller ID.
    pub cntlid: U16,
    /// Version.
    pub ver: U32,
    /// RTD3 Resume Latency.
    pub rtd3r: U32,
    /// RTD3 Entry Latency.
    pub rtd3e: U32,
    /// Optional Asynchronous Events Supported.
    pub oaes: U32,
    /// Controller Attributes.
    pub ctratt: U32,
    /// Read Recovery Levels Supported.
    pub rrls: U16,
    /// Reserved.
    pub rsvd102: [u8; 9],
    /// Controller Type.
    pub cntrltype: u8,
    /// FRU Globally Unique Identifier.
    pub fguid: [u8; 16],
    /// Command Retry Delay Times 1 to 3.
    pub crdt: [U16; 3],
    /// Reserved and NVMe-MI.
    pub rsvd134: [u8; 122],
    /// Optional Admin Command Support.
    pub oacs: U16,
    /// Abort Command Limit, 0's based.
    pub acl: u8,
    /// Asynchronous Event Request Limit, 0's based.
    pub aerl: u8,
    /// Firmware Updates.
    pub frmw: u8,
    /// Log Page Attributes.
    pub lpa: u8,
    /// Error Log Page Entries, 0's based.
    pub elpe: u8,
    /// Number of Power States Support, 0's based.
    pub npss: u8,
    /// Admin Vendor Specific Command Configuration.
    pub avscc: u8,
    /// Autonomous Power State Transition Attributes.
    pub apsta: u8,
    /// Warning Composite Temperature Threshold, kelvin.
    pub wctemp: U16,
    /// Critical Composite Temperature Threshold, kelvin.
    pub cctemp: U16,
    /// Maximum Time for Firmware Activation.
    pub mtfa: U16,
    /// Host Memory Buffer Preferred Size.
    pub hmpre: U32,
    /// Host Memory Buffer Minimum Size.
    pub hmmin: U32,
    /// Total NVM Capacity.
    pub tnvmcap: [u8; 16],
    /// Unallocated NVM Capacity.
    pub unvmcap: [u8; 16],
    /// Replay Protected Memory Block Support.
    pub rpmbs: U32,
    /// Extended Device Self-test Time.
    pub edstt: U16,
    /// Device Self-test Options.
    pub dsto: u8,
    /// Firmware Update Granularity.
    pub fwug: u8,
    /// Keep Alive Support: granularity of KATO in 100 ms.
    pub kas: U16,
    /// Thermal management, sanitize, ANA and what else comes before SQES.
    pub rsvd322: [u8; 190],
    /// Submission Queue Entry Size: required (3:0) and maximum (7:4), log2.
    pub sqes: u8,
    /// Completion Queue Entry Size.
    pub cqes: u8,
    /// Maximum Outstanding Commands of a queue.
    pub maxcmd: U16,
    /// Number of Namespaces: the highest NSID.
    pub nn: U32,
    /// Optional NVM Command Support.
    pub oncs: U16,
    /// Fused Operation Support.
    pub fuses: U16,
    /// Format NVM Attributes.
    pub fna: u8,
    /// Volatile Write Cache.
    pub vwc: u8,
    /// Atomic Write Unit Normal, blocks, 0's based.
    pub awun: U16,
    /// Atomic Write Unit Power Fail, blocks, 0's based.
    pub awupf: U16,
    /// I/O Command Set Vendor Specific Command Configuration.
    pub icsvscc: u8,
    /// Namespace Write Protection Capabilities.
    pub nwpc: u8,
    /// Atomic Compare & Write Unit.
    pub acwu: U16,
    /// Copy Descriptor Formats Supported.
    pub cdfs: U16,
    /// SGL Support.
    pub sgls: U32,
    /// Maximum Number of Allowed Namespaces.
    pub mnan: U32,
    /// Reserved.
    pub rsvd544: [u8; 224],
    /// NVM Subsystem NQN, zero-terminated.
    pub subnqn: [u8; 256],
    /// Reserved.
    pub rsvd1024: [u8; 768],
    /// I/O Queue Command Capsule Supported Size, 16-byte units.
    pub ioccsz: U32,
    /// I/O Queue Response Capsule Supported Size, 16-byte units.
    pub iorcsz: U32,
    /// In Capsule Data Offset, 16-byte units behind the SQE.
    pub icdoff: U16,
    /// Fabrics Controller Attributes.
    pub fcatt: u8,
    /// Maximum SGL Data Block Descriptors.
    pub msdbd: u8,
    /// Optional Fabric Commands Supported.
    pub ofcs: U16,
    /// Reserved.
    pub rsvd1806: [u8; 242],
    /// Power State Descriptors 0 to 31.
    pub psd: [[u8; 32]; 32],
    /// Vendor Specific.
    pub vs: [u8; 1024],
}

/// LBA Format (NVM figure "LBA Format Data Structure").
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata Size, bytes.
    pub ms: U16,
    /// LBA Data Size, log2.
    pub lbads: u8,
    /// Relative Performance.
    pub rp: u8,
}

/// Identify Namespace (CNS 00h, NVM Command Set).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Namespace Size, blocks.
    pub nsze: U64,
    /// Namespace Capacity, blocks.
    pub ncap: U64,
    /// Namespace Utilization, blocks.
    pub nuse: U64,
    /// Namespace Features.
    pub nsfeat: u8,
    /// Number of LBA Formats, 0's based.
    pub nlbaf: u8,
    /// Formatted LBA Size: format index (3:0), metadata at the end of the LBA (4).
    pub flbas: u8,
    /// Metadata Capabilities.
    pub mc: u8,
    /// End-to-end Data Protection Capabilities.
    pub dpc: u8,
    /// End-to-end Data Protection Type Settings.
    pub dps: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// Deallocate Logical Block Features.
    pub dlfeat: u8,
    /// Namespace Atomic Write Unit Normal.
    pub nawun: U16,
    /// Namespace Atomic Write Unit Power Fail.
    pub nawupf: U16,
    /// Namespace Atomic Compare & Write Unit.
    pub nacwu: U16,
    /// Atomic boundaries, optimal sizes, copy limits.
    pub rsvd40: [u8; 8],
    /// NVM Capacity, bytes.
    pub nvmcap: [u8; 16],
    /// Preferred granularities and copy limits.
    pub rsvd64: [u8; 28],
    /// ANA Group Identifier.
    pub anagrpid: U32,
    /// Reserved.
    pub rsvd96: [u8; 3],
    /// Namespace Attributes: write protected (0).
    pub nsattr: u8,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace Globally Unique Identifier, most significant byte first.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier.
    pub eui64: [u8; 8],
    /// LBA Formats.
    pub lbaf: [LbaFormat; 64],
    /// Vendor Specific.
    pub vs: [[u8; 32]; 116],
}

/// NVM Command Set Identify Namespace (CNS 05h, CSI 00h).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespaceNvm {
    /// Logical Block Storage Tag Mask.
    pub lbstm: U64,
    /// Protection Information Capabilities.
    pub pic: u8,
    /// Protection Information Format Attributes.
    pub pifa: u8,
    /// Reserved.
    pub rsvd10: [u8; 2],
    /// Extended LBA Formats: STS (6:0), PIF (8:7).
    pub elbaf: [U32; 64],
    /// Reserved.
    pub rsvd268: [[u8; 4]; 957],
}

/// NVM Command Set Identify Controller (CNS 06h, CSI 00h).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyControllerNvm {
    /// Verify Size Limit, as MDTS.
    pub vsl: u8,
    /// Write Zeroes Size Limit, as MDTS.
    pub wzsl: u8,
    /// Write Uncorrectable Size Limit.
    pub wusl: u8,
    /// Dataset Management Ranges Limit.
    pub dmrl: u8,
    /// Dataset Management Range Size Limit, blocks.
    pub dmrsl: U32,
    /// Dataset Management Size Limit, blocks.
    pub dmsl: U64,
    /// Reserved.
    pub rsvd16: [[u8; 16]; 255],
}

/// I/O Command Set Independent Identify Namespace (CNS 08h).
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespaceIndependent {
    /// Common Namespace Features.
    pub nsfeat: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// ANA Group Identifier.
    pub anagrpid: U32,
    /// Namespace Attributes.
    pub nsattr: u8,
    /// Reserved.
    pub rsvd9: u8,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace Status: ready (0).
    pub nstat: u8,
    /// Reserved.
    pub rsvd15: u8,
    /// Reserved.
    pub rsvd16: [[u8; 16]; 255],
}

const _: () = assert!(size_of::<IdentifyController>() == IDENTIFY_LEN);
const _: () = assert!(size_of::<IdentifyNamespace>() == IDENTIFY_LEN);
const _: () = assert!(size_of::<IdentifyNamespaceNvm>() == IDENTIFY_LEN);
const _: () = assert!(size_of::<IdentifyControllerNvm>() == IDENTIFY_LEN);
const _: () = assert!(size_of::<IdentifyNamespaceIndependent>() == IDENTIFY_LEN);
const _: () = {
    assert!(std::mem::offset_of!(IdentifyController, cntlid) == 78);
    assert!(std::mem::offset_of!(IdentifyController, oaes) == 92);
    assert!(std::mem::offset_of!(IdentifyController, cntrltype) == 111);
    assert!(std::mem::offset_of!(IdentifyController, oacs) == 256);
    assert!(std::mem::offset_of!(IdentifyController, kas) == 320);
    assert!(std::mem::offset_of!(IdentifyController, sqes) == 512);
    assert!(std::mem::offset_of!(IdentifyController, oncs) == 520);
    assert!(std::mem::offset_of!(IdentifyController, vwc) == 525);
    assert!(std::mem::offset_of!(IdentifyController, sgls) == 536);
    assert!(std::mem::offset_of!(IdentifyController, subnqn) == 768);
    assert!(std::mem::offset_of!(IdentifyController, ioccsz) == 1792);
    assert!(std::mem::offset_of!(IdentifyController, psd) == 2048);
    assert!(std::mem::offset_of!(IdentifyNamespace, nvmcap) == 48);
    assert!(std::mem::offset_of!(IdentifyNamespace, anagrpid) == 92);
    assert!(std::mem::offset_of!(IdentifyNamespace, nguid) == 104);
    assert!(std::mem::offset_of!(IdentifyNamespace, lbaf) == 128);
    assert!(std::mem::offset_of!(IdentifyNamespaceNvm, elbaf) == 12);
};

/// Namespace Identifier Types of the descriptor list (CNS 03h).
pub mod nidt {
    /// NGUID, 16 bytes.
    pub const NGUID: u8 = 0x02;
    /// UUID, 16 bytes.
    pub const UUID: u8 = 0x03;
    /// Command Set Identifier, 1 byte.
    pub const CSI: u8 = 0x04;
}

/// Sets an ASCII field: `text`, cut or padded with spaces.
pub fn set_ascii(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
}

/// Text of a space- or zero-padded ASCII field.
#[must_use]
pub fn ascii(field: &[u8]) -> String {
    let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).trim_end_matches(' ').to_owned()
}

/// A structure of zeroes, on the heap: several of 4 KiB in one call chain are much for a stack.
#[must_use]
pub fn zeroed<T: FromZeros>() -> Box<T> {
    Box::new(T::new_zeroed())
}
