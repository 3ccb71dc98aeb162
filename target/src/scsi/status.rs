//! How a command ends. (SAM-5 "Status codes".)

/// A status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// GOOD
    Good = 0x00,
    /// CHECK CONDITION: sense data says why.
    CheckCondition = 0x02,
    /// BUSY
    Busy = 0x08,
    /// RESERVATION CONFLICT
    ReservationConflict = 0x18,
    /// TASK SET FULL
    TaskSetFull = 0x28,
    /// TASK ABORTED
    TaskAborted = 0x40,
}

impl Status {
    /// Its byte on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}
