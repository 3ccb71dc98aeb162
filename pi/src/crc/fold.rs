//! A CRC by carry-less multiplication, once for every polynomial and instruction set.
//!
//! Lanes of 128 bits are folded forward: a lane times x^d, modulo the polynomial, is added to the bytes d bits later,
//! until one lane is left, which Barrett's method reduces. Several accumulators hide the multiplier's latency.
//! Every byte is loaded once (up to 15 at the end twice); copying variants store it from the register.
//!
//! Everything is `inline(always)`: it becomes part of a function that is compiled for the instruction set.

use super::ahead::{Ahead, LINE};
use super::lanes::Isa;
use super::params::{Form, Polynomial, fold_keys, reduction};
use super::scalar::Scalar;

/// Bytes of a lane.
const LANE: usize = 16;

/// States of strided blocks, as [`Blocks`](super::Blocks).
#[inline(always)]
pub(super) fn blocks<P: Polynomial, I: Isa>(
    isa: I,
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    states: &mut [u64],
    ahead: Ahead,
) {
    let mut rest = src;
    for state in states {
        let block = &rest[..length];
        rest = rest.get(stride..).unwrap_or_default();
        *state = if ahead.is_far() {
            update::<P, I, Read<'_, true>>(isa, init, Read(block, ahead.behind(rest)))
        } else {
            update::<P, I, Read<'_, false>>(isa, init, Read(block, Ahead::NONE))
        };
    }
}

/// States of strided blocks that are copied, as [`CopyBlocks`](super::CopyBlocks).
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "two strided areas and what to do with them")]
pub(super) fn copy_blocks<P: Polynomial, I: Isa>(
    isa: I,
    init: u64,
    src: &[u8],
    stride: usize,
    dst: &mut [u8],
    dst_stride: usize,
    length: usize,
    states: &mut [u64],
) {
    let (mut rest, mut rest_to) = (src, dst);
    for state in states {
        *state = update::<P, I, Copied<'_>>(isa, init, Copied(&rest[..length], &mut rest_to[..length]));
        rest = rest.get(stride..).unwrap_or_default();
        rest_to = std::mem::take(&mut rest_to).get_mut(dst_stride..).unwrap_or_default();
    }
}

/// As [`copy_blocks`], past the caches. What does not fill whole cache lines goes through them.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "two strided areas and what to do with them")]
pub(super) fn stream_blocks<P: Polynomial, I: Isa>(
    isa: I,
    init: u64,
    src: &[u8],
    stride: usize,
    dst: &mut [u8],
    dst_stride: usize,
    length: usize,
    states: &mut [u64],
) {
    for (index, state) in states.iter_mut().enumerate() {
        let from = &src[index * stride..][..length];
        let to = &mut dst[index * dst_stride..][..length];
        let head = to.as_ptr().align_offset(LINE).min(length);
        let (from, to) = (from.split_at(head), to.split_at_mut(head));
        let lines = from.1.len() / LINE * LINE;
        let (body, tail) = (from.1.split_at(lines), to.1.split_at_mut(lines));
        *state = update::<P, I, Copied<'_>>(isa, init, Copied(from.0, to.0));
        *state = update::<P, I, Streamed<'_>>(isa, *state, Streamed(body.0, tail.0));
        *state = update::<P, I, Copied<'_>>(isa, *state, Copied(body.1, tail.1));
    }
}

/// Copies past the caches, as [`Stream`](super::Stream).
#[inline(always)]
pub(super) fn stream<I: Isa>(isa: I, src: &[u8], dst: &mut [u8], mut ahead: Ahead) {
    let head = dst.as_ptr().align_offset(LINE).min(dst.len());
    let ((src_head, src), (dst_head, dst)) = (src.split_at(head), dst.split_at_mut(head));
    dst_head.copy_from_slice(src_head);
    let lines = dst.len() / LINE * LINE;
    let ((src, src_tail), (dst, dst_tail)) = (src.split_at(lines), dst.split_at_mut(lines));
    dst_tail.copy_from_slice(src_tail);
    // Reading what is next overlaps with writing what is ready.
    for (src, dst) in src.chunks_exact(LINE).zip(dst.chunks_exact_mut(LINE)) {
        ahead.take(1).lines().for_each(|line| isa.fetch(line));
        for (src, dst) in src.chunks_exact(I::WIDE).zip(dst.chunks_exact_mut(I::WIDE)) {
            isa.stream_wide(dst, isa.load_wide(src));
        }
    }
}

/// A message that is read front to back.
trait Message<'a>: Sized {
    /// The bytes left.
    fn source(&self) -> &'a [u8];
    /// Takes the first `count` bytes off.
    fn take(&mut self, count: usize) -> Self;
    /// Asks for what is read next, as much as a group of wide vectors has.
    #[inline(always)]
    fn fetch<I: Isa>(&mut self, _isa: I) {}
    /// The wide vector at `at`; a copying message stores it too.
    fn wide<I: Isa>(&mut self, isa: I, at: usize) -> I::Wide;
    /// The first lane; a copying message stores it too.
    fn narrow<I: Isa>(&mut self, isa: I) -> I::Narrow;
    /// Is done with what is left; a copying message stores it.
    fn finish(self);
}

/// Only read; where it is far, what is read next is fetched meanwhile.
struct Read<'a, const FAR: bool>(&'a [u8], Ahead);

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
    fn wide<I: Isa>(&mut self, isa: I, at: usize) -> I::Wide {
        isa.load_wide(&self.0[at..])
    }

    #[inline(always)]
    fn narrow<I: Isa>(&mut self, isa: I) -> I::Narrow {
        isa.load(self.0)
    }

    #[inline(always)]
    fn finish(self) {}
}

/// Copied on the way; both parts have one length.
struct Copied<'a>(&'a [u8], &'a mut [u8]);

impl<'a> Message<'a> for Copied<'a> {
    #[inline(always)]
    fn source(&self) -> &'a [u8] {
        self.0
    }

    #[inline(always)]
    fn take(&mut self, count: usize) -> Self {
        let (now, later) = self.0.split_at(count);
        let (now_to, later_to) = std::mem::take(&mut self.1).split_at_mut(count);
        (self.0, self.1) = (later, later_to);
        Self(now, now_to)
    }

    #[inline(always)]
    fn wide<I: Isa>(&mut self, isa: I, at: usize) -> I::Wide {
        let value = isa.load_wide(&self.0[at..]);
        isa.store_wide(&mut self.1[at..], value);
        value
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

/// Copied past the caches: whole lines.
struct Streamed<'a>(&'a [u8], &'a mut [u8]);

impl<'a> Message<'a> for Streamed<'a> {
    #[inline(always)]
    fn source(&self) -> &'a [u8] {
        self.0
    }

    #[inline(always)]
    fn take(&mut self, count: usize) -> Self {
        let (now, later) = self.0.split_at(count);
        let (now_to, later_to) = std::mem::take(&mut self.1).split_at_mut(count);
        (self.0, self.1) = (later, later_to);
        Self(now, now_to)
    }

    #[inline(always)]
    fn wide<I: Isa>(&mut self, isa: I, at: usize) -> I::Wide {
        let value = isa.load_wide(&self.0[at..]);
        isa.stream_wide(&mut self.1[at..], value);
        value
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

/// Returns the state after `message`.
#[inline(always)]
fn update<'a, P: Polynomial, I: Isa, M: Message<'a>>(isa: I, state: u64, mut message: M) -> u64 {
    let whole = message.source();
    if whole.len() < LANE {
        message.finish();
        return P::Scalar::update(state, whole);
    }
    // The state is added to the first bits of the message.
    let start = isa.pair(match const { form::<P, I>() } {
        Form::Reflected if P::REFLECTED => [state, 0],
        // As it would lie in memory, for `order`.
        Form::Reflected => [(state << (64 - P::WIDTH)).swap_bytes(), 0],
        Form::Normal => [0, state << (64 - P::WIDTH)],
    });
    let start = if !P::REFLECTED && I::FORM.is_reflected() { isa.order(start) } else { start };
    let mut lane = if whole.len() >= ACCUMULATORS * I::WIDE {
        let sum = accumulate::<P, I, M>(isa, start, &mut message);
        advance::<P, I, M>(isa, sum, &mut message)
    } else if I::WIDE > LANE && whole.len() >= I::WIDE {
        let first = wide::<P, I, M>(isa, &mut message.take(I::WIDE), 0);
        advance::<P, I, M>(isa, isa.add_wide(first, isa.widen(start)), &mut message)
    } else {
        isa.add(narrow::<P, I, M>(isa, &mut message), start)
    };
    while message.source().len() >= LANE {
        let next = narrow::<P, I, M>(isa, &mut message);
        lane = fold_lane::<P, I>(isa, lane, next);
    }
    let left = message.source().len();
    if left > 0 {
        message.finish();
        let last = isa.load(&whole[whole.len() - LANE..]);
        // In the normal form, bytes are in reverse order.
        let (before, end) = match const { form::<P, I>() } {
            Form::Reflected => isa.splice(lane, ordered::<P, I>(isa, last), left),
            Form::Normal => {
                let (before, end) = isa.splice(isa.order(lane), last, left);
                (isa.order(before), isa.order(end))
            }
        };
        lane = fold_lane::<P, I>(isa, before, end);
    }
    reduce::<P, I>(isa, lane)
}

/// The form in which a CRC is computed.
const fn form<P: Polynomial, I: Isa>() -> Form {
    if P::REFLECTED { Form::Reflected } else { I::FORM }
}

/// A lane of memory in that form.
#[inline(always)]
fn ordered<P: Polynomial, I: Isa>(isa: I, value: I::Narrow) -> I::Narrow {
    if P::REFLECTED { value } else { isa.order(value) }
}

/// Accumulators of the main loop: as many as multiplications are under way at a time.
const ACCUMULATORS: usize = 4;

/// Folds all groups of [`ACCUMULATORS`] wide vectors (at least one) into one wide vector.
#[inline(always)]
fn accumulate<'a, P: Polynomial, I: Isa, M: Message<'a>>(
    isa: I,
    start: I::Narrow,
    message: &mut M,
) -> I::Wide {
    let keys = isa.splat(const { fold_keys::<P>(I::WIDE_BITS * 4, form::<P, I>()) });
    let [mut a, mut b, mut c, mut d] = group::<P, I, M>(isa, message);
    a = isa.add_wide(a, isa.widen(start));
    while message.source().len() >= ACCUMULATORS * I::WIDE {
        let next = group::<P, I, M>(isa, message);
        a = isa.fold_wide(a, keys, next[0]);
        b = isa.fold_wide(b, keys, next[1]);
        c = isa.fold_wide(c, keys, next[2]);
        d = isa.fold_wide(d, keys, next[3]);
    }
    // Each at its own distance, so that none waits for another.
    let sum = isa.fold_wide(a, isa.splat(const { fold_keys::<P>(I::WIDE_BITS * 3, form::<P, I>()) }), d);
    let sum = isa.fold_wide(b, isa.splat(const { fold_keys::<P>(I::WIDE_BITS * 2, form::<P, I>()) }), sum);
    isa.fold_wide(c, isa.splat(const { fold_keys::<P>(I::WIDE_BITS, form::<P, I>()) }), sum)
}

/// Loads the next group of wide vectors.
#[inline(always)]
fn group<'a, P: Polynomial, I: Isa, M: Message<'a>>(isa: I, message: &mut M) -> [I::Wide; ACCUMULATORS] {
    message.fetch(isa);
    let mut group = message.take(ACCUMULATORS * I::WIDE);
    [
        wide::<P, I, M>(isa, &mut group, 0),
        wide::<P, I, M>(isa, &mut group, I::WIDE),
        wide::<P, I, M>(isa, &mut group, 2 * I::WIDE),
        wide::<P, I, M>(isa, &mut group, 3 * I::WIDE),
    ]
}

/// Folds the wide vectors that are left into `sum` and merges its lanes.
#[inline(always)]
fn advance<'a, P: Polynomial, I: Isa, M: Message<'a>>(
    isa: I,
    mut sum: I::Wide,
    message: &mut M,
) -> I::Narrow {
    let keys = isa.splat(const { fold_keys::<P>(I::WIDE_BITS, form::<P, I>()) });
    while message.source().len() >= I::WIDE {
        let next = wide::<P, I, M>(isa, &mut message.take(I::WIDE), 0);
        sum = isa.fold_wide(sum, keys, next);
    }
    isa.merge(
        sum,
        const {
            [
                fold_keys::<P>(128, form::<P, I>()),
                fold_keys::<P>(256, form::<P, I>()),
                fold_keys::<P>(384, form::<P, I>()),
            ]
        },
    )
}

/// The wide vector at `at`, in the order of the polynomial.
#[inline(always)]
fn wide<'a, P: Polynomial, I: Isa, M: Message<'a>>(isa: I, message: &mut M, at: usize) -> I::Wide {
    let value = message.wide(isa, at);
    if P::REFLECTED { value } else { isa.order_wide(value) }
}

/// Takes the next lane off, in the order of the polynomial.
#[inline(always)]
fn narrow<'a, P: Polynomial, I: Isa, M: Message<'a>>(isa: I, message: &mut M) -> I::Narrow {
    let value = message.take(LANE).narrow(isa);
    ordered::<P, I>(isa, value)
}

/// Folds a lane into the one that follows it.
#[inline(always)]
fn fold_lane<P: Polynomial, I: Isa>(isa: I, lane: I::Narrow, next: I::Narrow) -> I::Narrow {
    let keys = isa.pair(const { fold_keys::<P>(128, form::<P, I>()) });
    isa.add(isa.add(isa.mul_low(lane, keys), isa.mul_high(lane, keys)), next)
}

/// The state at the end of a message whose lane this is: the lane times x^64, modulo the polynomial.
#[inline(always)]
fn reduce<P: Polynomial, I: Isa>(isa: I, lane: I::Narrow) -> u64 {
    let constants = const { reduction::<P>(form::<P, I>()) };
    let (fold, quotient, poly) =
        (isa.pair(constants.fold), isa.pair(constants.quotient), isa.pair(constants.poly));
    if const { form::<P, I>().is_reflected() } {
        // The upper powers are in the low half.
        let lane = isa.add(isa.mul_low(lane, fold), isa.lower(lane));
        let multiple = isa.mul_low(lane, quotient);
        let remainder = isa.add(isa.mul_low(multiple, poly), lane);
        let remainder =
            if constants.poly_is_cut { isa.add(remainder, isa.raise(multiple)) } else { remainder };
        if P::REFLECTED {
            isa.high(remainder)
        } else {
            isa.high(isa.order(remainder)).swap_bytes() >> (64 - P::WIDTH)
        }
    } else {
        let lane = isa.add(isa.mul_high(lane, fold), isa.raise(lane));
        let multiple = isa.add(isa.mul_high(lane, quotient), lane);
        let remainder = isa.add(isa.mul_high(multiple, poly), lane);
        isa.low(remainder) >> (64 - P::WIDTH)
    }
}
