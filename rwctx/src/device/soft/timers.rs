//! One timer per queue pair, cheap to move: deadlines live in the queue pairs, and the heap holds for each the earliest
//! moment at which it must be looked at. A deadline that moves back costs nothing until that moment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use crate::device::Qpn;

/// The moments at which queue pairs want to be looked at.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Qpn)>>,
}

impl Timers {
    /// Makes room for the timers of one more queue pair.
    pub(super) fn reserve(&mut self, queue_pairs: usize) {
        // One each, and as many that were overtaken: half of the room, which `tidy` keeps them to.
        let wanted = 4 * queue_pairs;
        self.heap.reserve(wanted.saturating_sub(self.heap.len()));
    }

    /// Sees to it that `qpn` comes up at `due` or before; `armed` is the earliest entry that it has.
    #[inline]
    pub(super) fn arm(&mut self, qpn: Qpn, armed: &mut Option<Instant>, due: Option<Instant>) {
        let Some(due) = due else { return };
        if armed.is_none_or(|at| due < at) {
            self.heap.push(Reverse((due, qpn)));
            *armed = Some(due);
        }
    }

    /// Takes the next entry that is due. It counts only if it is still the one that its queue pair has armed.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Qpn)> {
        let &Reverse((at, _)) = self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Forgets entries that were overtaken by an earlier one, once half of the room is full: a retransmission timer that gets
    /// shorter with each answer leaves many. `counts` tells those that queue pairs have armed.
    #[inline]
    pub(super) fn tidy(&mut self, counts: impl Fn(Instant, Qpn) -> bool) {
        if self.heap.len() > self.heap.capacity() / 2 {
            self.heap.retain(|&Reverse((at, qpn))| counts(at, qpn));
        }
    }

    /// The earliest moment at which something may be due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|&Reverse((at, _))| at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a base for a virtual clock")]
    fn a_deadline_that_moves_back_makes_no_entry_and_one_that_moves_forward_does() {
        let start = Instant::now();
        let at = |ms| Some(start + Duration::from_millis(ms));
        let mut timers = Timers::default();
        let mut armed = None;
        timers.arm(Qpn(7), &mut armed, None);
        assert_eq!(timers.next(), None);
        timers.arm(Qpn(7), &mut armed, at(5));
        timers.arm(Qpn(7), &mut armed, at(9));
        assert_eq!((timers.next(), timers.heap.len()), (at(5), 1));
        timers.arm(Qpn(7), &mut armed, at(3));
        assert_eq!((timers.next(), armed), (at(3), at(3)));
        assert_eq!(timers.pop_due(start), None);
        assert_eq!(timers.pop_due(start + Duration::from_millis(4)).map(|(_, qpn)| qpn), Some(Qpn(7)));
        assert_eq!(timers.next(), at(5), "the overtaken entry comes up and is recognised by its time");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a base for a virtual clock")]
    fn deadlines_that_move_to_and_fro_need_no_more_room_than_there_is() {
        let start = Instant::now();
        let mut timers = Timers::default();
        let mut armed = [None; 5];
        let mut due = [None; 5];
        timers.reserve(armed.len());
        let room = timers.heap.capacity();
        let mut random = fastrand::Rng::with_seed(1);
        for us in 0..1_000_000 {
            let now = start + Duration::from_micros(us);
            while let Some((at, qpn)) = timers.pop_due(now) {
                let index = qpn.0 as usize;
                if armed[index] == Some(at) {
                    armed[index] = None;
                    due[index] = due[index].filter(|due| *due > now);
                    timers.arm(qpn, &mut armed[index], due[index]);
                }
            }
            let qpn = Qpn(random.u32(..5));
            let index = qpn.0 as usize;
            let far = [2_000_000, 16_000, 4_000, 640, 40][random.usize(..5)];
            due[index] = random.bool().then(|| now + Duration::from_micros(far));
            timers.arm(qpn, &mut armed[index], due[index]);
            timers.tidy(|at, qpn| armed[qpn.0 as usize] == Some(at));
            assert!(
                due.iter().zip(&armed).all(|(due, at)| due.is_none_or(|due| at.is_some_and(|at| at <= due)))
            );
            assert!(timers.heap.len() <= room / 2, "{} entries at {us}", timers.heap.len());
        }
    }
}
