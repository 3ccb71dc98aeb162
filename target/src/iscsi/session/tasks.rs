//! The tasks of a session, by slot and by tag.

use std::collections::HashMap;

use rwctx::remote::Rkey;

use super::super::wire::number::{Itt, Lun};

/// A task of a session, from its start until it was said to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(pub(super) u16);

impl TaskId {
    /// Its slot: below the session's window and [`IMMEDIATE_MAX`](super::IMMEDIATE_MAX) together.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// What is known of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) itt: Itt,
    pub(super) lun: Lun,
    /// Whether it was immediate, and so takes no place of the window.
    pub(super) immediate: bool,
    /// Expected Data Transfer Length, bytes.
    pub(super) expected_length: u32,
    /// The host's key that its data uses.
    pub(super) rkey: Option<Rkey>,
    /// Whether it was aborted: nobody is told how it ended.
    pub(super) aborted: bool,
    /// Task management functions that wait for its end, a bit each.
    pub(super) waiters: u8,
}

/// A fixed number of slots, so that starting a task allocates nothing.
#[derive(Debug)]
pub(super) struct Tasks {
    slots: Vec<Option<Task>>,
    free: Vec<u16>,
    by_itt: HashMap<Itt, u16>,
    /// Tasks that were not immediate.
    counted: u16,
}

impl Tasks {
    /// Room for `capacity` tasks.
    pub(super) fn new(capacity: u16) -> Self {
        Self {
            slots: vec![None; capacity.into()],
            free: (0..capacity).rev().collect(),
            // Twice, so that it never grows and rarely cleans up.
            by_itt: HashMap::with_capacity(2 * usize::from(capacity)),
            counted: 0,
        }
    }

    /// Starts a task; `None` if there is no slot.
    pub(super) fn insert(&mut self, task: Task) -> Option<TaskId> {
        let slot = self.free.pop()?;
        self.slots[usize::from(slot)] = Some(task);
        self.by_itt.insert(task.itt, slot);
        self.counted += u16::from(!task.immediate);
        Some(TaskId(slot))
    }

    /// A task has ended.
    pub(super) fn remove(&mut self, id: TaskId) -> Task {
        let task = self.slots[usize::from(id.0)].take().expect("a task ends once");
        self.by_itt.remove(&task.itt);
        self.free.push(id.0);
        self.counted -= u16::from(!task.immediate);
        task
    }

    /// The task of this tag.
    pub(super) fn find(&self, itt: Itt) -> Option<TaskId> {
        self.by_itt.get(&itt).copied().map(TaskId)
    }

    pub(super) fn get_mut(&mut self, id: TaskId) -> &mut Task {
        self.slots[usize::from(id.0)].as_mut().expect("the task is under way")
    }

    /// Tasks under way with their ids.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (TaskId, &mut Task)> {
        (0..).map(TaskId).zip(&mut self.slots).filter_map(|(id, task)| Some((id, task.as_mut()?)))
    }

    /// Tasks that were not immediate.
    pub(super) fn counted(&self) -> u16 {
        self.counted
    }

    /// Tasks that were.
    pub(super) fn immediate(&self) -> usize {
        self.by_itt.len() - usize::from(self.counted)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_itt.is_empty()
    }
}
