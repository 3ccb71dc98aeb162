//! NOP-Out and NOP-In: the pings of both sides and their answers (RFC 7143 sections 11.18, 11.19).

use super::bhs::{Bhs, FINAL, Numbers, Order, Word};
use super::number::{Itt, Lun, Ttt};
use super::opcode::Opcode;

/// A NOP-Out: a ping of the host if it has an Initiator Task Tag, else the answer to the target's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopOut {
    /// Its place among the host's requests.
    pub order: Order,
    /// Logical Unit Number that goes with the Target Transfer Tag.
    pub lun: Lun,
    /// Initiator Task Tag, or none.
    pub itt: Itt,
    /// Target Transfer Tag of the ping that this answers, or none.
    pub ttt: Ttt,
}

impl NopOut {
    /// Reads a header of this opcode.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self { order: bhs.order(), lun: bhs.lun(), itt: bhs.itt(), ttt: Ttt(bhs.word(Word::At20)) }
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        Bhs::new(Opcode::NopOut, FINAL)
            .with_lun(self.lun)
            .with_itt(self.itt)
            .with(Word::At20, self.ttt.0)
            .with_order(self.order)
    }
}

/// A NOP-In: the answer to the host's ping if it has an Initiator Task Tag, else a ping of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopIn {
    /// Logical Unit Number that goes with the Target Transfer Tag.
    pub lun: Lun,
    /// The ping's tag, or none.
    pub itt: Itt,
    /// What the host's answer must carry, or none.
    pub ttt: Ttt,
    /// Sequence numbers; a ping of the target takes no StatSN of its own.
    pub numbers: Numbers,
}

impl NopIn {
    /// Reads a header of this opcode.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self { lun: bhs.lun(), itt: bhs.itt(), ttt: Ttt(bhs.word(Word::At20)), numbers: bhs.numbers() }
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        Bhs::new(Opcode::NopIn, FINAL)
            .with_lun(self.lun)
            .with_itt(self.itt)
            .with(Word::At20, self.ttt.0)
            .with_numbers(self.numbers)
    }
}
