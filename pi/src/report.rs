//! Everything that checking finds out of every block: for reports and tools, where the first mismatch is not enough.

use crate::context::{PiContext, load};
use crate::error::{Field, PiMismatch};
use crate::format::{Format, low_bits_wide, truncate};
use crate::sgl::{Cursor, total};

/// The fields of a tuple. Values stand in the low bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Guard: 16, 32 or 64 bits.
    pub guard: u64,
    /// Application tag.
    pub app_tag: u16,
    /// Storage tag, as wide as the format says.
    pub storage_tag: u64,
    /// Reference tag, as wide as the format says.
    pub ref_tag: u64,
}

/// What checking one block found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockReport {
    /// Index of the block in the transfer.
    pub block: u64,
    /// What the block's tuple holds, unmasked.
    pub stored: Tuple,
    /// What it should hold: the guard that was computed, and the tags of the context.
    pub expected: Tuple,
    /// The stored tuple has the escape value: nothing of this block was checked.
    pub escaped: bool,
    mismatches: [Option<PiMismatch>; 4],
}

impl BlockReport {
    /// The checks that failed, in the order of [`Field`].
    pub fn mismatches(&self) -> impl Iterator<Item = PiMismatch> {
        self.mismatches.into_iter().flatten()
    }

    /// Whether no check failed.
    pub fn is_ok(&self) -> bool {
        self.mismatches.iter().all(Option::is_none)
    }
}

impl Format {
    /// Reads the fields of a tuple.
    ///
    /// # Panics
    /// When `bytes` is not one [tuple](Format::tuple_size).
    pub fn parse_tuple(&self, bytes: &[u8]) -> Tuple {
        assert_eq!(bytes.len(), self.tuple_size(), "the bytes of one tuple");
        self.fields(load(bytes))
    }

    /// The fields of a tuple that was read as one number.
    pub(crate) fn fields(&self, tuple: u128) -> Tuple {
        let space_bits = self.guard().space_bits();
        let (storage_tag, ref_tag) = self.split_space(tuple & low_bits_wide(space_bits));
        let guard = truncate(tuple >> space_bits >> 16);
        let [.., high, low] = (tuple >> space_bits).to_be_bytes();
        Tuple { guard, app_tag: u16::from_be_bytes([high, low]), storage_tag, ref_tag }
    }
}

impl PiContext {
    /// Whether a stored tuple takes its block out of all checks: by the escape rule of the type, if it is honoured.
    ///
    /// # Panics
    /// When `tuple` is not one [tuple](Format::tuple_size).
    pub fn escapes(&self, tuple: &[u8]) -> bool {
        assert_eq!(tuple.len(), self.format().tuple_size(), "the bytes of one tuple");
        self.is_escaped(load(tuple))
    }

    /// Looks at every block of `data` with separate metadata `md`, and reports each to `each`, the good ones too.
    ///
    /// Slower than [`PiContext::verify`], which stops at the first mismatch and computes no guard that is not checked.
    ///
    /// ```
    /// # use t10pi::{Checks, Field, Format, Guard, PiContext, PiType, Tags};
    /// let format = Format::new(Guard::Crc16, 512, 8)?;
    /// let tags = Tags { app_tag_mask: 0xFFFF, ..Tags::default() };
    /// let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, tags)?;
    /// let (data, mut md) = ([7; 2048], [0; 32]);
    /// pi.generate(&[&data], &mut [&mut md]);
    /// md[8..16].fill(0); // guard, and the reference tag, which should be 1
    /// md[24..32].fill(0xFF); // never written
    ///
    /// let mut seen = Vec::new();
    /// pi.inspect(&[&data], &[&md], |report| {
    ///     seen.push((report.escaped, report.mismatches().map(|mismatch| mismatch.field).collect::<Vec<_>>()));
    /// });
    /// assert_eq!(seen[1], (false, vec![Field::Guard, Field::RefTag]));
    /// assert_eq!(seen[3], (true, vec![]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When `data` is not whole blocks or `md` not one metadata for each.
    pub fn inspect(&self, data: &[&[u8]], md: &[&[u8]], mut each: impl FnMut(&BlockReport)) {
        let blocks = self.blocks_separate(total(data), total(md));
        let (mut data, mut md) = (Cursor::new(data), Cursor::new(md));
        for block in 0..blocks {
            let state = self.scan(&mut data);
            each(&self.report(&mut md, state, block));
        }
    }

    /// As [`PiContext::inspect`], of a stream in which each block is followed by its metadata.
    ///
    /// # Panics
    /// When `stream` is not whole blocks with their metadata.
    pub fn inspect_interleaved(&self, stream: &[&[u8]], mut each: impl FnMut(&BlockReport)) {
        let blocks = self.blocks_interleaved(total(stream));
        let mut source = Cursor::new(stream);
        for block in 0..blocks {
            let state = self.scan(&mut source);
            each(&self.report(&mut source, state, block));
        }
    }

    /// The checksum state of one block's data.
    fn scan(&self, source: &mut Cursor<'_, '_>) -> u64 {
        let mut state = self.seed;
        source.pieces(self.block(), |piece| state = self.generating.update(state, piece));
        state
    }

    /// What the next metadata of `source` says of a block whose data have the checksum `state`.
    fn report(&self, source: &mut Cursor<'_, '_>, mut state: u64, block: usize) -> BlockReport {
        let size = self.format().tuple_size();
        let mut tuple = [0; 16];
        source.pieces(self.lead(), |piece| state = self.generating.update(state, piece));
        source.read(&mut tuple[..size]);
        source.skip(self.metadata() - self.lead() - size);

        let block = block as u64;
        let stored = load(&tuple[..size]);
        let expected = self.expected(self.generating.finish(state), block);
        let escaped = self.is_escaped(stored);
        let mismatches = if escaped { [None; 4] } else { self.mismatches(stored, expected, block) };
        let format = self.format();
        BlockReport {
            block,
            stored: format.fields(stored),
            expected: format.fields(expected),
            escaped,
            mismatches,
        }
    }

    /// The fields in whose compared bits two tuples differ, in the order of [`Field`].
    pub(crate) fn mismatches(&self, stored: u128, expected: u128, block: u64) -> [Option<PiMismatch>; 4] {
        let expected = self.format().fields(expected & self.compared());
        let actual = self.format().fields(stored & self.compared());
        [
            (Field::Guard, expected.guard, actual.guard),
            (Field::AppTag, expected.app_tag.into(), actual.app_tag.into()),
            (Field::StorageTag, expected.storage_tag, actual.storage_tag),
            (Field::RefTag, expected.ref_tag, actual.ref_tag),
        ]
        .map(|(field, expected, actual)| {
            (expected != actual).then_some(PiMismatch { block, field, expected, actual })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checks, Guard, PiType, Tags};

    #[test]
    fn every_block_is_reported_with_all_that_is_wrong_in_it() {
        let format = Format::new(Guard::Crc16, 512, 8).unwrap().with_storage_tag(8, 0xF0).unwrap();
        let tags = Tags { app_tag: 0x1234, app_tag_mask: 0xFF00, storage_tag: 0xA5, ref_tag: 0xFF_FFFF };
        let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, tags).unwrap();
        let (mut data, mut md) = (vec![7; 512 * 4], [0; 8 * 4]);
        pi.generate(&[&data], &mut [&mut md]);
        assert_eq!(
            format.parse_tuple(&md[8..16]),
            Tuple {
                guard: crate::crc::crc16(0, &[7; 512]).into(),
                app_tag: 0x1234,
                storage_tag: 0xA5,
                ref_tag: 0
            },
            "reference tags wrap at 24 bits"
        );
        md[10] = 0xFF; // application tag of block 1, compared bits
        md[12] = 0x5A; // its storage tag
        md[18..20].fill(0xFF); // block 2 is escaped
        data[512 * 2] = 0;
        md[27] ^= 0x0F; // application tag of block 3, where no bit is compared

        let mut reports = Vec::new();
        pi.inspect(&[&data[..700], &data[700..]], &[&md[..13], &md[13..]], |report| reports.push(*report));
        let failed: Vec<Vec<Field>> =
            reports.iter().map(|report| report.mismatches().map(|m| m.field).collect()).collect();
        assert_eq!(failed, [vec![], vec![Field::AppTag, Field::StorageTag], vec![], vec![]]);
        let first = reports[1].mismatches().next().unwrap();
        assert_eq!((first.block, first.expected, first.actual), (1, 0x1200, 0xFF00));
        assert_eq!(
            reports.iter().map(|report| report.escaped).collect::<Vec<_>>(),
            [false, false, true, false]
        );
        assert_ne!(reports[2].stored.guard, reports[2].expected.guard);
        assert!(reports[3].is_ok() && reports[3].stored.app_tag == 0x123B);

        let stream: Vec<u8> = data.chunks(512).zip(md.chunks(8)).flat_map(|(d, m)| [d, m].concat()).collect();
        let mut again = Vec::new();
        pi.inspect_interleaved(&stream.chunks(11).collect::<Vec<_>>(), |report| again.push(*report));
        assert_eq!(again, reports);
    }
}
