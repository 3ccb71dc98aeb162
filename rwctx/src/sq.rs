//! Send-queue credits: one per entry, taken before posting, so that a queue never overflows.
//!
//! Whoever finds too few waits in order: nobody overtakes the first in line, so a long request is not starved by short
//! ones. The queue holds the waiters' names; the owner posts for them when [`SqCredits::next_ready`] gives them.

use std::collections::VecDeque;

/// Credits of one send queue; `T` names a waiter.
#[derive(Debug)]
pub struct SqCredits<T> {
    depth: u32,
    available: u32,
    waiting: VecDeque<(T, u32)>,
    waits: u64,
    closed: bool,
}

/// Whether credits were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// They are the caller's.
    Taken,
    /// The caller waits its turn.
    Queued,
    /// More than the queue has in all: it will never do.
    TooMany,
    /// The queue was closed: nobody gets any more.
    Closed,
}

impl<T> SqCredits<T> {
    /// All of a send queue's entries; room for `waiters` names without allocating.
    #[must_use]
    pub fn new(depth: u32, waiters: usize) -> Self {
        Self { depth, available: depth, waiting: VecDeque::with_capacity(waiters), waits: 0, closed: false }
    }

    /// Takes `entries` credits, or queues `waiter` behind those who wait.
    pub fn take(&mut self, waiter: T, entries: u32) -> Take {
        if self.closed {
            return Take::Closed;
        }
        if entries > self.depth {
            return Take::TooMany;
        }
        if self.waiting.is_empty() && entries <= self.available {
            self.available -= entries;
            return Take::Taken;
        }
        self.waiting.push_back((waiter, entries));
        self.waits += 1;
        Take::Queued
    }

    /// Gives credits back after their completion was seen.
    pub fn give(&mut self, entries: u32) {
        self.available += entries;
        debug_assert!(self.available <= self.depth, "credits come back once");
    }

    /// The first waiter, when there are credits for it; they are taken.
    pub fn next_ready(&mut self) -> Option<T> {
        let &(_, entries) = self.waiting.front()?;
        if entries > self.available {
            return None;
        }
        self.available -= entries;
        self.waiting.pop_front().map(|(waiter, _)| waiter)
    }

    /// Closes it (the queue pair failed): drops all waiters and hands their names out. Whoever asks from now on gets
    /// [`Take::Closed`].
    pub fn close(&mut self) -> impl Iterator<Item = T> + '_ {
        self.closed = true;
        self.waiting.drain(..).map(|(waiter, _)| waiter)
    }

    /// Whether somebody who asked for one credit would get it now ("write space"): never while others wait.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.closed && self.waiting.is_empty() && self.available > 0
    }

    /// Credits not taken.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.available
    }

    /// How often somebody had to wait.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_overtakes_the_first_in_line() {
        let mut sq = SqCredits::new(4, 4);
        assert_eq!(sq.take('a', 3), Take::Taken);
        assert_eq!(sq.take('b', 2), Take::Queued);
        assert_eq!(sq.take('c', 1), Take::Queued, "one credit is free, but b came first");
        assert_eq!(sq.next_ready(), None);
        sq.give(3);
        assert_eq!(sq.next_ready(), Some('b'));
        assert_eq!(sq.next_ready(), Some('c'));
        assert_eq!(sq.next_ready(), None);
        assert_eq!((sq.available(), sq.waits()), (1, 2));
    }

    #[test]
    fn a_request_larger_than_the_queue_is_refused_at_once() {
        let mut sq = SqCredits::new(4, 4);
        assert_eq!(sq.take((), 5), Take::TooMany);
        assert_eq!(sq.take((), 4), Take::Taken);
    }

    #[test]
    fn a_failed_queue_gives_its_waiters_back() {
        let mut sq = SqCredits::new(1, 4);
        sq.take(1, 1);
        sq.take(2, 1);
        sq.take(3, 1);
        assert_eq!(sq.close().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(sq.next_ready(), None);
        // Credits still come back, for nobody.
        sq.give(1);
        assert_eq!((sq.take(4, 1), sq.take(5, 2), sq.available()), (Take::Closed, Take::Closed, 1));
        assert!(!sq.has_room());
    }

    #[test]
    fn there_is_room_only_while_nobody_waits() {
        let mut sq = SqCredits::new(2, 4);
        assert!(sq.has_room());
        sq.take('a', 2);
        assert!(!sq.has_room());
        sq.take('b', 2);
        sq.give(1);
        assert!(!sq.has_room(), "one credit is free, but b waits");
        sq.give(1);
        assert_eq!(sq.next_ready(), Some('b'));
        sq.give(1);
        assert!(sq.has_room());
    }
}
