//! Communication IDs: each comes again only after all others, and none tells the next one.
//!
//! Whoever names a connection's ID in a message has seen one of ours: that is all the proof there is that a peer receives
//! what is sent to its address.

use std::hash::{DefaultHasher, Hasher};

/// One of several seeds that follow from one: of which none tells the others.
pub(super) fn derived(seed: u64, which: u8) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(seed);
    hasher.write_u8(which);
    hasher.finish()
}

/// A sequence of communication IDs.
#[derive(Debug)]
pub(super) struct Ids {
    key: u64,
    /// IDs given.
    count: u32,
}

/// Enough for a permutation that looks random, if its round function does.
const ROUNDS: u8 = 4;

impl Ids {
    pub(super) fn new(key: u64) -> Self {
        Self { key, count: 0 }
    }

    /// The next one; never 0, which means "none".
    pub(super) fn next_id(&mut self) -> u32 {
        loop {
            self.count = self.count.wrapping_add(1);
            let id = self.permute(self.count);
            if id != 0 {
                return id;
            }
        }
    }

    /// A Feistel network over the halves of a number: a permutation whatever its rounds do.
    fn permute(&self, number: u32) -> u32 {
        let [a, b, c, d] = number.to_be_bytes();
        let (mut left, mut right) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        u32::from(left) << 16 | u32::from(right)
    }

    fn round(&self, round: u8, half: u16) -> u16 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.key);
        hasher.write_u8(round);
        hasher.write_u16(half);
        let [low, high, ..] = hasher.finish().to_le_bytes();
        u16::from_le_bytes([low, high])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_id_comes_again_before_all_others_came() {
        let ids = Ids::new(1);
        // Every right half with a few left halves: a round that is no permutation would show.
        let mut seen: Vec<u32> = (0..1 << 20).map(|number| ids.permute(number)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1 << 20);
    }

    #[test]
    fn seeds_that_follow_from_one_differ() {
        let all: BTreeSet<u64> =
            (0..8).flat_map(|seed| (0..4).map(move |which| derived(seed, which))).collect();
        assert_eq!(all.len(), 32);
    }

    #[test]
    fn ids_are_not_zero_and_go_round() {
        let mut ids = Ids::new(1);
        // The number whose ID would be zero, by the rounds backwards.
        let (mut left, mut right) = (0, 0);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ ids.round(round, left), left);
        }
        let zero = u32::from(left) << 16 | u32::from(right);
        assert_eq!(ids.permute(zero), 0);
        ids.count = zero.wrapping_sub(2);
        let around = [(); 2].map(|()| ids.next_id());
        assert_eq!(around, [zero.wrapping_sub(1), zero.wrapping_add(1)].map(|number| ids.permute(number)));
        ids.count = u32::MAX;
        assert_eq!(ids.next_id(), ids.permute(0));
    }

    #[test]
    fn ids_tell_nothing_of_the_next_one_or_of_those_with_another_key() {
        let sequence = |key| {
            let mut ids = Ids::new(key);
            (0..1000).map(|_| ids.next_id()).collect::<Vec<_>>()
        };
        let one = sequence(1);
        let steps: BTreeSet<u32> = one.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert!(steps.len() > 990, "{} different steps", steps.len());
        let two = sequence(2);
        assert!(one.iter().filter(|id| two.contains(id)).count() < 10);
    }
}
