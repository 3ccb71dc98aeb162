//! Which command comes next, and where.

use super::Workload;
use super::extents::Extents;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// It reads blocks.
    Read,
    /// It writes blocks.
    Write,
}

/// Where commands come from.
#[derive(Clone, Debug)]
pub(super) struct Source {
    kind: Kind,
    /// The next extent, of those that go in order.
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Without end.
    Workload(Workload),
    /// Writes each extent once.
    Fill,
    /// Reads each extent that was written once.
    ReadBack,
}

impl Source {
    pub(super) fn workload(workload: Workload) -> Self {
        Self { kind: Kind::Workload(workload), next: 0 }
    }

    pub(super) fn fill() -> Self {
        Self { kind: Kind::Fill, next: 0 }
    }

    pub(super) fn read_back() -> Self {
        Self { kind: Kind::ReadBack, next: 0 }
    }

    /// Whether an end comes by itself.
    pub(super) fn is_finite(&self) -> bool {
        !matches!(self.kind, Kind::Workload(_))
    }

    /// The next command and its extent; `None` at the end.
    #[inline]
    pub(super) fn next(
        &mut self,
        random: &mut fastrand::Rng,
        count: u32,
        extents: Option<&Extents>,
    ) -> Option<(Op, u32)> {
        match self.kind {
            Kind::Workload(Workload::Randread) => Some((Op::Read, random.u32(..count))),
            Kind::Workload(Workload::Randwrite) => Some((Op::Write, random.u32(..count))),
            Kind::Workload(Workload::Randrw) => {
                let op = if random.bool() { Op::Read } else { Op::Write };
                Some((op, random.u32(..count)))
            }
            Kind::Workload(Workload::Read) => Some((Op::Read, self.step(count))),
            Kind::Workload(Workload::Write) => Some((Op::Write, self.step(count))),
            Kind::Fill => self.step_once(count).map(|extent| (Op::Write, extent)),
            Kind::ReadBack => loop {
                let extent = self.step_once(count)?;
                if extents.is_none_or(|extents| extents.is_written(extent)) {
                    return Some((Op::Read, extent));
                }
            },
        }
    }

    /// In order, round and round.
    fn step(&mut self, count: u32) -> u32 {
        let extent = self.next;
        self.next = if extent + 1 == count { 0 } else { extent + 1 };
        extent
    }

    /// In order, once.
    fn step_once(&mut self, count: u32) -> Option<u32> {
        let extent = self.next;
        (extent < count).then(|| {
            self.next += 1;
            extent
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(source: &mut Source, extents: Option<&Extents>, most: usize) -> Vec<(Op, u32)> {
        let mut random = fastrand::Rng::with_seed(1);
        std::iter::from_fn(|| source.next(&mut random, 3, extents)).take(most).collect()
    }

    #[test]
    fn sequential_workloads_go_round_and_fills_end() {
        let extents = |ops: Vec<(Op, u32)>| ops.into_iter().map(|(_, extent)| extent).collect::<Vec<_>>();
        assert_eq!(extents(take(&mut Source::workload(Workload::Read), None, 5)), [0, 1, 2, 0, 1]);
        assert_eq!(extents(take(&mut Source::fill(), None, 5)), [0, 1, 2]);
    }

    #[test]
    fn only_what_was_written_is_read_back() {
        let mut extents = Extents::new(3);
        extents.start(Op::Write, 1).unwrap();
        extents.end(Op::Write, 1);
        assert_eq!(take(&mut Source::read_back(), Some(&extents), 5), [(Op::Read, 1)]);
    }

    #[test]
    fn mixed_workloads_read_and_write_all_over() {
        let ops = take(&mut Source::workload(Workload::Randrw), None, 1000);
        for op in [Op::Read, Op::Write] {
            for extent in 0..3 {
                assert!(ops.iter().filter(|found| **found == (op, extent)).count() > 100);
            }
        }
    }
}
