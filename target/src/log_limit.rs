//! Bounds log lines that peers can cause at will, so that nobody fills a disk from afar. What is left out is counted, and
//! the count logged.

use std::time::{Duration, Instant};

/// Lines of one second.
const LINES: u32 = 10;

/// Whether tests want every line.
#[cfg(feature = "_fault")]
static LIFTED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Lets all lines of this process pass from now on, for tests that look at each.
#[cfg(feature = "_fault")]
pub fn lift() {
    LIFTED.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// Lets a few lines a second pass.
#[derive(Clone, Copy, Debug)]
pub struct LogLimit {
    /// What the lines are about.
    about: &'static str,
    since: Instant,
    taken: u32,
    left_out: u64,
}

impl LogLimit {
    /// A limit that starts to count at `now`, of lines about `about`.
    #[must_use]
    pub fn new(now: Instant, about: &'static str) -> Self {
        Self { about, since: now, taken: 0, left_out: 0 }
    }

    /// Writes a line if one more may be written at `now`.
    pub fn log(&mut self, now: Instant, line: impl FnOnce()) {
        self.settle(now);
        if self.take() {
            line();
        }
    }

    /// Once the second is over, says how many lines were left out. To be called now and then.
    pub fn settle(&mut self, now: Instant) {
        let left_out = self.lift(now);
        if left_out > 0 {
            tracing::warn!(about = self.about, left_out, "more log lines than {LINES} in a second");
        }
    }

    fn take(&mut self) -> bool {
        #[cfg(feature = "_fault")]
        if LIFTED.load(std::sync::atomic::Ordering::Relaxed) {
            return true;
        }
        let passes = self.taken < LINES;
        if passes {
            self.taken += 1;
        } else {
            self.left_out += 1;
        }
        passes
    }

    /// Begins a new second if the last one is over; lines that were left out in it.
    fn lift(&mut self, now: Instant) -> u64 {
        if now.saturating_duration_since(self.since) < Duration::from_secs(1) {
            return 0;
        }
        let left_out = self.left_out;
        *self = Self::new(now, self.about);
        left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an arbitrary point to count from")]
    fn ten_lines_pass_in_each_second_and_the_others_are_counted() {
        let start = Instant::now();
        let mut limit = LogLimit::new(start, "tests");
        let mut round = |millis, lines: u32| {
            let at = start + Duration::from_millis(millis);
            let left_out = limit.lift(at);
            let mut passed = 0;
            (0..lines).for_each(|_| limit.log(at, || passed += 1));
            (left_out, passed)
        };
        assert_eq!(round(0, 100), (0, 10));
        assert_eq!(round(999, 100), (0, 0));
        assert_eq!(round(1000, 10), (190, 10), "both rounds of the second before");
        assert_eq!(round(2000, 11), (0, 10), "as many as may pass");
        assert_eq!(round(5000, 0), (1, 0));
        assert_eq!(round(9000, 0), (0, 0), "said once");
    }
}
