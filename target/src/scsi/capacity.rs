//! READ CAPACITY. (SBC-4 "READ CAPACITY".)

use t10pi::scsi::read_capacity_byte_12;

use super::big_endian::put;
use super::medium::Medium;

/// Parameter data of READ CAPACITY (10); a last address that has no room is all ones.
#[must_use]
pub fn read_capacity_10(medium: &Medium) -> [u8; 8] {
    let last = u32::try_from(medium.last_lba()).unwrap_or(u32::MAX);
    let mut data = [0; 8];
    put(&mut data, 0, &last.to_be_bytes());
    put(&mut data, 4, &medium.block_size().to_be_bytes());
    data
}

/// Parameter data of READ CAPACITY (16). Blocks can be given back (LBPME), and read as zeroes then (LBPRZ).
#[must_use]
pub fn read_capacity_16(medium: &Medium) -> [u8; 32] {
    const LBPME: u8 = 1 << 7;
    const LBPRZ: u8 = 1 << 6;
    let mut data = [0; 32];
    put(&mut data, 0, &medium.last_lba().to_be_bytes());
    put(&mut data, 8, &medium.block_size().to_be_bytes());
    // P_I_EXPONENT is 0: a block is one interval.
    data[12] = read_capacity_byte_12(medium.pi_type());
    data[14] = LBPME | LBPRZ;
    data
}

#[cfg(test)]
mod tests {
    use t10pi::{Format, Guard, PiType};

    use super::*;

    #[test]
    fn size_and_protection_are_told() {
        let format = Format::new(Guard::Crc16, 512, 8).unwrap();
        let medium = |pi_type| Medium::new(0x1_0203_0405, 512, Some((format, pi_type))).unwrap();
        for (pi_type, byte) in [(PiType::Type1, 1), (PiType::Type2, 3), (PiType::Type3, 5)] {
            let data = read_capacity_16(&medium(pi_type));
            assert_eq!(data[..16], [0, 0, 0, 1, 2, 3, 4, 4, 0, 0, 2, 0, byte, 0, 0xC0, 0]);
        }
        assert_eq!(read_capacity_10(&medium(PiType::Type1)), [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 2, 0]);
        let plain = Medium::new(0x0001_0000, 4096, None).unwrap();
        assert_eq!(read_capacity_10(&plain), [0, 0, 0xFF, 0xFF, 0, 0, 0x10, 0]);
        assert_eq!(
            read_capacity_16(&plain)[12..],
            [0, 0, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
    }
}
