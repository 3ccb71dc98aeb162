//! The clock: everything else in the host gets the time from here.

use std::time::Instant;

/// The time.
#[inline]
#[expect(clippy::disallowed_methods, reason = "the host's only look at the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
