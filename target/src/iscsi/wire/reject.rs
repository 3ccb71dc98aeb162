//! Reject (RFC 7143 section 11.17). Its data segment is the header of what was rejected.

use super::bhs::{Bhs, FINAL, Numbers, Word};
use super::codes::codes;
use super::number::Itt;
use super::opcode::Opcode;

codes! {
    /// Why a PDU was rejected (section 11.17.1).
    RejectReason: u8, 0xff;
    DataDigestError = 0x02 "data (payload) digest error";
    SnackReject = 0x03 "SNACK reject";
    ProtocolError = 0x04 "protocol error";
    CommandNotSupported = 0x05 "command not supported";
    TooManyImmediate = 0x06 "immediate command reject: too many immediate commands";
    TaskInProgress = 0x07 "task in progress";
    InvalidDataAck = 0x08 "invalid data acknowledgement";
    InvalidField = 0x09 "invalid PDU field";
    LongOperation = 0x0a "long operation reject: no resources for a target transfer tag";
    WaitingForLogout = 0x0c "waiting for logout";
}

/// A Reject's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Reason.
    pub reason: RejectReason,
    /// Sequence numbers.
    pub numbers: Numbers,
    /// DataSN or R2TSN of a rejected data PDU.
    pub data_sn: u32,
}

impl Reject {
    /// Reads a header of this opcode.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            reason: RejectReason::from_wire(bhs.specific[0]),
            numbers: bhs.numbers(),
            data_sn: bhs.word(Word::At36),
        }
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::Reject, FINAL)
            .with_itt(Itt::NONE)
            .with_numbers(self.numbers)
            .with(Word::At36, self.data_sn);
        bhs.specific[0] = self.reason.to_wire();
        bhs
    }
}
