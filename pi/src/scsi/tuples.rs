//! Tuples that a logical unit makes by itself, and intervals of a block. (SBC-4 4.21.2, 5.52 "WRITE SAME".)

use crate::checks::{Checks, PiType, Tags};
use crate::context::PiContext;
use crate::format::Format;

/// The tuple of every interval after FORMAT UNIT: escaped in all types.
pub const FORMATTED_TUPLE: [u8; 8] = [0xFF; 8];

/// One protection information interval of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Address of the block.
    pub lba: u64,
    /// Number of the interval in it.
    pub number: u64,
}

/// The place of interval `index` of a transfer that starts at `lba`, when blocks have 2^`exponent` intervals
/// (`P_I_EXPONENT`, 0 to 15).
pub const fn interval(lba: u64, index: u64, exponent: u8) -> Interval {
    Interval { lba: lba.wrapping_add(index >> exponent), number: index & ((1 << exponent) - 1) }
}

/// The context that generates the tuples of a write without any (WRPROTECT 000b): application tag FFFFh; reference tag
/// from the address for type 1, all ones for the others.
///
/// # Panics
/// When the format has a storage tag, which SCSI has not.
pub fn generate_context(format: &Format, pi_type: PiType, lba: u64) -> PiContext {
    let (pi_type, ref_tag) = match pi_type {
        PiType::Type1 => (PiType::Type1, lba),
        // All ones in every interval: what type 3, which does not count, generates.
        PiType::Type2 | PiType::Type3 => (PiType::Type3, u64::MAX),
    };
    assert_eq!(format.storage_tag_bits(), 0, "SCSI has no storage tags");
    let tags = Tags { app_tag: 0xFFFF, app_tag_mask: 0xFFFF, storage_tag: 0, ref_tag };
    PiContext::new(format, pi_type, Checks::ALL, tags).expect("no storage tag to be too wide")
}

/// Writes the tuples of a WRITE SAME whose one block came with `tuple`: the reference tag counts up for types 1 and 2;
/// a tuple of all ones is repeated. ATO is 1: the application tag stays.
///
/// # Panics
/// When `tuples` is not whole tuples of eight bytes.
pub fn write_same(pi_type: PiType, tuple: [u8; 8], tuples: &mut [u8]) {
    assert_eq!(tuples.len() % tuple.len(), 0, "whole tuples");
    let [head @ .., _, _, _, _] = tuple;
    let [.., a, b, c, d] = tuple;
    let counts = pi_type != PiType::Type3 && tuple != FORMATTED_TUPLE;
    let mut ref_tag = u32::from_be_bytes([a, b, c, d]);
    for each in tuples.chunks_exact_mut(tuple.len()) {
        let (first, second) = each.split_at_mut(head.len());
        first.copy_from_slice(&head);
        second.copy_from_slice(&ref_tag.to_be_bytes());
        ref_tag = ref_tag.wrapping_add(u32::from(counts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_count_within_their_blocks() {
        assert_eq!(interval(10, 0, 0), Interval { lba: 10, number: 0 });
        assert_eq!(interval(10, 7, 0), Interval { lba: 17, number: 0 });
        assert_eq!(interval(10, 7, 2), Interval { lba: 11, number: 3 });
    }

    #[test]
    fn a_repeated_tuple_counts_unless_it_is_the_escape() {
        let mut tuples = [0; 16];
        write_same(PiType::Type1, [1, 2, 3, 4, 0xFF, 0xFF, 0xFF, 0xFF], &mut tuples);
        assert_eq!(tuples, [1, 2, 3, 4, 0xFF, 0xFF, 0xFF, 0xFF, 1, 2, 3, 4, 0, 0, 0, 0]);
        write_same(PiType::Type1, FORMATTED_TUPLE, &mut tuples);
        assert_eq!(tuples, [0xFF; 16]);
        write_same(PiType::Type3, [1, 2, 3, 4, 5, 6, 7, 8], &mut tuples);
        assert_eq!(tuples[8..], [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
