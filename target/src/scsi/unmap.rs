//! UNMAP: the list of parameters. (SBC-4 "UNMAP".)

use super::big_endian::{u16_at, u32_at, u64_at};
use super::lun::Limits;
use super::medium::Medium;
use super::sense::{Sense, code};
use super::transfer::check_range;

/// Blocks to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block.
    pub lba: u64,
    /// Blocks, at least 1, all on the medium.
    pub blocks: u32,
}

const HEADER_LEN: usize = 8;
const DESCRIPTOR_LEN: usize = 16;

/// The blocks that a list names, as many extents as the limits allow at most. An empty list names none; nor does a descriptor
/// that is not whole.
///
/// # Errors
/// PARAMETER LIST LENGTH ERROR for a list that is cut short; INVALID FIELD IN PARAMETER LIST for too many descriptors or
/// blocks; LOGICAL BLOCK ADDRESS OUT OF RANGE.
pub fn extents(list: &[u8], medium: &Medium, limits: &Limits) -> Result<Vec<Extent>, Sense> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let short = Sense::new(code::PARAMETER_LIST_LENGTH_ERROR);
    let (header, descriptors) = list.split_at_checked(HEADER_LEN).ok_or(short)?;
    // UNMAP DATA LENGTH counts what follows it.
    let data_len = usize::from(u16_at(header, 0)) + 2;
    let descriptors_len = usize::from(u16_at(header, 2));
    if data_len < HEADER_LEN + descriptors_len {
        return Err(Sense::in_list(0, None));
    }
    let descriptors = descriptors.get(..descriptors_len).ok_or(short)?;
    if descriptors.len() / DESCRIPTOR_LEN > usize::from(limits.unmap_ranges) {
        return Err(Sense::in_list(2, None));
    }
    let mut all = Vec::with_capacity(descriptors.len() / DESCRIPTOR_LEN);
    let mut total = 0_u64;
    for (index, descriptor) in descriptors.chunks_exact(DESCRIPTOR_LEN).enumerate() {
        let (lba, blocks) = (u64_at(descriptor, 0), u32_at(descriptor, 8));
        check_range(lba, u64::from(blocks), medium)?;
        total += u64::from(blocks);
        if total > u64::from(limits.unmap_blocks) {
            let at = HEADER_LEN + index * DESCRIPTOR_LEN + 8;
            return Err(Sense::in_list(u16::try_from(at).unwrap_or(u16::MAX), None));
        }
        if blocks > 0 {
            all.push(Extent { lba, blocks });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(extents: &[(u64, u32)]) -> Vec<u8> {
        let len = u16::try_from(extents.len() * DESCRIPTOR_LEN).unwrap();
        let mut list = [(len + 6).to_be_bytes(), len.to_be_bytes(), [0; 2], [0; 2]].concat();
        for (lba, blocks) in extents {
            list.extend([lba.to_be_bytes().as_slice(), &blocks.to_be_bytes(), &[0; 4]].concat());
        }
        list
    }

    fn parse(list: &[u8]) -> Result<Vec<Extent>, Sense> {
        let limits = Limits { unmap_blocks: 1000, unmap_ranges: 3, ..Limits::new(512, 1 << 20) };
        extents(list, &Medium::new(2000, 512, None).unwrap(), &limits)
    }

    #[test]
    fn descriptors_are_read_and_empty_ones_name_nothing() {
        let expected = vec![Extent { lba: 5, blocks: 6 }, Extent { lba: 1999, blocks: 1 }];
        assert_eq!(parse(&list(&[(5, 6), (7, 0), (1999, 1)])), Ok(expected));
        assert_eq!(parse(&[]), Ok(Vec::new()));
        assert_eq!(parse(&list(&[])), Ok(Vec::new()));
    }

    #[test]
    fn a_descriptor_that_is_not_whole_is_ignored_and_a_list_that_is_cut_short_refused() {
        let mut longer = list(&[(5, 6)]);
        (longer[1], longer[3]) = (6 + 24, 24);
        longer.extend([0xFF; 8]);
        assert_eq!(parse(&longer), Ok(vec![Extent { lba: 5, blocks: 6 }]));
        let short = Err(Sense::new(code::PARAMETER_LIST_LENGTH_ERROR));
        let whole = list(&[(5, 6)]);
        for len in 1..whole.len() {
            assert_eq!(parse(&whole[..len]), short, "{len}");
        }
        let mut contradicting = list(&[(5, 6)]);
        contradicting[1] = 10;
        assert_eq!(parse(&contradicting), Err(Sense::in_list(0, None)));
    }

    #[test]
    fn too_much_is_refused() {
        let out = Sense::new(code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
        assert_eq!(parse(&list(&[(5, 6), (1999, 2)])), Err(out));
        assert_eq!(parse(&list(&[(u64::MAX, u32::MAX)])), Err(out));
        assert_eq!(parse(&list(&[(0, 1); 4])), Err(Sense::in_list(2, None)));
        assert_eq!(parse(&list(&[(0, 999), (0, 1)])).map(|all| all.len()), Ok(2));
        assert_eq!(parse(&list(&[(0, 999), (0, 2)])), Err(Sense::in_list(32, None)));
    }
}
