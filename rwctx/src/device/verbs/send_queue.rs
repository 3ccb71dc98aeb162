//! Entries of a send queue that are in use: posted, and not yet known to be done.
//!
//! A work request without a completion of its own is done when a later one of its queue is. Pure accounting.

use std::collections::VecDeque;

use crate::mem::MrId;

/// The accounts of one send queue.
#[derive(Debug)]
pub(super) struct SendQueue {
    depth: u32,
    used: u32,
    /// Work requests from the last signaled one on.
    unsignaled: u32,
    /// For each that completes, in order: itself and those before it that don't.
    groups: VecDeque<Group>,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    entries: u32,
    done: Done,
}

/// What completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// The integrity region whose transfer it was.
    pub(super) transfer: Option<MrId>,
    /// Whether the poster wanted to know.
    pub(super) is_signaled: bool,
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
            self.end_group(Done { transfer: None, is_signaled: true });
        }
    }

    /// The transfer of an integrity region takes an entry; it completes in any case.
    pub(super) fn post_transfer(&mut self, region: MrId, is_signaled: bool) {
        self.used += 1;
        self.unsignaled += 1;
        self.end_group(Done { transfer: Some(region), is_signaled });
    }

    /// The oldest work request that completes did so.
    pub(super) fn complete(&mut self) -> Option<Done> {
        let Group { entries, done } = self.groups.pop_front()?;
        self.used -= entries;
        Some(done)
    }

    fn end_group(&mut self, done: Done) {
        self.groups.push_back(Group { entries: std::mem::take(&mut self.unsignaled), done });
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

    #[test]
    fn a_transfer_completes_whether_or_not_somebody_wants_to_know() {
        let mut queue = SendQueue::new(4);
        let region = MrId(7);
        queue.post(false);
        queue.post_transfer(region, false);
        queue.post(false);
        queue.post_transfer(region, true);
        assert!(!queue.has_room());
        for is_signaled in [false, true] {
            assert_eq!(queue.complete(), Some(Done { transfer: Some(region), is_signaled }));
        }
        assert_eq!((queue.used, queue.complete()), (0, None));
    }
}
