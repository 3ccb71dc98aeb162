//! Data that says where and when it was written, so that any other data is noticed.
//!
//! A block is its LBA, its generation, and words that follow from both and the run's seed: every byte is known.

/// The first words of a block.
const HEADER_WORDS: u64 = 2;
/// Step between words: odd, so that all differ.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a block should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) seed: u64,
    pub(super) lba: u64,
    /// Counts the writes to the block; 0 = never.
    pub(super) generation: u32,
}

impl Stamp {
    /// Writes a block, of a multiple of 8 bytes.
    #[inline]
    pub(super) fn fill(&self, block: &mut [u8]) {
        for (word, value) in block.chunks_exact_mut(8).zip(self.words()) {
            word.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Checks a block.
    ///
    /// # Errors
    /// Says what is there instead.
    #[inline]
    pub(super) fn check(&self, block: &[u8]) -> Result<(), String> {
        let differs = block
            .chunks_exact(8)
            .zip(self.words())
            .fold(0, |differs, (word, value)| differs | (load(word) ^ value));
        if differs == 0 { Ok(()) } else { Err(self.describe(block)) }
    }

    #[inline]
    fn words(&self) -> impl Iterator<Item = u64> {
        let Self { seed, lba, generation } = *self;
        let generation = u64::from(generation);
        let base = mix(mix(seed ^ lba) ^ generation);
        let rest = (HEADER_WORDS..).map(move |index| base.wrapping_add(index.wrapping_mul(STEP)));
        [lba, generation].into_iter().chain(rest)
    }

    #[cold]
    fn describe(&self, block: &[u8]) -> String {
        let Self { lba, generation, .. } = self;
        let expected = self.words();
        let at = block.chunks_exact(8).zip(expected).position(|(word, value)| load(word) != value);
        let (found_lba, found_generation) = (load(&block[..8]), load(&block[8..16]));
        format!(
            "block {lba}, write {generation}: differs from byte {} on; it says block {found_lba}, write {found_generation}",
            at.unwrap_or(0) * 8
        )
    }
}

#[inline]
fn load(word: &[u8]) -> u64 {
    u64::from_le_bytes(word.try_into().expect("8 bytes"))
}

/// Spreads a number over all bits (the finalizer of splitmix64).
#[inline]
fn mix(mut value: u64) -> u64 {
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_recognised_and_any_change_of_it_noticed() {
        let stamp = Stamp { seed: 7, lba: 99, generation: 3 };
        let mut block = [0; 512];
        stamp.fill(&mut block);
        assert_eq!(stamp.check(&block), Ok(()));
        for at in [0, 8, 16, 511] {
            block[at] ^= 1;
            assert!(stamp.check(&block).unwrap_err().contains(&format!("byte {} on", at / 8 * 8)));
            block[at] ^= 1;
        }
    }

    #[test]
    fn blocks_of_other_places_and_times_are_told() {
        let mut block = [0; 512];
        Stamp { seed: 7, lba: 98, generation: 2 }.fill(&mut block);
        let error = Stamp { seed: 7, lba: 99, generation: 3 }.check(&block).unwrap_err();
        assert!(
            error.contains("block 99, write 3") && error.ends_with("it says block 98, write 2"),
            "{error}"
        );
        assert!(Stamp { seed: 8, lba: 98, generation: 2 }.check(&block).is_err());
    }
}
