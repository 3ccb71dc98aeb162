//! Log pages (base 5.16.1; Discovery log page in base 5.16.1.23 and the fabrics specification).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Log Page Identifiers.
pub mod lid {
    /// Supported Log Pages.
    pub const SUPPORTED_LOG_PAGES: u8 = 0x00;
    /// Error Information.
    pub const ERROR_INFORMATION: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const COMMAND_EFFECTS: u8 = 0x05;
    /// Feature Identifiers Supported and Effects.
    pub const FEATURE_EFFECTS: u8 = 0x12;
    /// NVMe-MI Commands Supported and Effects.
    pub const MI_EFFECTS: u8 = 0x13;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
}

/// Error Information log entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ErrorEntry {
    /// Error Count: 1 for the first error; 0 in entries not used.
    pub error_count: U64,
    /// Submission Queue ID.
    pub sqid: U16,
    /// Command ID.
    pub cmdid: U16,
    /// Status Field, as in the CQE (status in 15:1).
    pub status: U16,
    /// Parameter Error Location; FFFFh when not about one.
    pub location: U16,
    /// First LBA that had the error.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// Vendor Specific Information Available.
    pub vs: u8,
    /// Transport Type: 1 = RDMA.
    pub trtype: u8,
    /// Command Set Indicator.
    pub csi: u8,
    /// Opcode.
    pub opcode: u8,
    /// Command Specific Information.
    pub command_specific: U64,
    /// Transport Type Specific Information.
    pub ttsi: U16,
    /// Reserved.
    pub rsvd42: [u8; 21],
    /// Log Page Version; 1 = CSI and opcode are valid.
    pub version: u8,
}

/// SMART / Health Information log page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SmartLog {
    /// Critical Warning.
    pub critical_warning: u8,
    /// Composite Temperature, kelvin; 0 = not reported.
    pub composite_temperature: U16,
    /// Available Spare, percent.
    pub available_spare: u8,
    /// Available Spare Threshold, percent.
    pub available_spare_threshold: u8,
    /// Percentage Used.
    pub percentage_used: u8,
    /// Endurance Group Critical Warning Summary.
    pub endurance_warning: u8,
    /// Reserved.
    pub rsvd7: [u8; 25],
    /// Data Units Read: 1000 units of 512 bytes, rounded up.
    pub data_units_read: [u8; 16],
    /// Data Units Written.
    pub data_units_written: [u8; 16],
    /// Host Read Commands.
    pub host_reads: [u8; 16],
    /// Host Write Commands.
    pub host_writes: [u8; 16],
    /// Controller Busy Time, minutes.
    pub controller_busy_time: [u8; 16],
    /// Power Cycles.
    pub power_cycles: [u8; 16],
    /// Power On Hours.
    pub power_on_hours: [u8; 16],
    /// Unsafe Shutdowns.
    pub unsafe_shutdowns: [u8; 16],
    /// Media and Data Integrity Errors.
    pub media_errors: [u8; 16],
    /// Number of Error Information Log Entries over the life of the controller.
    pub error_log_entries: [u8; 16],
    /// Temperature times, sensors, thermal management.
    pub rsvd192: [[u8; 16]; 20],
}

/// Firmware Slot Information log page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FirmwareSlotLog {
    /// Active Firmware Info: slot (2:0).
    pub afi: u8,
    /// Reserved.
    pub rsvd1: [u8; 7],
    /// Firmware Revision of slots 1 to 7.
    pub frs: [[u8; 8]; 7],
    /// Reserved.
    pub rsvd64: [[u8; 64]; 7],
}

/// Commands Supported and Effects log page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CommandEffectsLog {
    /// Admin Command Supported, by opcode.
    pub acs: [U32; 256],
    /// I/O Command Supported, by opcode.
    pub iocs: [U32; 256],
    /// Reserved.
    pub rsvd2048: [[u8; 64]; 32],
}

/// Bits of the entries of [`CommandEffectsLog`].
pub mod effects {
    /// Command Supported; also LID Supported and FID Supported in the other effects pages.
    pub const SUPPORTED: u32 = 1 << 0;
    /// Logical Block Content Change.
    pub const LBCC: u32 = 1 << 1;
}

/// Discovery log page header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DiscoveryHeader {
    /// Generation Counter.
    pub genctr: U64,
    /// Number of Records.
    pub numrec: U64,
    /// Record Format; 0.
    pub recfmt: U16,
    /// Reserved.
    pub rsvd18: [[u8; 2]; 503],
}

/// Discovery log page entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DiscoveryEntry {
    /// Transport Type: 1 = RDMA.
    pub trtype: u8,
    /// Address Family: 1 = IPv4, 2 = IPv6.
    pub adrfam: u8,
    /// Subsystem Type.
    pub subtype: u8,
    /// Transport Requirements.
    pub treq: u8,
    /// Port ID.
    pub portid: U16,
    /// Controller ID; FFFFh = dynamic.
    pub cntlid: U16,
    /// Admin Max SQ Size, entries.
    pub asqsz: U16,
    /// Entry Flags.
    pub eflags: U16,
    /// Reserved.
    pub rsvd12: [u8; 20],
    /// Transport Service Identifier: the port in ASCII, space-padded.
    pub trsvcid: [u8; 32],
    /// Reserved.
    pub rsvd64: [[u8; 64]; 3],
    /// NVM Subsystem NQN, zero-padded.
    pub subnqn: [u8; 256],
    /// Transport Address: ASCII, space-padded.
    pub traddr: [u8; 256],
    /// RDMA QP Type: 1 = connected.
    pub qptype: u8,
    /// RDMA Provider Type: 1 = none, 4 = RoCEv2.
    pub prtype: u8,
    /// RDMA Connection Management Service: 1 = RDMA_CM.
    pub cms: u8,
    /// Rest of the Transport Specific Address Subtype.
    pub tsas: [u8; 253],
}

const _: () = assert!(size_of::<ErrorEntry>() == 64);
const _: () = assert!(size_of::<SmartLog>() == 512);
const _: () = assert!(size_of::<FirmwareSlotLog>() == 512);
const _: () = assert!(size_of::<CommandEffectsLog>() == 4096);
const _: () = assert!(size_of::<DiscoveryHeader>() == 1024);
const _: () = assert!(size_of::<DiscoveryEntry>() == 1024);

/// Values of [`DiscoveryEntry`].
pub mod discovery_values {
    /// TRTYPE RDMA.
    pub const TRTYPE_RDMA: u8 = 1;
    /// ADRFAM IPv4.
    pub const ADRFAM_IPV4: u8 = 1;
    /// ADRFAM IPv6.
    pub const ADRFAM_IPV6: u8 = 2;
    /// SUBTYPE NVM subsystem.
    pub const SUBTYPE_NVM: u8 = 2;
    /// SUBTYPE current discovery subsystem.
    pub const SUBTYPE_CURRENT_DISCOVERY: u8 = 3;
    /// TREQ: secure channel not required (10b), SQ flow control disable supported (bit 2).
    pub const TREQ: u8 = 0b110;
    /// EFLAGS: duplicate returned information.
    pub const EFLAGS_DUPRETINFO: u16 = 1 << 0;
    /// EFLAGS: explicit persistent connections supported.
    pub const EFLAGS_EPCSD: u16 = 1 << 1;
    /// QPTYPE reliable connected.
    pub const QPTYPE_CONNECTED: u8 = 1;
    /// PRTYPE RoCEv2.
    pub const PRTYPE_ROCEV2: u8 = 4;
    /// CMS RDMA_CM.
    pub const CMS_RDMA_CM: u8 = 1;
}

/// Asynchronous event types and information (base 5.2.1), and the configuration bits of Feature 0Bh.
pub mod event {
    /// Event type: notice.
    pub const TYPE_NOTICE: u8 = 2;
    /// Notice: namespace attribute changed.
    pub const NAMESPACE_ATTRIBUTE_CHANGED: u8 = 0x00;
    /// Notice: discovery log page changed.
    pub const DISCOVERY_LOG_CHANGED: u8 = 0xf0;
    /// Feature 0Bh / OAES bit 8: namespace attribute notices.
    pub const CONFIG_NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// Feature 0Bh / OAES bit 31: discovery log page change notices.
    pub const CONFIG_DISCOVERY_LOG: u32 = 1 << 31;
    /// Feature 0Bh bits 7:0: SMART critical warnings.
    pub const CONFIG_SMART: u32 = 0xff;
}
