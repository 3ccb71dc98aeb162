//! Feature identifiers (base 5.27.1, NVM 4.1.4) and the Set/Get Features selectors.

/// Feature identifiers.
pub mod fid {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error Recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENT_CONFIG: u8 = 0x0b;
    /// Timestamp.
    pub const TIMESTAMP: u8 = 0x0e;
    /// Keep Alive Timer.
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    /// Host Behavior Support.
    pub const HOST_BEHAVIOR_SUPPORT: u8 = 0x16;
    /// Software Progress Marker.
    pub const SOFTWARE_PROGRESS_MARKER: u8 = 0x80;
    /// Host Identifier.
    pub const HOST_IDENTIFIER: u8 = 0x81;
}

/// SEL of Get Features (base 5.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// Current value.
    Current,
    /// Default value.
    Default,
    /// Saved value; the current one where nothing can be saved.
    Saved,
    /// Which of saveable, per-namespace and changeable the feature is.
    Capabilities,
}

/// Capabilities bit 0: saveable.
pub const CAP_SAVEABLE: u64 = 1 << 0;
/// Capabilities bit 1: namespace specific.
pub const CAP_NAMESPACE_SPECIFIC: u64 = 1 << 1;
/// Capabilities bit 2: changeable.
pub const CAP_CHANGEABLE: u64 = 1 << 2;

/// Bytes of Host Behavior Support's data.
pub const HOST_BEHAVIOR_LEN: usize = 512;
/// Byte of [`fid::HOST_BEHAVIOR_SUPPORT`]'s data that holds LBA Format Extension Enable.
pub const HOST_BEHAVIOR_LBAFEE: usize = 2;
/// Bytes of Timestamp's data.
pub const TIMESTAMP_LEN: usize = 8;
/// Bytes of an extended Host Identifier.
pub const HOST_ID_LEN: usize = 16;
