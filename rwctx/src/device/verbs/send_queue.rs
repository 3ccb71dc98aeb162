//! Entries of a send queue that are in use: posted, and not yet known to be done.
//!
//! A work request without a completion of its own is done when a later one of its queue is. Pure accounting.

use std::collections::VecDeque;

/// The accounts of one send queue.
#[derive(Debug)]
pub(super) struct SendQueue {
    depth: u32,
    used: u32,
    /// Work requests from the last signaled one on.
    unsignaled: u32,
    /// For each signaled one under way, in order: itself and the unsignaled ones before it.
    groups: VecDeque<u32>,
}

impl SendQueue {
    /// A queue of `depth` entries.
    pub(super) fn new(depth: u32) -> Self {
        Self { depth, used: 0, unsignaled: 0, groups: VecDeque::with_capacity(depth as usize) }
    }

    /// Whether another entry is free.
    pub(super) fn has_room(&self) -> bool {
        self.used < self.depth
    }

    /// A work request takes an entry.
    pub(super) fn post(&mut self, signaled: bool) {
        self.used += 1;
        self.unsignaled += 1;
        if signaled {
            self.groups.push_back(std::mem::take(&mut self.unsignaled));
        }
    }

    /// The oldest signaled work request completed.
    pub(super) fn complete(&mut self) {
        if let Some(group) = self.groups.pop_front() {
            self.used -= group;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_frees_the_entries_before_it() {
        let mut queue = SendQueue::new(4);
        for signaled in [false, true, false, true] {
            assert!(queue.has_room());
            queue.post(signaled);
        }
        assert!(!queue.has_room());
        queue.complete();
        queue.post(false);
        queue.post(true);
        assert!(!queue.has_room());
        queue.complete();
        queue.complete();
        assert_eq!((queue.used, queue.unsignaled), (0, 0));
        queue.complete();
        assert_eq!(queue.used, 0, "a completion of nothing frees nothing");
    }
}
