//! A CRC by carry-less multiplication, once for every polynomial and instruction set.
//!
//! Lanes of 128 bits are folded forward: a lane times x^d, modulo the polynomial, is added to the bytes d bits later,
//! until one lane is left, which Barrett's method reduces. Several accumulators hide the multiplier's latency.
//! Every byte is loaded once (up to 15 at the end twice); copying variants store it from the register.
//!
//! Everything is `inline(always)`: it becomes part of a function that is compiled for the instruction set.

use super::ahead::{Ahead, LINE};
use super::lanes::{FourLanes, Isa};
use super::message::{Copied, Message, Read};
use super::params::{Form, Polynomial, fold_keys, reduction};
use super::scalar::Scalar;

/// Bytes of a lane.
const LANE: usize = 16;

/// The state after a message, as [`Update`](super::Update).
#[inline(always)]
pub(super) fn update<P: Polynomial, I: Isa>(isa: I, state: u64, bytes: &[u8], ahead: Ahead) -> u64 {
    if ahead.is_far() {
        message::<P, I, Read<'_, true>>(isa, state, Read(bytes, ahead))
    } else {
        message::<P, I, Read<'_, false>>(isa, state, Read(bytes, Ahead::NONE))
    }
}

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
        *state = update::<P, I>(isa, init, block, ahead.behind(rest));
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
        *state =
            message::<P, I, Copied<'_, false>>(isa, init, Copied(&rest[..length], &mut rest_to[..length]));
        rest = rest.get(stride..).unwrap_or_default();
        rest_to = std::mem::take(&mut rest_to).get_mut(dst_stride..).unwrap_or_default();
    }
}

/// As [`blocks`], with one reduction for four blocks wherever they are whole wide vectors.
#[inline(always)]
pub(super) fn blocks_by_four<P: Polynomial, I: FourLanes>(
    isa: I,
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    mut states: &mut [u64],
    ahead: Ahead,
) {
    let mut rest = src;
    if ends_with_others::<I>(length) {
        while states.len() >= 4 {
            let (four, later) = std::mem::take(&mut states).split_at_mut(4);
            let sums = [(); 4].map(|()| {
                let block = &rest[..length];
                rest = rest.get(stride..).unwrap_or_default();
                if ahead.is_far() {
                    let mut message = Read::<'_, true>(block, ahead.behind(rest));
                    wide_sum::<P, I, _>(isa, start::<P, I>(isa, init), &mut message)
                } else {
                    let mut message = Read::<'_, false>(block, Ahead::NONE);
                    wide_sum::<P, I, _>(isa, start::<P, I>(isa, init), &mut message)
                }
            });
            four.copy_from_slice(&reduce_four::<P, I>(isa, sums));
            states = later;
        }
    }
    blocks::<P, I>(isa, init, rest, stride, length, states, ahead);
}

/// As [`copy_blocks`], with one reduction for four blocks wherever they are whole wide vectors.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "two strided areas and what to do with them")]
pub(super) fn copy_blocks_by_four<P: Polynomial, I: FourLanes>(
    isa: I,
    init: u64,
    src: &[u8],
    stride: usize,
    dst: &mut [u8],
    dst_stride: usize,
    length: usize,
    mut states: &mut [u64],
) {
    let (mut rest, mut rest_to) = (src, dst);
    if ends_with_others::<I>(length) {
        while states.len() >= 4 {
            let (four, later) = std::mem::take(&mut states).split_at_mut(4);
            let sums = [(); 4].map(|()| {
                let (from, to) = (&rest[..length], &mut rest_to[..length]);
                let start = start::<P, I>(isa, init);
                let sum = wide_sum::<P, I, _>(isa, start, &mut Copied::<'_, false>(from, to));
                rest = rest.get(stride..).unwrap_or_default();
                rest_to = std::mem::take(&mut rest_to).get_mut(dst_stride..).unwrap_or_default();
                sum
            });
            four.copy_from_slice(&reduce_four::<P, I>(isa, sums));
            states = later;
        }
    }
    copy_blocks::<P, I>(isa, init, rest, stride, rest_to, dst_stride, length, states);
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
        *state = message::<P, I, Copied<'_, false>>(isa, init, Copied(from.0, to.0));
        *state = message::<P, I, Copied<'_, true>>(isa, *state, Copied(body.0, tail.0));
        *state = message::<P, I, Copied<'_, false>>(isa, *state, Copied(body.1, tail.1));
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

/// Returns the state after `message`.
#[inline(always)]
fn message<'a, P: Polynomial, I: Isa, M: Message<'a>>(isa: I, state: u64, mut message: M) -> u64 {
    let whole = message.source();
    if whole.len() < LANE {
        message.finish();
        return P::Scalar::update(state, whole);
    }
    let start = start::<P, I>(isa, state);
    let mut lane = if whole.len() >= ACCUMULATORS * I::WIDE {
        let sum = wide_sum::<P, I, M>(isa, start, &mut message);
        merge::<P, I>(isa, sum)
    } else if I::WIDE > LANE && whole.len() >= I::WIDE {
        let first = wide::<P, I, M>(isa, &mut message);
        let sum = advance::<P, I, M>(isa, isa.add_wide(first, isa.widen(start)), &mut message);
        merge::<P, I>(isa, sum)
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

/// What is added to the first bits of a message that goes on from `state`.
#[inline(always)]
pub(super) fn start<P: Polynomial, I: Isa>(isa: I, state: u64) -> I::Narrow {
    let start = isa.pair(match const { form::<P, I>() } {
        Form::Reflected if P::REFLECTED => [state, 0],
        // As it would lie in memory, for `order`.
        Form::Reflected => [(state << (64 - P::WIDTH)).swap_bytes(), 0],
        Form::Normal => [0, state << (64 - P::WIDTH)],
    });
    if !P::REFLECTED && I::FORM.is_reflected() { isa.order(start) } else { start }
}

/// Whether messages of this length can end together: nothing is left of them but a wide vector each.
#[inline(always)]
pub(super) fn ends_with_others<I: FourLanes>(length: usize) -> bool {
    length >= ACCUMULATORS * I::WIDE && length.is_multiple_of(I::WIDE)
}

/// Folds all wide vectors of a message, which has [`ACCUMULATORS`] of them at least, into one.
#[inline(always)]
fn wide_sum<'a, P: Polynomial, I: Isa, M: Message<'a>>(isa: I, start: I::Narrow, message: &mut M) -> I::Wide {
    let sum = accumulate::<P, I, M>(isa, start, message);
    advance::<P, I, M>(isa, sum, message)
}

/// The form in which a CRC is computed.
pub(super) const fn form<P: Polynomial, I: Isa>() -> Form {
    if P::REFLECTED { Form::Reflected } else { I::FORM }
}

/// A lane of memory in that form.
#[inline(always)]
fn ordered<P: Polynomial, I: Isa>(isa: I, value: I::Narrow) -> I::Narrow {
    if P::REFLECTED { value } else { isa.order(value) }
}

/// Accumulators of the main loop: as many as multiplications are under way at a time.
pub(super) const ACCUMULATORS: usize = 4;

/// Folds all groups of [`ACCUMULATORS`] wide vectors (at least one) into one wide vector.
#[inline(always)]
fn accumulate<'a, P: Polynomial, I: Isa, M: Message<'a>>(
    isa: I,
    start: I::Narrow,
    message: &mut M,
) -> I::Wide {
    let keys = isa.splat(const { fold_keys::<P>(I::WIDE_BITS * 4, form::<P, I>()) });
    let (mut group, mut values) = next_group::<I, M>(isa, message);
    let mut a = isa.add_wide(ordered_wide::<P, I>(isa, values[0]), isa.widen(start));
    let mut b = ordered_wide::<P, I>(isa, values[1]);
    let mut c = ordered_wide::<P, I>(isa, values[2]);
    let mut d = ordered_wide::<P, I>(isa, values[3]);
    while message.source().len() >= ACCUMULATORS * I::WIDE {
        // A copy stores a group after the next one was loaded: a load waits for stores before it to addresses that end
        // alike, and where a stream lies a little behind its source, the next loads' do.
        let (next_group, next) = next_group::<I, M>(isa, message);
        pass_group(isa, &mut group, values);
        (group, values) = (next_group, next);
        a = isa.fold_wide(a, keys, ordered_wide::<P, I>(isa, next[0]));
        b = isa.fold_wide(b, keys, ordered_wide::<P, I>(isa, next[1]));
        c = isa.fold_wide(c, keys, ordered_wide::<P, I>(isa, next[2]));
        d = isa.fold_wide(d, keys, ordered_wide::<P, I>(isa, next[3]));
    }
    pass_group(isa, &mut group, values);
    join::<P, I>(isa, [a, b, c, d])
}

/// Folds the accumulators into one: each at its own distance, so that none waits for another.
#[inline(always)]
pub(super) fn join<P: Polynomial, I: Isa>(isa: I, [a, b, c, d]: [I::Wide; ACCUMULATORS]) -> I::Wide {
    let sum = isa.fold_wide(a, isa.splat(const { fold_keys::<P>(I::WIDE_BITS * 3, form::<P, I>()) }), d);
    let sum = isa.fold_wide(b, isa.splat(const { fold_keys::<P>(I::WIDE_BITS * 2, form::<P, I>()) }), sum);
    isa.fold_wide(c, isa.splat(const { fold_keys::<P>(I::WIDE_BITS, form::<P, I>()) }), sum)
}

/// Takes the next group of wide vectors off and loads it.
#[inline(always)]
pub(super) fn next_group<'a, I: Isa, M: Message<'a>>(
    isa: I,
    message: &mut M,
) -> (M, [I::Wide; ACCUMULATORS]) {
    message.fetch(isa);
    let group = message.take(ACCUMULATORS * I::WIDE);
    let values = [
        group.wide(isa, 0),
        group.wide(isa, I::WIDE),
        group.wide(isa, 2 * I::WIDE),
        group.wide(isa, 3 * I::WIDE),
    ];
    (group, values)
}

/// Passes on what was loaded from `group`.
#[inline(always)]
fn pass_group<'a, I: Isa, M: Message<'a>>(isa: I, group: &mut M, values: [I::Wide; ACCUMULATORS]) {
    let [a, b, c, d] = values;
    group.pass(isa, 0, a);
    group.pass(isa, I::WIDE, b);
    group.pass(isa, 2 * I::WIDE, c);
    group.pass(isa, 3 * I::WIDE, d);
}

/// Folds the wide vectors that are left into `sum`.
#[inline(always)]
fn advance<'a, P: Polynomial, I: Isa, M: Message<'a>>(isa: I, mut sum: I::Wide, message: &mut M) -> I::Wide {
    let keys = isa.splat(const { fold_keys::<P>(I::WIDE_BITS, form::<P, I>()) });
    while message.source().len() >= I::WIDE {
        let next = wide::<P, I, M>(isa, message);
        sum = isa.fold_wide(sum, keys, next);
    }
    sum
}

/// Merges the lanes of `sum`.
#[inline(always)]
pub(super) fn merge<P: Polynomial, I: Isa>(isa: I, sum: I::Wide) -> I::Narrow {
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

/// Takes the next wide vector off, in the order of the polynomial.
#[inline(always)]
fn wide<'a, P: Polynomial, I: Isa, M: Message<'a>>(isa: I, message: &mut M) -> I::Wide {
    let mut next = message.take(I::WIDE);
    let value = next.wide(isa, 0);
    next.pass(isa, 0, value);
    ordered_wide::<P, I>(isa, value)
}

/// A wide vector of memory in the order of the polynomial.
#[inline(always)]
pub(super) fn ordered_wide<P: Polynomial, I: Isa>(isa: I, value: I::Wide) -> I::Wide {
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
pub(super) fn reduce<P: Polynomial, I: Isa>(isa: I, lane: I::Narrow) -> u64 {
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

/// The states at the ends of four messages that were folded into these vectors.
#[inline(always)]
pub(super) fn reduce_four<P: Polynomial, I: FourLanes>(isa: I, sums: [I::Wide; 4]) -> [u64; 4] {
    const { assert!(form::<P, I>().is_reflected(), "with four lanes, the bits of each byte are reversed") };
    // Every vector holds the same lane of all four.
    let [a, b, c, d] = isa.transpose(sums);
    let lanes = isa.fold_wide(a, isa.splat(const { fold_keys::<P>(384, form::<P, I>()) }), d);
    let lanes = isa.fold_wide(b, isa.splat(const { fold_keys::<P>(256, form::<P, I>()) }), lanes);
    let lanes = isa.fold_wide(c, isa.splat(const { fold_keys::<P>(128, form::<P, I>()) }), lanes);
    let constants = const { reduction::<P>(form::<P, I>()) };
    let lanes = isa.add_wide(isa.mul_low_wide(lanes, isa.splat(constants.fold)), isa.lower_wide(lanes));
    let multiples = isa.mul_low_wide(lanes, isa.splat(constants.quotient));
    let remainders = isa.add_wide(isa.mul_low_wide(multiples, isa.splat(constants.poly)), lanes);
    let remainders =
        if constants.poly_is_cut { isa.add_wide(remainders, isa.raise_wide(multiples)) } else { remainders };
    if P::REFLECTED {
        isa.highs(remainders)
    } else {
        isa.highs(isa.order_wide(remainders)).map(|high| high.swap_bytes() >> (64 - P::WIDTH))
    }
}
