//! The keep-alive timer (base 3.9), traffic-based: any command in an interval keeps the association.

use std::time::{Duration, Instant};

/// KAS: granularity of the timeout, in units of 100 ms.
pub(super) const GRANULARITY_100MS: u16 = 10;
const GRANULARITY_MS: u32 = 1000;

/// The timer of one controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepAlive {
    timeout_ms: u32,
    deadline: Option<Instant>,
}

impl KeepAlive {
    /// A timer of `kato_ms`, rounded up to the granularity; 0 = none.
    pub(super) fn new(now: Instant, kato_ms: u32) -> Self {
        let timeout_ms = kato_ms.div_ceil(GRANULARITY_MS).saturating_mul(GRANULARITY_MS);
        let mut timer = Self { timeout_ms, deadline: None };
        timer.restart(now);
        timer
    }

    /// The timeout in force, in milliseconds; 0 = none.
    pub(super) fn timeout_ms(&self) -> u32 {
        self.timeout_ms
    }

    /// Starts the interval anew.
    pub(super) fn restart(&mut self, now: Instant) {
        let timeout = Duration::from_millis(self.timeout_ms.into());
        self.deadline = if timeout.is_zero() { None } else { now.checked_add(timeout) };
    }

    /// When the interval ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the interval has ended without a sign of life; with one, the next begins.
    pub(super) fn expired(&mut self, now: Instant, traffic: impl FnOnce() -> bool) -> bool {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return false;
        }
        if traffic() {
            self.restart(now);
            return false;
        }
        self.deadline = None;
        true
    }
}
