//! Data that is sent from where it lies on the medium.

use std::cell::Cell;
use std::rc::Rc;

use rwctx::wr::Sge;

/// A request's data in the medium's memory, which its range protects. The request has a buffer too, or the promise of one: it
/// is used when somebody else wants the range before the host has the data.
#[derive(Debug)]
pub(crate) struct InPlace {
    pub(crate) sge: Sge,
    /// How many requests of the queue have one.
    count: Rc<Cell<u32>>,
}

impl InPlace {
    pub(crate) fn new(sge: Sge, count: &Rc<Cell<u32>>) -> Self {
        count.set(count.get() + 1);
        Self { sge, count: Rc::clone(count) }
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}
