//! Asynchronous Message (RFC 7143 section 11.9).

use super::bhs::{Bhs, FINAL, Numbers, Word};
use super::number::{Itt, Lun};
use super::opcode::Opcode;

/// What a target tells its host unasked (section 11.9.1); times are seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A SCSI asynchronous event: the data segment is its sense data.
    Scsi,
    /// The host must log out within `seconds`.
    LogoutRequest {
        /// Parameter3.
        seconds: u16,
    },
    /// The target drops a connection.
    ConnectionDropped {
        /// Parameter1: its CID.
        cid: u16,
        /// Parameter2: not to reconnect sooner.
        time_to_wait: u16,
        /// Parameter3: how long tasks could be recovered.
        time_to_retain: u16,
    },
    /// The target drops all connections of the session.
    SessionDropped {
        /// Parameter2: not to reconnect sooner.
        time_to_wait: u16,
        /// Parameter3: how long tasks could be recovered.
        time_to_retain: u16,
    },
    /// The host must negotiate parameters within `seconds`.
    NegotiationRequest {
        /// Parameter3.
        seconds: u16,
    },
    /// All of this session's tasks of the logical unit were terminated.
    TasksTerminated,
    /// A vendor's, or reserved: its code and parameters.
    Unknown(u8, [u16; 3]),
}

/// An Asynchronous Message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMessage {
    /// AsyncEvent with its parameters.
    pub event: AsyncEvent,
    /// AsyncVCode: a vendor's code.
    pub vendor_code: u8,
    /// Logical Unit Number, of events that have one.
    pub lun: Lun,
    /// Sequence numbers.
    pub numbers: Numbers,
}

impl AsyncMessage {
    /// Reads a header of this opcode.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        let [codes, p1] = bhs.halves(Word::At36);
        let [p2, p3] = bhs.halves(Word::At40);
        let [code, vendor_code] = codes.to_be_bytes();
        // What an event has no use for is reserved, and so ignored.
        let event = match code {
            0 => AsyncEvent::Scsi,
            1 => AsyncEvent::LogoutRequest { seconds: p3 },
            2 => AsyncEvent::ConnectionDropped { cid: p1, time_to_wait: p2, time_to_retain: p3 },
            3 => AsyncEvent::SessionDropped { time_to_wait: p2, time_to_retain: p3 },
            4 => AsyncEvent::NegotiationRequest { seconds: p3 },
            5 => AsyncEvent::TasksTerminated,
            other => AsyncEvent::Unknown(other, [p1, p2, p3]),
        };
        Self { event, vendor_code, lun: bhs.lun(), numbers: bhs.numbers() }
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        let (code, [p1, p2, p3]) = match self.event {
            AsyncEvent::Scsi => (0, [0; 3]),
            AsyncEvent::LogoutRequest { seconds } => (1, [0, 0, seconds]),
            AsyncEvent::ConnectionDropped { cid, time_to_wait, time_to_retain } => {
                (2, [cid, time_to_wait, time_to_retain])
            }
            AsyncEvent::SessionDropped { time_to_wait, time_to_retain } => {
                (3, [0, time_to_wait, time_to_retain])
            }
            AsyncEvent::NegotiationRequest { seconds } => (4, [0, 0, seconds]),
            AsyncEvent::TasksTerminated => (5, [0; 3]),
            AsyncEvent::Unknown(code, parameters) => (code, parameters),
        };
        Bhs::new(Opcode::AsyncMessage, FINAL)
            .with_lun(self.lun)
            .with_itt(Itt::NONE)
            .with_numbers(self.numbers)
            .with_halves(Word::At36, [u16::from_be_bytes([code, self.vendor_code]), p1])
            .with_halves(Word::At40, [p2, p3])
    }
}
