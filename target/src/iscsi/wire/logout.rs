//! Logout Request and Logout Response (RFC 7143 sections 11.14, 11.15).

use super::bhs::{Bhs, FINAL, Numbers, Order, Word};
use super::codes::codes;
use super::number::Itt;
use super::opcode::Opcode;

codes! {
    /// Why a host logs out (section 11.14.1).
    LogoutReason: u8, 0x7f;
    CloseSession = 0 "close the session with all its connections";
    CloseConnection = 1 "close the connection";
    RemoveForRecovery = 2 "remove the connection for recovery; needs an ErrorRecoveryLevel of 2";
}

/// A Logout Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    /// Its place among the host's requests.
    pub order: Order,
    /// Reason code.
    pub reason: LogoutReason,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Connection ID; of no meaning when the session is closed.
    pub cid: u16,
}

impl LogoutRequest {
    /// Reads a header of this opcode.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            order: bhs.order(),
            reason: LogoutReason::from_wire(bhs.flags),
            itt: bhs.itt(),
            cid: bhs.halves(Word::At20)[0],
        }
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        Bhs::new(Opcode::LogoutRequest, FINAL | self.reason.to_wire())
            .with_itt(self.itt)
            .with_halves(Word::At20, [self.cid, 0])
            .with_order(self.order)
    }
}

codes! {
    /// What became of a logout (section 11.15.1).
    LogoutResult: u8, 0xff;
    Closed = 0 "connection or session closed";
    NoSuchConnection = 1 "CID not found";
    RecoveryNotSupported = 2 "connection recovery is not supported";
    CleanupFailed = 3 "cleanup failed";
}

/// A Logout Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    /// Response.
    pub result: LogoutResult,
    /// The request's tag.
    pub itt: Itt,
    /// Sequence numbers.
    pub numbers: Numbers,
    /// Time2Wait, seconds: not to reconnect sooner.
    pub time_to_wait: u16,
    /// Time2Retain, seconds: how long tasks could be recovered.
    pub time_to_retain: u16,
}

impl LogoutResponse {
    /// Reads a header of this opcode.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        let [time_to_wait, time_to_retain] = bhs.halves(Word::At40);
        Self {
            result: LogoutResult::from_wire(bhs.specific[0]),
            itt: bhs.itt(),
            numbers: bhs.numbers(),
            time_to_wait,
            time_to_retain,
        }
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::LogoutResponse, FINAL)
            .with_itt(self.itt)
            .with_numbers(self.numbers)
            .with_halves(Word::At40, [self.time_to_wait, self.time_to_retain]);
        bhs.specific[0] = self.result.to_wire();
        bhs
    }
}
