//! GET LBA STATUS. (SBC-4 "GET LBA STATUS".)

use super::big_endian::put;
use super::medium::Medium;
use super::sense::Sense;
use super::transfer::check_range;

/// The parameter data, untruncated: one descriptor, from this block on as far as it reaches. Which blocks are given back is the
/// backend's to know, and not all of them do: so the state is "mapped or unknown".
///
/// # Errors
/// LOGICAL BLOCK ADDRESS OUT OF RANGE.
pub fn report(lba: u64, medium: &Medium) -> Result<Vec<u8>, Sense> {
    const HEADER_LEN: usize = 8;
    const DESCRIPTOR_LEN: usize = 16;
    /// PROVISIONING STATUS 0h.
    const MAPPED_OR_UNKNOWN: u8 = 0;
    check_range(lba, 1, medium)?;
    let blocks = u32::try_from(medium.blocks() - lba).unwrap_or(u32::MAX);
    let mut data = vec![0; HEADER_LEN + DESCRIPTOR_LEN];
    let length = u32::try_from(data.len() - 4).expect("it is one descriptor");
    put(&mut data, 0, &length.to_be_bytes());
    put(&mut data, 8, &lba.to_be_bytes());
    put(&mut data, 16, &blocks.to_be_bytes());
    data[20] = MAPPED_OR_UNKNOWN;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::sense::code;

    #[test]
    fn one_descriptor_reaches_to_the_last_block_or_as_far_as_it_can_say() {
        let medium = Medium::new(1000, 512, None).unwrap();
        let expected = [0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0xE6, 0, 0, 0, 2, 0, 0, 0, 0];
        assert_eq!(report(998, &medium), Ok(expected.to_vec()));
        let large = Medium::new(1 << 40, 512, None).unwrap();
        assert_eq!(report(0, &large).unwrap()[16..20], [0xFF; 4]);
        let out = Sense::new(code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
        for lba in [1000, 1001, 1 << 63, u64::MAX] {
            assert_eq!(report(lba, &medium), Err(out));
        }
    }
}
