//! What is read next, so that it is on its way to the processor while something else is computed.

/// Memory that will be read soon. A computation that is given it asks for it, a cache line for each that it reads itself,
/// so that waiting for the memory and computing overlap; before that it asks for what it will read itself, a block ahead. The
/// memory is never accessed: any address will do.
/// By default there is nothing to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    address: usize,
    lines: usize,
    is_far: bool,
}

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

impl Ahead {
    /// What is read is near the processor already: there is nothing to ask for.
    pub const NONE: Self = Self { address: 0, lines: 0, is_far: false };
    /// What is read may be far; what is read next is not known.
    pub const UNKNOWN: Self = Self { address: 0, lines: 0, is_far: true };

    /// `bytes` bytes from `address` on.
    #[must_use]
    #[inline]
    pub fn new(address: usize, bytes: usize) -> Self {
        Self { address, lines: bytes.div_ceil(LINE), is_far: true }
    }

    /// The bytes of a slice.
    #[must_use]
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Self::new(bytes.as_ptr().addr(), bytes.len())
    }

    /// Whether what is read may be far.
    #[inline(always)]
    pub(crate) fn is_far(self) -> bool {
        self.is_far
    }

    /// The same, once there is nothing left of `rest`, which is read before.
    #[inline(always)]
    pub(crate) fn behind(self, rest: &[u8]) -> Self {
        if self.is_far && !rest.is_empty() { Self::of(rest) } else { self }
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
        assert!(ahead.take(2).lines().eq([usize::MAX - 63, 0]));
        assert!(ahead.take(2).lines().eq([64]));
        assert!(ahead.take(2).lines().eq([]));
    }

    #[test]
    fn what_is_read_before_is_asked_for_before() {
        let next = Ahead::new(4096, 64);
        assert_eq!(next.behind(&[1]), Ahead::of(&[1]));
        assert_eq!((next.behind(&[]), Ahead::NONE.behind(&[1])), (next, Ahead::NONE));
        assert!(Ahead::UNKNOWN.is_far() && !Ahead::NONE.is_far());
    }
}
