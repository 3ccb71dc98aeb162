//! What folding reads: a message alone, one that is copied on the way, and one that is copied past the caches.
//!
//! Everything is `inline(always)`, as in `fold.rs`.

use super::ahead::{Ahead, LINE};
use super::fold::ACCUMULATORS;
use super::lanes::Isa;

/// A message that is read front to back.
pub(super) trait Message<'a>: Sized {
    /// The bytes left.
    fn source(&self) -> &'a [u8];
    /// Takes the first `count` bytes off.
    fn take(&mut self, count: usize) -> Self;
    /// Asks for what is read next, or stored later, as much as a group of wide vectors has.
    #[inline(always)]
    fn fetch<I: Isa>(&mut self, _isa: I) {}
    /// The wide vector at `at`.
    #[inline(always)]
    fn wide<I: Isa>(&self, isa: I, at: usize) -> I::Wide {
        isa.load_wide(&self.source()[at..])
    }
    /// Tells that `value` was at `at`: a copying message stores it.
    #[inline(always)]
    fn pass<I: Isa>(&mut self, _isa: I, _at: usize, _value: I::Wide) {}
    /// The first lane; a copying message stores it too.
    fn narrow<I: Isa>(&mut self, isa: I) -> I::Narrow;
    /// Is done with what is left; a copying message stores it.
    fn finish(self);
}

/// Only read; where it is far, what is read next is fetched meanwhile.
pub(super) struct Read<'a, const FAR: bool>(pub(super) &'a [u8], pub(super) Ahead);

impl<'a, const FAR: bool> Message<'a> for Read<'a, FAR> {
    #[inline(always)]
    fn source(&self) -> &'a [u8] {
        self.0
    }

    #[inline(always)]
    fn take(&mut self, count: usize) -> Self {
        let (now, later) = self.0.split_at(count);
        self.0 = later;
        Self(now, Ahead::NONE)
    }

    #[inline(always)]
    fn fetch<I: Isa>(&mut self, isa: I) {
        if FAR {
            self.1.take(ACCUMULATORS * I::WIDE / LINE).lines().for_each(|line| isa.fetch(line));
        }
    }

    #[inline(always)]
    fn narrow<I: Isa>(&mut self, isa: I) -> I::Narrow {
        isa.load(self.0)
    }

    #[inline(always)]
    fn finish(self) {}
}

/// How far ahead of what is stored the memory for it is asked for: more than a group takes to come from a near cache.
const STORED_AHEAD: usize = 1024;

/// Copied on the way, through the caches or, whole lines, past them; both parts have one length.
pub(super) struct Copied<'a, const STREAMED: bool>(pub(super) &'a [u8], pub(super) &'a mut [u8]);

impl<'a, const STREAMED: bool> Message<'a> for Copied<'a, STREAMED> {
    #[inline(always)]
    fn source(&self) -> &'a [u8] {
        self.0
    }

    #[inline(always)]
    fn fetch<I: Isa>(&mut self, isa: I) {
        // Narrower vectors are folded more slowly than lines come.
        if !STREAMED && I::WIDE >= LINE {
            let later = self.1.as_ptr().addr().wrapping_add(STORED_AHEAD);
            Ahead::new(later, ACCUMULATORS * I::WIDE).lines().for_each(|line| isa.fetch(line));
        }
    }

    #[inline(always)]
    fn take(&mut self, count: usize) -> Self {
        let (now, later) = self.0.split_at(count);
        let (now_to, later_to) = std::mem::take(&mut self.1).split_at_mut(count);
        (self.0, self.1) = (later, later_to);
        Self(now, now_to)
    }

    #[inline(always)]
    fn pass<I: Isa>(&mut self, isa: I, at: usize, value: I::Wide) {
        let to = &mut self.1[at..];
        if STREAMED { isa.stream_wide(to, value) } else { isa.store_wide(to, value) }
    }

    #[inline(always)]
    fn narrow<I: Isa>(&mut self, isa: I) -> I::Narrow {
        let value = isa.load(self.0);
        isa.store(self.1, value);
        value
    }

    #[inline(always)]
    fn finish(self) {
        self.1.copy_from_slice(self.0);
    }
}
