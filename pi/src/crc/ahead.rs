//! What is read next, so that it is on its way to the processor while something else is computed.

/// Memory that will be read soon. A computation that is given it asks for it, a cache line for each that it reads itself,
/// so that waiting for the memory and computing overlap. It is never accessed: any address will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    address: usize,
    lines: usize,
}

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

impl Ahead {
    /// Nothing is known to be read next.
    pub const NONE: Self = Self { address: 0, lines: 0 };

    /// `bytes` bytes from `address` on.
    #[must_use]
    #[inline]
    pub fn new(address: usize, bytes: usize) -> Self {
        Self { address, lines: bytes.div_ceil(LINE) }
    }

    /// The bytes of a slice.
    #[must_use]
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Self::new(bytes.as_ptr().addr(), bytes.len())
    }

    /// Whether there is nothing to ask for.
    #[inline(always)]
    pub(super) fn is_empty(self) -> bool {
        self.lines == 0
    }

    /// Takes the first `count` lines off, as far as there are so many.
    #[inline(always)]
    pub(super) fn take(&mut self, count: usize) -> Self {
        let first = Self { lines: self.lines.min(count), ..*self };
        self.address = self.address.wrapping_add(first.lines * LINE);
        self.lines -= first.lines;
        first
    }

    /// The address of each line.
    #[inline(always)]
    pub(super) fn lines(self) -> impl Iterator<Item = usize> {
        (0..self.lines).map(move |line| self.address.wrapping_add(line * LINE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_asked_for_once_in_order() {
        let mut ahead = Ahead::new(usize::MAX - 63, 130);
        assert!(!ahead.is_empty());
        assert!(ahead.take(2).lines().eq([usize::MAX - 63, 0]));
        assert!(ahead.take(2).lines().eq([64]));
        assert!(ahead.is_empty() && ahead.take(2).is_empty());
        assert_eq!(Ahead::new(5, 0).lines, Ahead::NONE.lines);
    }
}
