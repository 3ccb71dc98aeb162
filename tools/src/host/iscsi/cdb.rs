//! The CDBs that this host sends. (SPC-4, SBC-4, each command's own section.)
//!
//! Sans-IO. Reading them is [`intact::scsi::cdb`]'s and [`t10pi::scsi::Cdb`]'s.

use clap::ValueEnum;
use t10pi::scsi::LongFields;

/// A command descriptor block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb {
    bytes: [u8; LONGEST],
    length: usize,
}

/// Bytes of a CDB at most.
const LONGEST: usize = 32;
/// Bytes that have room in an iSCSI header.
const IN_HEADER: usize = 16;

/// How long a CDB of READ or WRITE is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CdbLength {
    /// 32 bits of address, 16 of length
    #[value(name = "10")]
    Ten,
    /// 32 bits of address and length
    #[value(name = "12")]
    Twelve,
    /// 64 bits of address, 32 of length
    #[value(name = "16")]
    Sixteen,
    /// The same with expected tags, as units of type 2 need it
    #[value(name = "32")]
    ThirtyTwo,
}

/// What a READ or WRITE says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFields {
    /// First block.
    pub lba: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// RDPROTECT or WRPROTECT, 0 to 7.
    pub protect: u8,
    /// FUA.
    pub fua: bool,
    /// What a CDB of 32 bytes says of tags; the others leave it out.
    pub tags: LongFields,
}

/// READ or WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOp {
    /// READ
    Read,
    /// WRITE
    Write,
}

impl Cdb {
    fn new(bytes: &[u8]) -> Self {
        let mut cdb = Self { bytes: [0; LONGEST], length: bytes.len() };
        cdb.bytes[..bytes.len()].copy_from_slice(bytes);
        cdb
    }

    /// TEST UNIT READY
    #[must_use]
    pub fn test_unit_ready() -> Self {
        Self::new(&[0; 6])
    }

    /// INQUIRY: standard data, or a page of vital product data.
    #[must_use]
    pub fn inquiry(page: Option<u8>, allocation: u16) -> Self {
        let [high, low] = allocation.to_be_bytes();
        Self::new(&[0x12, u8::from(page.is_some()), page.unwrap_or(0), high, low, 0])
    }

    /// READ CAPACITY (16)
    #[must_use]
    pub fn read_capacity_16(allocation: u32) -> Self {
        const SERVICE_ACTION: u8 = 0x10;
        let mut cdb = [0; 16];
        cdb[..2].copy_from_slice(&[0x9E, SERVICE_ACTION]);
        cdb[10..14].copy_from_slice(&allocation.to_be_bytes());
        Self::new(&cdb)
    }

    /// REPORT LUNS: all units but the well known ones.
    #[must_use]
    pub fn report_luns(allocation: u32) -> Self {
        let mut cdb = [0; 12];
        cdb[0] = 0xA0;
        cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
        Self::new(&cdb)
    }

    /// READ or WRITE; `None` when the address or the number of blocks has no room in a CDB of this length.
    #[inline]
    #[must_use]
    pub fn blocks(op: BlockOp, length: CdbLength, fields: &BlockFields) -> Option<Self> {
        let flags = fields.protect << 5 | u8::from(fields.fua) << 3;
        let lba = fields.lba.to_be_bytes();
        let count = fields.blocks.to_be_bytes();
        let short_lba = fields.lba <= u64::from(u32::MAX);
        let mut cdb = Self { bytes: [0; LONGEST], length: 0 };
        let bytes = &mut cdb.bytes;
        bytes[1] = flags;
        match length {
            CdbLength::Ten => {
                if !short_lba || fields.blocks > u32::from(u16::MAX) {
                    return None;
                }
                bytes[0] = if op == BlockOp::Read { 0x28 } else { 0x2A };
                bytes[2..6].copy_from_slice(&lba[4..]);
                bytes[7..9].copy_from_slice(&count[2..]);
                cdb.length = 10;
            }
            CdbLength::Twelve => {
                if !short_lba {
                    return None;
                }
                bytes[0] = if op == BlockOp::Read { 0xA8 } else { 0xAA };
                bytes[2..6].copy_from_slice(&lba[4..]);
                bytes[6..10].copy_from_slice(&count);
                cdb.length = 12;
            }
            CdbLength::Sixteen => {
                bytes[0] = if op == BlockOp::Read { 0x88 } else { 0x8A };
                bytes[2..10].copy_from_slice(&lba);
                bytes[10..14].copy_from_slice(&count);
                cdb.length = 16;
            }
            CdbLength::ThirtyTwo => {
                const ADDITIONAL_LENGTH: u8 = 0x18;
                let LongFields { ref_tag, app_tag, app_tag_mask } = fields.tags;
                let action = if op == BlockOp::Read { 0x09 } else { 0x0B };
                bytes[..2].copy_from_slice(&[0x7F, 0]);
                bytes[7..11].copy_from_slice(&[ADDITIONAL_LENGTH, 0, action, flags]);
                bytes[12..20].copy_from_slice(&lba);
                bytes[20..24].copy_from_slice(&ref_tag.to_be_bytes());
                bytes[24..26].copy_from_slice(&app_tag.to_be_bytes());
                bytes[26..28].copy_from_slice(&app_tag_mask.to_be_bytes());
                bytes[28..32].copy_from_slice(&count);
                cdb.length = 32;
            }
        }
        Some(cdb)
    }

    /// All of its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// What stands in an iSCSI header; a shorter one is followed by zeroes.
    #[inline]
    #[must_use]
    pub fn in_header(&self) -> [u8; IN_HEADER] {
        *self.bytes.first_chunk().expect("there are 32 bytes")
    }

    /// What has no room there, and goes in an additional header.
    #[inline]
    #[must_use]
    pub fn behind_header(&self) -> &[u8] {
        self.as_bytes().get(IN_HEADER..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use intact::scsi::cdb::Command;
    use intact::scsi::luns::SelectReport;
    use intact::scsi::opcodes::{self, Profile};

    use super::*;

    /// What the target's table makes of it.
    fn parse(cdb: Cdb) -> Command {
        opcodes::parse(cdb.as_bytes(), Profile::Type2Disk).unwrap().1
    }

    const FIELDS: BlockFields = BlockFields {
        lba: 0x0102_0304,
        blocks: 0x506,
        protect: 5,
        fua: true,
        tags: LongFields { ref_tag: 0x1122_3344, app_tag: 0x5566, app_tag_mask: 0x7788 },
    };

    #[test]
    fn the_library_reads_what_is_written() {
        for length in [CdbLength::Ten, CdbLength::Twelve, CdbLength::Sixteen, CdbLength::ThirtyTwo] {
            for (op, command) in
                [(BlockOp::Read, t10pi::scsi::Command::Read), (BlockOp::Write, t10pi::scsi::Command::Write)]
            {
                let cdb = Cdb::blocks(op, length, &FIELDS).unwrap();
                let read = t10pi::scsi::Cdb::parse(cdb.as_bytes()).unwrap();
                assert_eq!((read.command, read.lba, read.blocks), (command, FIELDS.lba, FIELDS.blocks));
                assert_eq!(read.protect, 5);
                let long = length == CdbLength::ThirtyTwo;
                assert_eq!(read.long, long.then_some(FIELDS.tags));
                assert_eq!(cdb.behind_header().len(), if long { 16 } else { 0 });
                // The target's table takes each bit of it, FUA among them.
                let Command::Blocks(parsed) = parse(cdb) else { panic!("{cdb:?}") };
                assert!(parsed.fua && parsed.fields == read);
            }
        }
    }

    #[test]
    fn what_has_no_room_is_refused() {
        let fits = |length, fields| Cdb::blocks(BlockOp::Read, length, &fields).is_some();
        let many = BlockFields { blocks: 0x1_0000, ..FIELDS };
        let far = BlockFields { lba: 1 << 32, ..FIELDS };
        assert!(!fits(CdbLength::Ten, many) && fits(CdbLength::Twelve, many));
        assert!(!fits(CdbLength::Twelve, far) && !fits(CdbLength::Ten, far) && fits(CdbLength::Sixteen, far));
    }

    #[test]
    fn other_commands_are_what_the_target_reads() {
        assert_eq!(parse(Cdb::test_unit_ready()), Command::TestUnitReady);
        let standard = Command::Inquiry { page: None, allocation: 96 };
        assert_eq!(parse(Cdb::inquiry(None, 96)), standard);
        let page = Command::Inquiry { page: Some(0x83), allocation: 0x1234 };
        assert_eq!(parse(Cdb::inquiry(Some(0x83), 0x1234)), page);
        assert_eq!(parse(Cdb::read_capacity_16(32)), Command::ReadCapacity16 { allocation: 32 });
        let luns = Command::ReportLuns { select: SelectReport::Units, allocation: 8200 };
        assert_eq!(parse(Cdb::report_luns(8200)), luns);
    }
}
