//! SCSI Command and SCSI Response (RFC 7143 sections 11.3, 11.4).

use super::bhs::{Bhs, FINAL, Numbers, Order, Word};
use super::codes::codes;
use super::number::{Itt, Lun};
use super::opcode::Opcode;
use super::pdu::PduError;

/// Bytes of the CDB that stand in the header.
pub const CDB_LEN: usize = 16;

const READ: u8 = 0x40;
const WRITE: u8 = 0x20;

codes! {
    /// Task attributes (section 11.3.1).
    TaskAttribute: u8, 0x07;
    Untagged = 0 "untagged: as simple";
    Simple = 1 "in any order";
    Ordered = 2 "after all that came before, ahead of all that come later";
    HeadOfQueue = 3 "ahead of all that wait";
    Aca = 4 "auto contingent allegiance";
}

/// A SCSI Command's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    /// Its place among the host's requests.
    pub order: Order,
    /// F: no unsolicited Data-Out follows.
    pub last: bool,
    /// R: data goes to the host.
    pub to_host: bool,
    /// W: data comes from the host.
    pub from_host: bool,
    /// ATTR.
    pub attribute: TaskAttribute,
    /// Logical Unit Number.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Expected Data Transfer Length, bytes.
    pub expected_length: u32,
    /// The CDB's first 16 bytes.
    pub cdb: [u8; CDB_LEN],
}

impl ScsiCommand {
    /// Reads a header of this opcode.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        let mut cdb = [0; CDB_LEN];
        for (bytes, word) in cdb.chunks_exact_mut(4).zip(&bhs.words[Word::At32 as usize..]) {
            bytes.copy_from_slice(&word.get().to_be_bytes());
        }
        Self {
            order: bhs.order(),
            last: bhs.flags & FINAL != 0,
            to_host: bhs.flags & READ != 0,
            from_host: bhs.flags & WRITE != 0,
            attribute: TaskAttribute::from_wire(bhs.flags),
            lun: bhs.lun(),
            itt: bhs.itt(),
            expected_length: bhs.word(Word::At20),
            cdb,
        }
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        let flag = |set, bit| if set { bit } else { 0 };
        let flags = flag(self.last, FINAL)
            | flag(self.to_host, READ)
            | flag(self.from_host, WRITE)
            | self.attribute.to_wire();
        let mut bhs = Bhs::new(Opcode::ScsiCommand, flags)
            .with_lun(self.lun)
            .with_itt(self.itt)
            .with(Word::At20, self.expected_length)
            .with_order(self.order);
        for (word, bytes) in bhs.words[Word::At32 as usize..].iter_mut().zip(self.cdb.as_chunks::<4>().0) {
            word.set(u32::from_be_bytes(*bytes));
        }
        bhs
    }
}

/// By how much the data that a command has differs from the Expected Data Transfer Length (section 11.4.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// They are the same.
    None,
    /// So many bytes of what the host expected were not moved.
    Underflow(u32),
    /// So many bytes were not moved because the host did not expect them.
    Overflow(u32),
}

const UNDERFLOW: u8 = 0x02;
const OVERFLOW: u8 = 0x04;

codes! {
    /// Response codes of a SCSI Response (section 11.4.3).
    ServiceResponse: u8, 0xff;
    Completed = 0x00 "the command was executed as far as its status says";
    TargetFailure = 0x01 "the target failed, and there is no status";
}

/// A SCSI Response's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiResponse {
    /// Response.
    pub response: ServiceResponse,
    /// SCSI status (SAM-5); meaningful if the command completed.
    pub status: u8,
    /// The command's tag.
    pub itt: Itt,
    /// Sequence numbers.
    pub numbers: Numbers,
    /// Residual count.
    pub residual: Residual,
}

impl ScsiResponse {
    /// Reads a header of this opcode.
    ///
    /// # Errors
    /// When it says both overflow and underflow.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        let count = bhs.word(Word::At44);
        Ok(Self {
            response: ServiceResponse::from_wire(bhs.specific[0]),
            status: bhs.specific[1],
            itt: bhs.itt(),
            numbers: bhs.numbers(),
            residual: match bhs.flags & (UNDERFLOW | OVERFLOW) {
                0 => Residual::None,
                UNDERFLOW => Residual::Underflow(count),
                OVERFLOW => Residual::Overflow(count),
                _ => return Err(PduError::Field("U and O of a SCSI Response: both are set")),
            },
        })
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        let (flags, count) = match self.residual {
            Residual::None => (0, 0),
            Residual::Underflow(count) => (UNDERFLOW, count),
            Residual::Overflow(count) => (OVERFLOW, count),
        };
        let mut bhs = Bhs::new(Opcode::ScsiResponse, FINAL | flags)
            .with_itt(self.itt)
            .with_numbers(self.numbers)
            .with(Word::At44, count);
        bhs.specific = [self.response.to_wire(), self.status];
        bhs
    }
}
