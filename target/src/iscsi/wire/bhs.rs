//! The basic header segment, as far as all PDUs have it alike (RFC 7143 section 11.2.1).

use std::fmt;

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::number::{Itt, Lun, Sn};
use super::opcode::Opcode;

/// Bytes of a basic header segment.
pub const BHS_LEN: usize = 48;
/// Longest data segment that the 24 bits of its length can name, in bytes.
pub const DATA_SEGMENT_MAX: u32 = 0xff_ffff;

/// Byte 0, bit 6: immediate delivery.
const IMMEDIATE: u8 = 0x40;
/// Byte 1, bit 7: final, in every PDU that has it.
pub(super) const FINAL: u8 = 0x80;

/// Basic header segment; the rest of each PDU's fields lies in `specific`, `lun` and `words`.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Bhs {
    /// Immediate delivery (6) and Opcode (5:0).
    pub opcode: u8,
    /// Final (7) and opcode-specific flags.
    pub flags: u8,
    /// Opcode-specific.
    pub specific: [u8; 2],
    /// TotalAHSLength, in words of four bytes.
    pub total_ahs_length: u8,
    /// DataSegmentLength, bytes without padding.
    pub data_segment_length: [u8; 3],
    /// Logical Unit Number, or opcode-specific.
    pub lun: [u8; 8],
    /// Initiator Task Tag.
    pub itt: U32,
    /// Bytes 20 to 47, opcode-specific; each PDU names its words by their offset.
    pub words: [U32; 7],
}

const _: () = assert!(size_of::<Bhs>() == BHS_LEN);

/// A word of the opcode-specific part, by the offset that RFC 7143's pictures give it.
#[derive(Clone, Copy)]
pub(super) enum Word {
    At20,
    At24,
    At28,
    At32,
    At36,
    At40,
    At44,
}

impl Bhs {
    /// A header with nothing in it but its opcode and flags.
    pub(super) fn new(opcode: Opcode, flags: u8) -> Self {
        let mut bhs = Self::new_zeroed();
        bhs.opcode = opcode.to_wire();
        bhs.flags = flags;
        bhs
    }

    /// What the PDU is.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        Opcode::from_wire(self.opcode)
    }

    /// Whether the request asks for immediate delivery.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.opcode & IMMEDIATE != 0
    }

    /// Bytes of all additional header segments.
    #[must_use]
    pub fn ahs_len(&self) -> usize {
        usize::from(self.total_ahs_length) * 4
    }

    /// Bytes of the data segment, without padding.
    #[must_use]
    pub fn data_len(&self) -> u32 {
        let [a, b, c] = self.data_segment_length;
        u32::from_be_bytes([0, a, b, c])
    }

    /// Says how long the data segment is.
    ///
    /// # Panics
    /// When the length needs more than 24 bits: nobody builds such a segment.
    pub fn set_data_len(&mut self, length: usize) {
        let length = u32::try_from(length).ok().filter(|length| *length <= DATA_SEGMENT_MAX);
        let [_, a, b, c] = length.expect("data segments that we build have less than 16 MiB").to_be_bytes();
        self.data_segment_length = [a, b, c];
    }

    /// Initiator Task Tag.
    #[must_use]
    pub fn itt(&self) -> Itt {
        Itt(self.itt.get())
    }

    pub(super) fn lun(&self) -> Lun {
        Lun(self.lun)
    }

    pub(super) fn word(&self, at: Word) -> u32 {
        self.words[at as usize].get()
    }

    /// The upper and the lower half of a word.
    pub(super) fn halves(&self, at: Word) -> [u16; 2] {
        let [a, b, c, d] = self.word(at).to_be_bytes();
        [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
    }

    pub(super) fn with_itt(mut self, itt: Itt) -> Self {
        self.itt = U32::new(itt.0);
        self
    }

    pub(super) fn with_lun(mut self, lun: Lun) -> Self {
        self.lun = lun.0;
        self
    }

    pub(super) fn with(mut self, at: Word, value: u32) -> Self {
        self.words[at as usize] = U32::new(value);
        self
    }

    pub(super) fn with_halves(self, at: Word, [high, low]: [u16; 2]) -> Self {
        self.with(at, u32::from(high) << 16 | u32::from(low))
    }

    pub(super) fn order(&self) -> Order {
        Order {
            immediate: self.is_immediate(),
            cmd_sn: Sn(self.word(Word::At24)),
            exp_stat_sn: Sn(self.word(Word::At28)),
        }
    }

    pub(super) fn with_order(mut self, order: Order) -> Self {
        if order.immediate {
            self.opcode |= IMMEDIATE;
        }
        self.with(Word::At24, order.cmd_sn.0).with(Word::At28, order.exp_stat_sn.0)
    }

    pub(super) fn numbers(&self) -> Numbers {
        Numbers {
            stat_sn: Sn(self.word(Word::At24)),
            exp_cmd_sn: Sn(self.word(Word::At28)),
            max_cmd_sn: Sn(self.word(Word::At32)),
        }
    }

    pub(super) fn with_numbers(self, numbers: Numbers) -> Self {
        self.with(Word::At24, numbers.stat_sn.0)
            .with(Word::At28, numbers.exp_cmd_sn.0)
            .with(Word::At32, numbers.max_cmd_sn.0)
    }

    /// ISID (bytes 8 to 13) and TSIH (14 and 15) of login PDUs.
    pub(super) fn isid_and_tsih(&self) -> ([u8; 6], u16) {
        let [a, b, c, d, e, f, high, low] = self.lun;
        ([a, b, c, d, e, f], u16::from_be_bytes([high, low]))
    }

    pub(super) fn with_isid_and_tsih(mut self, isid: [u8; 6], tsih: u16) -> Self {
        self.lun[..6].copy_from_slice(&isid);
        self.lun[6..].copy_from_slice(U16::new(tsih).as_bytes());
        self
    }
}

impl fmt::Debug for Bhs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bhs({:02x?})", self.as_bytes())
    }
}

/// Where a request stands among the host's: what every request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whether it is for immediate delivery, and so takes no number of its own.
    pub immediate: bool,
    /// CmdSN: its number, or the next one's if it is immediate.
    pub cmd_sn: Sn,
    /// ExpStatSN: the next response's number, and so an acknowledgement of those before.
    pub exp_stat_sn: Sn,
}

/// What every response says of both sides' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// StatSN: the response's own number.
    pub stat_sn: Sn,
    /// ExpCmdSN: the next command's number.
    pub exp_cmd_sn: Sn,
    /// MaxCmdSN: the last number that a command may have.
    pub max_cmd_sn: Sn,
}
