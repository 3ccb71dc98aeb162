//! Counters of one reactor's transport: written by the reactor alone, read by whoever serves metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use t10pi::Field;

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the owning reactor does.
    pub fn add(&self, n: u64) {
        // One writer: no read-modify-write needed.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets, for values that are sampled; only the owning reactor does.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one reactor's transport.
#[derive(Debug, Default)]
pub struct Stats {
    /// Commands answered.
    pub commands: Counter,
    /// Commands answered with an error.
    pub failed_commands: Counter,
    /// Bytes of data that hosts read.
    pub bytes_to_host: Counter,
    /// Bytes of data that hosts wrote.
    pub bytes_from_host: Counter,
    /// Capsules too short, or more than the queue has entries.
    pub bad_capsules: Counter,
    /// Commands with an identifier in use.
    pub cid_conflicts: Counter,
    /// Queues that were refused for want of room, or to leave room to others.
    pub refused_queues: Counter,
    /// Connect commands refused.
    pub refused_connects: Counter,
    /// Queues closed because no Connect came.
    pub abandoned_queues: Counter,
    /// Queues closed because their host did not take data or completions.
    pub stuck_queues: Counter,
    /// Queues now open.
    pub queues: Counter,
    /// Queues closed because of an error.
    pub failed_queues: Counter,
    /// Failed operations on media.
    pub media_errors: Counter,
    /// Failed guard checks.
    pub guard_errors: Counter,
    /// Failed application tag checks.
    pub app_tag_errors: Counter,
    /// Failed storage tag checks.
    pub storage_tag_errors: Counter,
    /// Failed reference tag checks.
    pub ref_tag_errors: Counter,
    /// Transfers whose tuples the device checked or made.
    pub signatures: Counter,
    /// Requests that waited for a buffer.
    pub buffer_waits: Counter,
    /// Requests that waited for a block range.
    pub range_waits: Counter,
    /// Reads in place whose data was copied, because somebody waited for their blocks.
    pub in_place_conflicts: Counter,
    /// Requests that found the engine full.
    pub engine_waits: Counter,
    /// Rounds of the reactor that found something to do.
    pub busy_rounds: Counter,
    /// Times that the reactor slept.
    pub sleeps: Counter,
}

impl Stats {
    pub(crate) fn protection_error(&self, field: Field) {
        match field {
            Field::Guard => self.guard_errors.add(1),
            Field::AppTag => self.app_tag_errors.add(1),
            Field::StorageTag => self.storage_tag_errors.add(1),
            Field::RefTag => self.ref_tag_errors.add(1),
        }
    }
}
