//! Whether whoever asked for a change of volumes gave up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What tells a change that takes long, such as filling a file, to end early: it fails then, and is undone.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// What says so once it is true; a signal may set it.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Whether it said so.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
