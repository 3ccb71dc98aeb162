//! Numbers of volumes: small, and a volume's own for its life, so that a reactor finds what it knows of one by index.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A number that no other has; free again when dropped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Number(usize);

/// Which are free below the first that nobody ever had.
struct Numbers {
    free: BTreeSet<usize>,
    next: usize,
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { free: BTreeSet::new(), next: 0 });

impl Number {
    /// The lowest that is free.
    pub(super) fn take() -> Self {
        let mut numbers = lock();
        let number = numbers.free.pop_first().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        });
        Self(number)
    }

    pub(super) fn index(&self) -> usize {
        self.0
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        lock().free.insert(self.0);
    }
}

fn lock() -> MutexGuard<'static, Numbers> {
    // No step leaves it in between.
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_while_they_live_and_are_small() {
        // Other tests of this process have some, too.
        let before = lock().next;
        let mut live: Vec<Number> = (0..50).map(|_| Number::take()).collect();
        for round in 0..200 {
            live.swap_remove(round * 7 % live.len());
            live.push(Number::take());
            let indices: BTreeSet<usize> = live.iter().map(Number::index).collect();
            assert_eq!(indices.len(), live.len(), "two have one number");
        }
        assert!(lock().next < before + 50 + 1000, "numbers come back");
    }
}
