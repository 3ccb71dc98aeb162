//! What was written where, and which commands are under way: so that reads can be checked exactly.
//!
//! An extent is what one command covers. Commands that could see each other's effects are kept apart: while an extent is
//! written nothing else goes there, while it is read nothing writes there.

use super::source::Op;

/// All extents of a run.
#[derive(Debug)]
pub(super) struct Extents {
    /// Writes to each, ever.
    generations: Vec<u32>,
    /// Commands under way: reads, or [`WRITING`].
    under_way: Vec<u32>,
}

const WRITING: u32 = u32::MAX;

impl Extents {
    pub(super) fn new(count: u32) -> Self {
        Self { generations: vec![0; count as usize], under_way: vec![0; count as usize] }
    }

    /// Starts a command at `wanted`, or at the next extent where it can start; `None` if there is none. Returns the extent
    /// and the generation that is written or has to be read.
    pub(super) fn start(&mut self, op: Op, wanted: u32) -> Option<(u32, u32)> {
        let count = u32::try_from(self.under_way.len()).expect("made from a u32");
        (wanted..count).chain(0..wanted).find_map(|extent| Some((extent, self.start_at(op, extent)?)))
    }

    /// Starts a command at this extent, if it can: returns the generation.
    pub(super) fn start_at(&mut self, op: Op, extent: u32) -> Option<u32> {
        let at = extent as usize;
        let under_way = &mut self.under_way[at];
        match op {
            Op::Read if *under_way != WRITING => {
                *under_way += 1;
                Some(self.generations[at])
            }
            Op::Write if *under_way == 0 => {
                *under_way = WRITING;
                Some(self.generations[at] + 1)
            }
            Op::Read | Op::Write => None,
        }
    }

    /// A command ended well.
    pub(super) fn end(&mut self, op: Op, extent: u32) {
        let at = extent as usize;
        match op {
            Op::Read => self.under_way[at] -= 1,
            Op::Write => {
                self.under_way[at] = 0;
                self.generations[at] += 1;
            }
        }
    }

    /// Whether an extent was ever written.
    pub(super) fn is_written(&self, extent: u32) -> bool {
        self.generations[extent as usize] != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_alone_and_readers_are_together() {
        let mut extents = Extents::new(3);
        assert_eq!(extents.start(Op::Write, 1), Some((1, 1)));
        assert_eq!(extents.start(Op::Read, 1), Some((2, 0)));
        assert_eq!(extents.start(Op::Read, 2), Some((2, 0)));
        assert_eq!(extents.start(Op::Write, 1), Some((0, 1)));
        assert_eq!(extents.start(Op::Write, 0), None);
        extents.end(Op::Write, 1);
        assert!(extents.is_written(1) && !extents.is_written(2));
        assert_eq!(extents.start(Op::Read, 1), Some((1, 1)));
        extents.end(Op::Read, 2);
        assert_eq!(extents.start(Op::Write, 2), None);
        extents.end(Op::Read, 2);
        assert_eq!(extents.start(Op::Write, 2), Some((2, 1)));
    }
}
