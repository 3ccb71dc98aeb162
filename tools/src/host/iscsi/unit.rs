//! A logical unit as a host needs to know it: geometry and protection. (SBC-4 "READ CAPACITY (16)".)
//!
//! Sans-IO: read from parameter data once; never asks the target itself.

use intact::iscsi::wire::number::Lun;
use intact::scsi::luns::LunAddress;
use t10pi::scsi::LongFields;
use t10pi::{Format, Guard, PiType};

use super::cdb::{BlockFields, BlockOp, Cdb, CdbLength};

/// Bytes of READ CAPACITY (16)'s parameter data.
pub const CAPACITY_LEN: u32 = 32;
/// Bytes of a tuple: SCSI has one format of protection information.
pub const TUPLE_LEN: u16 = 8;

/// Geometry and protection of a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its number.
    pub lun: u16,
    /// Size in blocks.
    pub blocks: u64,
    /// Bytes of user data in a block.
    pub block_size: u32,
    /// Format and type of the protection information.
    pub protection: Option<(Format, PiType)>,
    /// LBPME: blocks can be given back.
    pub provisioned: bool,
    /// LBPRZ: what was given back reads as zeroes.
    pub reads_zero: bool,
}

impl Unit {
    /// Reads READ CAPACITY (16)'s parameter data.
    ///
    /// # Errors
    /// When the data are too short, or a format that does not exist, or that this host does not know.
    pub fn parse(lun: u16, data: &[u8]) -> Result<Self, String> {
        const PROT_EN: u8 = 1 << 0;
        const LBPME: u8 = 1 << 7;
        const LBPRZ: u8 = 1 << 6;
        let bad = |what: String| Err(format!("logical unit {lun} {what}"));
        let Some(data) = data.first_chunk::<16>() else {
            return bad(format!("says {} bytes of its capacity, 16 are expected", data.len()));
        };
        let [_, _, _, _, _, _, _, _, a, b, c, d, protection, exponents, provisioning, _] = *data;
        let block_size = u32::from_be_bytes([a, b, c, d]);
        let last = *data.first_chunk().expect("8 of 16 bytes");
        let Some(blocks) = u64::from_be_bytes(last).checked_add(1) else {
            return bad("has more blocks than can be counted".to_owned());
        };
        if !(512..=1 << 24).contains(&block_size) {
            return bad(format!("has blocks of {block_size} bytes"));
        }
        let protection = if protection & PROT_EN == 0 {
            None
        } else {
            let code = protection >> 1 & 7;
            let Some(pi_type) = PiType::from_number(code + 1) else {
                return bad(format!("has protection of type {}", code + 1));
            };
            if exponents >> 4 != 0 {
                return bad(format!("has 2^{} protection information intervals in a block", exponents >> 4));
            }
            match Format::new(Guard::Crc16, block_size, TUPLE_LEN) {
                Ok(format) => Some((format, pi_type)),
                Err(error) => return bad(format!("has an impossible format: {error}")),
            }
        };
        Ok(Self {
            lun,
            blocks,
            block_size,
            protection,
            provisioned: provisioning & LBPME != 0,
            reads_zero: provisioning & LBPRZ != 0,
        })
    }

    /// Its number as headers have it.
    #[must_use]
    pub fn wire_lun(&self) -> Lun {
        Lun(LunAddress::Unit(self.lun).emit())
    }

    /// The type of its protection.
    #[must_use]
    pub fn pi_type(&self) -> Option<PiType> {
        self.protection.map(|(_, pi_type)| pi_type)
    }

    /// Bytes that a command for `blocks` blocks transfers. Tuples travel when its PROTECT field asks for them and the unit
    /// has some.
    #[must_use]
    pub fn transfer_len(&self, blocks: u32, protect: u8) -> u64 {
        let tuple = if protect != 0 && self.protection.is_some() { u64::from(TUPLE_LEN) } else { 0 };
        u64::from(blocks) * (u64::from(self.block_size) + tuple)
    }

    /// The reference tag of a transfer at `lba`, unless told otherwise: its low 32 bits, where the type has one.
    #[must_use]
    pub fn ref_tag(&self, lba: u64) -> u32 {
        match self.protection {
            Some((format, PiType::Type1 | PiType::Type2)) => {
                u32::try_from(format.ref_tag_of(lba)).expect("a reference tag of 32 bits")
            }
            _ => 0,
        }
    }

    /// READ or WRITE, in a CDB of `length`, or of the shortest in which all has room that it says. `None` when it has no room.
    #[inline]
    #[must_use]
    pub fn cdb(&self, op: BlockOp, length: Option<CdbLength>, fields: &BlockFields) -> Option<Cdb> {
        if let Some(length) = length {
            return Cdb::blocks(op, length, fields);
        }
        // Units of type 2 take a PROTECT field in a long CDB alone.
        if fields.protect != 0 && self.pi_type() == Some(PiType::Type2) {
            return Cdb::blocks(op, CdbLength::ThirtyTwo, fields);
        }
        Cdb::blocks(op, CdbLength::Ten, fields).or_else(|| Cdb::blocks(op, CdbLength::Sixteen, fields))
    }

    /// Fields of a transfer whose tags are those of its blocks.
    #[inline]
    #[must_use]
    pub fn fields(&self, lba: u64, blocks: u32, protect: u8) -> BlockFields {
        let tags = LongFields { ref_tag: self.ref_tag(lba), app_tag: 0, app_tag_mask: 0 };
        BlockFields { lba, blocks, protect, fua: false, tags }
    }
}

#[cfg(test)]
mod tests {
    use intact::scsi::capacity::read_capacity_16;
    use intact::scsi::medium::Medium;

    use super::*;

    fn protected(pi_type: PiType) -> Unit {
        let format = Format::new(Guard::Crc16, 512, 8).unwrap();
        let medium = Medium::new(0x1_0000_0001, 512, Some((format, pi_type))).unwrap();
        Unit::parse(3, &read_capacity_16(&medium)).unwrap()
    }

    #[test]
    fn what_our_target_says_of_a_unit_is_understood() {
        for pi_type in [PiType::Type1, PiType::Type2, PiType::Type3] {
            let unit = protected(pi_type);
            assert_eq!((unit.blocks, unit.block_size, unit.pi_type()), (0x1_0000_0001, 512, Some(pi_type)));
            assert!(unit.provisioned && unit.reads_zero);
            assert_eq!((unit.transfer_len(8, 0), unit.transfer_len(8, 1)), (4096, 4160));
        }
        let plain = Medium::new(16, 4096, None).unwrap();
        let plain = Unit::parse(0, &read_capacity_16(&plain)).unwrap();
        assert_eq!((plain.blocks, plain.block_size, plain.protection), (16, 4096, None));
        assert_eq!(plain.transfer_len(2, 1), 8192, "there is nothing that could travel along");
        assert_eq!(protected(PiType::Type1).ref_tag(0x1_0000_0005), 5);
        assert_eq!(protected(PiType::Type3).ref_tag(5), 0);
    }

    #[test]
    fn a_unit_that_can_not_be_is_refused() {
        let medium = Medium::new(16, 4096, None).unwrap();
        let good = read_capacity_16(&medium);
        let with = |change: fn(&mut [u8; 32])| {
            let mut data = good;
            change(&mut data);
            Unit::parse(0, &data).unwrap_err()
        };
        assert!(Unit::parse(0, &good[..15]).unwrap_err().contains("15 bytes"));
        assert!(with(|data| data[..8].fill(0xFF)).contains("more blocks"));
        assert!(with(|data| data[8..12].fill(0)).contains("blocks of 0 bytes"));
        assert!(with(|data| data[8] = 0x80).contains("blocks of"));
        assert!(with(|data| data[12] = 0x07).contains("type 4"));
        assert!(
            with(|data| (data[12], data[13]) = (1, 0x30)).contains("2^3 protection information intervals")
        );
    }

    #[test]
    fn the_shortest_cdb_that_holds_all_is_taken() {
        let length = |unit: &Unit, lba, blocks, protect| {
            unit.cdb(BlockOp::Read, None, &unit.fields(lba, blocks, protect)).unwrap().as_bytes().len()
        };
        let (one, two) = (protected(PiType::Type1), protected(PiType::Type2));
        assert_eq!((length(&one, 0, 8, 1), length(&two, 0, 8, 0)), (10, 10));
        assert_eq!((length(&one, 1 << 32, 8, 1), length(&one, 0, 1 << 16, 0)), (16, 16));
        assert_eq!(length(&two, 7, 8, 1), 32);
        assert_eq!(two.cdb(BlockOp::Read, Some(CdbLength::Ten), &two.fields(1 << 32, 8, 1)), None);
    }
}
