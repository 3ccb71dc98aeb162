//! The protection fields of command descriptor blocks. (SBC-4 5.)

/// A command that reads, writes or checks blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// READ
    Read,
    /// VERIFY
    Verify,
    /// WRITE
    Write,
    /// WRITE AND VERIFY
    WriteAndVerify,
    /// WRITE SAME
    WriteSame,
    /// COMPARE AND WRITE
    CompareAndWrite,
}

/// BYTCHK: what a VERIFY compares the medium with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteCheck {
    /// 00b: nothing; its own protection information is checked.
    #[default]
    None,
    /// 01b: as many blocks from the host.
    Blocks,
    /// 10b
    Reserved,
    /// 11b: one block from the host, again and again.
    OneBlock,
}

impl From<u8> for ByteCheck {
    /// The value in the low two bits.
    fn from(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::None,
            1 => Self::Blocks,
            2 => Self::Reserved,
            _ => Self::OneBlock,
        }
    }
}

/// What only a CDB of 32 bytes has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongFields {
    /// Expected initial logical block reference tag.
    pub ref_tag: u32,
    /// Expected logical block application tag.
    pub app_tag: u16,
    /// Its mask.
    pub app_tag_mask: u16,
}

/// The fields of a CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb {
    /// The command.
    pub command: Command,
    /// RDPROTECT, VRPROTECT or WRPROTECT: 0 to 7.
    pub protect: u8,
    /// First block.
    pub lba: u64,
    /// Blocks, without protection information.
    pub blocks: u32,
    /// BYTCHK of VERIFY and WRITE AND VERIFY; [`ByteCheck::None`] of the others.
    pub byte_check: ByteCheck,
    /// Of a CDB of 32 bytes.
    pub long: Option<LongFields>,
}

impl Cdb {
    /// Reads a CDB: of 6, 10, 12, 16 or 32 bytes, as its operation code says; bytes behind that are ignored. `None`
    /// for other commands, and when it is too short.
    pub fn parse(cdb: &[u8]) -> Option<Self> {
        let operation = *cdb.first()?;
        let command = match operation {
            0x08 | 0x28 | 0xA8 | 0x88 => Command::Read,
            0x0A | 0x2A | 0xAA | 0x8A => Command::Write,
            0x2E | 0xAE | 0x8E => Command::WriteAndVerify,
            0x2F | 0xAF | 0x8F => Command::Verify,
            0x41 | 0x93 => Command::WriteSame,
            0x89 => Command::CompareAndWrite,
            0x7F => return Self::parse_long(cdb),
            _ => return None,
        };
        // The operation code's upper three bits are the group, which says how long the CDB is.
        let (lba, blocks) = match operation >> 5 {
            0 => {
                let cdb: &[u8; 6] = cdb.first_chunk()?;
                let blocks = if cdb[4] == 0 { 256 } else { u32::from(cdb[4]) };
                (number(&cdb[1..4]) & 0x1F_FFFF, blocks)
            }
            1 | 2 => {
                let cdb: &[u8; 10] = cdb.first_chunk()?;
                (number(&cdb[2..6]), count(&cdb[7..9]))
            }
            5 => {
                let cdb: &[u8; 12] = cdb.first_chunk()?;
                (number(&cdb[2..6]), count(&cdb[6..10]))
            }
            _ => {
                let cdb: &[u8; 16] = cdb.first_chunk()?;
                let length = if command == Command::CompareAndWrite { 13..14 } else { 10..14 };
                (number(&cdb[2..10]), count(&cdb[length]))
            }
        };
        let flags = if operation >> 5 == 0 { 0 } else { cdb[1] };
        let byte_check = byte_check(command, flags);
        Some(Self { command, protect: flags >> 5, lba, blocks, byte_check, long: None })
    }

    fn parse_long(cdb: &[u8]) -> Option<Self> {
        const ADDITIONAL_LENGTH: u8 = 0x18;
        let cdb: &[u8; 32] = cdb.first_chunk()?;
        let command = match (cdb[7], count(&cdb[8..10])) {
            (ADDITIONAL_LENGTH, 0x0009) => Command::Read,
            (ADDITIONAL_LENGTH, 0x000A) => Command::Verify,
            (ADDITIONAL_LENGTH, 0x000B) => Command::Write,
            (ADDITIONAL_LENGTH, 0x000C) => Command::WriteAndVerify,
            (ADDITIONAL_LENGTH, 0x000D) => Command::WriteSame,
            _ => return None,
        };
        let half = |at: usize| u16::from_be_bytes([cdb[at], cdb[at + 1]]);
        Some(Self {
            command,
            protect: cdb[10] >> 5,
            lba: number(&cdb[12..20]),
            blocks: count(&cdb[28..32]),
            byte_check: byte_check(command, cdb[10]),
            long: Some(LongFields {
                ref_tag: count(&cdb[20..24]),
                app_tag: half(24),
                app_tag_mask: half(26),
            }),
        })
    }
}

fn byte_check(command: Command, flags: u8) -> ByteCheck {
    match command {
        Command::Verify | Command::WriteAndVerify => ByteCheck::from(flags >> 1),
        _ => ByteCheck::None,
    }
}

/// A big-endian number of up to eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// A big-endian number of up to four bytes.
fn count(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_commands_have_no_protect_field() {
        let cdb = Cdb::parse(&[0x08, 0xFF, 0x12, 0x34, 0, 0]).unwrap();
        assert_eq!((cdb.protect, cdb.lba, cdb.blocks), (0, 0x1F_1234, 256));
    }

    #[test]
    fn what_is_cut_short_or_unknown_is_no_command() {
        for (code, length) in [(0x08, 6), (0x2A, 10), (0x41, 10), (0xAF, 12), (0x93, 16), (0x89, 16)] {
            let mut cdb = vec![0; length];
            cdb[0] = code;
            assert!(Cdb::parse(&cdb).is_some(), "{code:#x}");
            assert_eq!(Cdb::parse(&cdb[..length - 1]), None, "{code:#x}");
        }
        let mut long = [0; 32];
        (long[0], long[7], long[9]) = (0x7F, 0x18, 0x0C);
        assert_eq!(Cdb::parse(&long).unwrap().command, Command::WriteAndVerify);
        assert_eq!(Cdb::parse(&long[..31]), None);
        long[7] = 0x17;
        assert_eq!(Cdb::parse(&long), None);
        assert_eq!(Cdb::parse(&[]), None);
        assert_eq!(Cdb::parse(&[0x12; 6]), None);
    }
}
