//! Text Request and Text Response (RFC 7143 sections 11.10, 11.11).

use super::bhs::{Bhs, FINAL, Numbers, Order, Word};
use super::number::{Itt, Lun, Ttt};
use super::opcode::Opcode;
use super::pdu::PduError;

const CONTINUE: u8 = 0x40;

/// Whether a text ends here, and whether its sender has more to say (F and C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// C: the text goes on in the next PDU of the same sender.
    Continued,
    /// Neither: the text is whole, the negotiation goes on.
    Whole,
    /// F: the text is whole and the sender is done.
    Final,
}

impl Progress {
    fn from_flags(flags: u8) -> Result<Self, PduError> {
        match (flags & FINAL != 0, flags & CONTINUE != 0) {
            (true, true) => Err(PduError::Field("F and C of a text PDU: both are set")),
            (true, false) => Ok(Self::Final),
            (false, true) => Ok(Self::Continued),
            (false, false) => Ok(Self::Whole),
        }
    }

    const fn flags(self) -> u8 {
        match self {
            Self::Continued => CONTINUE,
            Self::Whole => 0,
            Self::Final => FINAL,
        }
    }
}

/// A Text Request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// Its place among the host's requests.
    pub order: Order,
    /// F and C.
    pub progress: Progress,
    /// Logical Unit Number that goes with the Target Transfer Tag.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Target Transfer Tag of the response that this answers, or none.
    pub ttt: Ttt,
}

impl TextRequest {
    /// Reads a header of this opcode.
    ///
    /// # Errors
    /// When F and C are both set.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        Ok(Self {
            order: bhs.order(),
            progress: Progress::from_flags(bhs.flags)?,
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.word(Word::At20)),
        })
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        Bhs::new(Opcode::TextRequest, self.progress.flags())
            .with_lun(self.lun)
            .with_itt(self.itt)
            .with(Word::At20, self.ttt.0)
            .with_order(self.order)
    }
}

/// A Text Response's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextResponse {
    /// F and C.
    pub progress: Progress,
    /// Logical Unit Number that goes with the Target Transfer Tag.
    pub lun: Lun,
    /// The request's tag.
    pub itt: Itt,
    /// What the host's next request must carry; none with the final response.
    pub ttt: Ttt,
    /// Sequence numbers.
    pub numbers: Numbers,
}

impl TextResponse {
    /// Reads a header of this opcode.
    ///
    /// # Errors
    /// When F and C are both set.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        Ok(Self {
            progress: Progress::from_flags(bhs.flags)?,
            lun: bhs.lun(),
            itt: bhs.itt(),
            ttt: Ttt(bhs.word(Word::At20)),
            numbers: bhs.numbers(),
        })
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        Bhs::new(Opcode::TextResponse, self.progress.flags())
            .with_lun(self.lun)
            .with_itt(self.itt)
            .with(Word::At20, self.ttt.0)
            .with_numbers(self.numbers)
    }
}
