//! Data that says who wrote it, when and as part of which command: every 8 bytes of a block.
//!
//! A block with two stamps is torn. Stamps of the blocks that one command read show whether commands were atomic, whatever
//! their order: see [`find_torn_command`].

/// What a word of a block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Who wrote it, 0 to 3.
    pub writer: u8,
    /// Which volume it was meant for, 0 to 3.
    pub volume: u8,
    /// The writer's number for the command, below 2^28.
    pub sequence: u32,
    /// First block of the command, below 2^16.
    pub slba: u16,
    /// Blocks of the command, 1 to 255.
    pub blocks: u8,
    /// Which of its blocks this is.
    pub index: u8,
}

impl Stamp {
    /// The word.
    ///
    /// # Panics
    /// When a number is out of its range.
    #[must_use]
    pub fn word(&self) -> u64 {
        assert!(self.writer < 4 && self.volume < 4 && self.sequence < 1 << 28 && self.index < self.blocks);
        u64::from(self.writer) << 62
            | u64::from(self.volume) << 60
            | u64::from(self.sequence) << 32
            | u64::from(self.slba) << 16
            | u64::from(self.blocks) << 8
            | u64::from(self.index)
    }

    /// What a word says; `None` when no stamp looks like this.
    #[must_use]
    pub fn of_word(word: u64) -> Option<Self> {
        let [high, low] = [word >> 32, word & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or(0));
        let [index, blocks, slba @ ..] = low.to_le_bytes();
        let slba = u16::from_le_bytes(slba);
        let [.., top] = high.to_le_bytes();
        let (writer, volume) = (top >> 6, top >> 4 & 3);
        let stamp = Self { writer, volume, sequence: high & 0x0fff_ffff, slba, blocks, index };
        (index < blocks).then_some(stamp)
    }

    /// Fills a block.
    pub fn fill(&self, block: &mut [u8]) {
        let word = self.word().to_le_bytes();
        block.chunks_exact_mut(8).for_each(|to| to.copy_from_slice(&word));
    }

    /// What a block says.
    ///
    /// # Errors
    /// When it says two things, or nothing that makes sense.
    pub fn of_block(block: &[u8]) -> Result<Self, String> {
        let words = || {
            block.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("a word has 8 bytes")))
        };
        let first = words().next().unwrap_or(0);
        let stamp = Self::of_word(first).ok_or_else(|| format!("{first:#018x} is no stamp"))?;
        match words().position(|word| word != first) {
            None => Ok(stamp),
            Some(at) => Err(format!(
                "the block is torn at byte {}: {stamp:?}, then {:?}",
                at * 8,
                words().nth(at).map(Self::of_word)
            )),
        }
    }

    /// The block that it was meant for.
    #[must_use]
    pub fn lba(&self) -> u64 {
        u64::from(self.slba) + u64::from(self.index)
    }

    /// Whether the command wrote a block.
    #[must_use]
    pub fn covers(&self, lba: u64) -> bool {
        (u64::from(self.slba)..u64::from(self.slba) + u64::from(self.blocks)).contains(&lba)
    }

    /// Whether two blocks were written by one command.
    #[must_use]
    pub fn same_command(&self, other: &Self) -> bool {
        (self.writer, self.volume, self.sequence) == (other.writer, other.volume, other.sequence)
    }
}

/// Looks for two commands of which each seems to have come after the other, in what one command read: blocks from some LBA on.
///
/// Where both wrote two blocks, the later one of them shows in both blocks, or neither does. So if block i shows one and block
/// j the other, and both wrote both, a command was seen in part.
#[must_use]
pub fn find_torn_command(seen: &[Stamp]) -> Option<(Stamp, Stamp)> {
    seen.iter().enumerate().find_map(|(at, one)| {
        let other = seen[at + 1..]
            .iter()
            .find(|other| !one.same_command(other) && one.covers(other.lba()) && other.covers(one.lba()))?;
        Some((*one, *other))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(sequence: u32, slba: u16, blocks: u8, index: u8) -> Stamp {
        Stamp { writer: 1, volume: 2, sequence, slba, blocks, index }
    }

    #[test]
    fn a_block_tells_its_stamp_and_whether_it_is_torn() {
        let stamp = stamp(0x0abc_def0, 0x1234, 32, 5);
        let mut block = [0; 4096];
        stamp.fill(&mut block);
        assert_eq!(Stamp::of_block(&block), Ok(stamp));
        block[4088] ^= 1;
        assert!(Stamp::of_block(&block).unwrap_err().contains("torn at byte 4088"));
        assert!(Stamp::of_block(&[0; 4096]).unwrap_err().contains("is no stamp"));
    }

    #[test]
    fn a_command_that_was_seen_in_part_is_found() {
        // Blocks 10 and 11 were written by 1 and 2.
        assert!(find_torn_command(&[stamp(1, 10, 2, 0), stamp(2, 10, 2, 1)]).is_some());
        // Here 2 wrote block 11 only.
        assert_eq!(find_torn_command(&[stamp(1, 10, 2, 0), stamp(2, 11, 2, 0)]), None);
        assert_eq!(find_torn_command(&[stamp(1, 10, 2, 0), stamp(1, 10, 2, 1)]), None);
    }
}
