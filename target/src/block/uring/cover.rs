//! Which sectors of a file a run of records touches.
//!
//! Owns the arithmetic of unaligned records (metadata, or blocks with metadata) in a file whose I/O is by sectors: the
//! sectors that are written whole, and those at either end that must be read and merged first. Pure.

use std::ops::Range;

/// The sectors that a run of records touches. Offsets are relative to `start`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cover {
    /// File offset of the first sector.
    pub(super) start: u64,
    /// Bytes of all sectors.
    pub(super) length: usize,
    /// The records.
    pub(super) records: Range<usize>,
    /// Sectors that the records fill.
    pub(super) whole: Range<usize>,
    /// Parts of the records that lie in sectors with other records, too.
    pub(super) edges: [Option<Range<usize>>; 2],
}

/// The sectors of `count` records of `stride` bytes from record `first`, where record 0 is at byte `base`. A sector
/// of 1 byte means that the file takes any offset.
pub(super) fn cover(base: u64, stride: usize, first: u64, count: u32, sector: usize) -> Cover {
    let wide = sector as u64;
    let low = base + first * stride as u64;
    let high = low + u64::from(count) * stride as u64;
    let (start, end) = (low - low % wide, high.next_multiple_of(wide));
    let at = |offset: u64| usize::try_from(offset - start).expect("a chunk is small");
    let records = at(low)..at(high);
    let head_is_whole = low == start;
    let tail_is_whole = high == end;
    if end - start == wide && !(head_is_whole && tail_is_whole) {
        let edges = [Some(records.clone()), None];
        return Cover { start, length: at(end), whole: 0..0, edges, records };
    }
    let whole = Range {
        start: if head_is_whole { 0 } else { sector },
        end: if tail_is_whole { at(end) } else { at(end) - sector },
    };
    let edges = [
        (!head_is_whole).then_some(records.start..whole.start),
        (!tail_is_whole).then_some(whole.end..records.end),
    ];
    Cover { start, length: at(end), whole, edges, records }
}

/// Records of `stride` bytes whose cover fits `room` bytes wherever they start.
pub(super) fn records_that_fit(stride: usize, sector: usize, room: usize) -> u32 {
    u32::try_from((room - 2 * (sector - 1)) / stride).expect("a bounce buffer is small")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tuples_inside_a_sector_are_one_edge() {
        let cover = cover(4096, 8, 3, 2, 512);
        assert_eq!(
            cover,
            Cover { start: 4096, length: 512, records: 24..40, whole: 0..0, edges: [Some(24..40), None] }
        );
    }

    #[test]
    fn a_run_over_three_sectors_has_two_edges_and_a_middle() {
        let cover = cover(4096, 8, 60, 100, 512);
        assert_eq!(cover.records, 480..1280);
        assert_eq!(cover.whole, 512..1024);
        assert_eq!(cover.edges, [Some(480..512), Some(1024..1280)]);
    }

    proptest! {
        #[test]
        fn every_byte_is_covered_once_and_edges_stay_in_their_sector(
            base in prop_oneof![Just(0_u64), Just(4096)],
            stride in prop_oneof![Just(8_usize), Just(16), Just(24), Just(520), Just(4104)],
            first in 0_u64..10_000, count in 1_u32..300,
            sector in prop_oneof![Just(1_usize), Just(512), Just(4096)],
        ) {
            let cover = cover(base, stride, first, count, sector);
            prop_assert_eq!(cover.start + cover.records.start as u64, base + first * stride as u64);
            prop_assert_eq!(cover.records.len(), stride * count as usize);
            prop_assert!(cover.start.is_multiple_of(sector as u64) && cover.length.is_multiple_of(sector));
            prop_assert!(cover.whole.start.is_multiple_of(sector) && cover.whole.end.is_multiple_of(sector));
            let mut pieces: Vec<_> = cover.edges.iter().flatten().chain([&cover.whole])
                .filter(|range| !range.is_empty()).cloned().collect();
            pieces.sort_by_key(|range| range.start);
            prop_assert_eq!(pieces[0].start, cover.records.start);
            prop_assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
            prop_assert_eq!(pieces[pieces.len() - 1].end, cover.records.end);
            for edge in cover.edges.iter().flatten() {
                prop_assert_eq!(edge.start / sector, (edge.end - 1) / sector);
                prop_assert!(edge.len() < sector);
            }
        }

        #[test]
        fn what_fits_fits_wherever_it_starts(first in 0_u64..10_000, sector in prop_oneof![Just(1_usize), Just(512), Just(4096)]) {
            let count = records_that_fit(4104, sector, 256 * 1024);
            prop_assert!(count > 50);
            prop_assert!(cover(0, 4104, first, count, sector).length <= 256 * 1024);
        }
    }
}
