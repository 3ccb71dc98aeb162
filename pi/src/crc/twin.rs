//! Two CRCs of a block in one pass: its guard, and the CRC-32 of the packet that will carry it.
//!
//! Each vector is loaded once and folded into two sums. Memory that is far costs its way to the processor once then, and
//! both multiplications are done meanwhile. Everything is `inline(always)`, as in `fold.rs`.

use super::ahead::Ahead;
use super::fold::{self, ACCUMULATORS};
use super::lanes::{FourLanes, Isa};
use super::message::{Message, Read};
use super::params::{Ethernet, Polynomial, fold_keys};

/// States and sums of strided blocks, as [`Summed`](super::Summed): one after the other, each while it is near.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a strided area and what to make of it")]
pub(super) fn blocks<P: Polynomial, I: Isa>(
    isa: I,
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    states: &mut [u64],
    sums: &mut [u32],
    ahead: Ahead,
) {
    let mut rest = src;
    for (state, sum) in states.iter_mut().zip(sums) {
        let block = &rest[..length];
        rest = rest.get(stride..).unwrap_or_default();
        *state = fold::update::<P, I>(isa, init, block, ahead.behind(rest));
        *sum = low_32(fold::update::<Ethernet, I>(isa, 0, block, Ahead::NONE));
    }
}

/// As [`blocks`], in one pass over blocks that are whole wide vectors.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a strided area and what to make of it")]
pub(super) fn blocks_by_four<P: Polynomial, I: FourLanes>(
    isa: I,
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    mut states: &mut [u64],
    mut sums: &mut [u32],
    ahead: Ahead,
) {
    if !fold::ends_with_others::<I>(length) {
        return blocks::<P, I>(isa, init, src, stride, length, states, sums, ahead);
    }
    let mut rest = src;
    while states.len() >= 4 && sums.len() >= 4 {
        let [(a, e), (b, f), (c, g), (d, h)] =
            [(); 4].map(|()| next_block::<P, I>(isa, init, &mut rest, stride, length, ahead));
        let (four, later) = std::mem::take(&mut states).split_at_mut(4);
        four.copy_from_slice(&fold::reduce_four::<P, I>(isa, [a, b, c, d]));
        states = later;
        let (four, later) = std::mem::take(&mut sums).split_at_mut(4);
        four.copy_from_slice(&fold::reduce_four::<Ethernet, I>(isa, [e, f, g, h]).map(low_32));
        sums = later;
    }
    for (state, sum) in states.iter_mut().zip(sums) {
        let (guard, packet) = next_block::<P, I>(isa, init, &mut rest, stride, length, ahead);
        *state = fold::reduce::<P, I>(isa, fold::merge::<P, I>(isa, guard));
        *sum = low_32(fold::reduce::<Ethernet, I>(isa, fold::merge::<Ethernet, I>(isa, packet)));
    }
}

/// Takes the next of strided blocks off, and folds it into one vector for each CRC. Not a closure: that would be compiled
/// without the instruction set, wherever it is not inlined.
#[inline(always)]
fn next_block<P: Polynomial, I: Isa>(
    isa: I,
    init: u64,
    rest: &mut &[u8],
    stride: usize,
    length: usize,
    ahead: Ahead,
) -> (I::Wide, I::Wide) {
    let block = &rest[..length];
    *rest = rest.get(stride..).unwrap_or_default();
    if ahead.is_far() {
        both::<P, I, _>(isa, init, &mut Read::<'_, true>(block, ahead.behind(rest)))
    } else {
        both::<P, I, _>(isa, init, &mut Read::<'_, false>(block, Ahead::NONE))
    }
}

/// Folds all wide vectors of a message, which has [`ACCUMULATORS`] of them at least, into one for each CRC.
#[inline(always)]
fn both<'a, P: Polynomial, I: Isa, M: Message<'a>>(isa: I, init: u64, message: &mut M) -> (I::Wide, I::Wide) {
    let guard_keys = isa.splat(const { fold_keys::<P>(I::WIDE_BITS * 4, fold::form::<P, I>()) });
    let packet_keys =
        isa.splat(const { fold_keys::<Ethernet>(I::WIDE_BITS * 4, fold::form::<Ethernet, I>()) });
    let (_, mut packet) = fold::next_group::<I, M>(isa, message);
    let [a, b, c, d] = packet;
    let mut guard = [
        fold::ordered_wide::<P, I>(isa, a),
        fold::ordered_wide::<P, I>(isa, b),
        fold::ordered_wide::<P, I>(isa, c),
        fold::ordered_wide::<P, I>(isa, d),
    ];
    guard[0] = isa.add_wide(guard[0], isa.widen(fold::start::<P, I>(isa, init)));
    while message.source().len() >= ACCUMULATORS * I::WIDE {
        let (_, next) = fold::next_group::<I, M>(isa, message);
        for ((guard, packet), next) in guard.iter_mut().zip(&mut packet).zip(next) {
            *guard = isa.fold_wide(*guard, guard_keys, fold::ordered_wide::<P, I>(isa, next));
            *packet = isa.fold_wide(*packet, packet_keys, next);
        }
    }
    let mut guard = fold::join::<P, I>(isa, guard);
    let mut packet = fold::join::<Ethernet, I>(isa, packet);
    let guard_keys = isa.splat(const { fold_keys::<P>(I::WIDE_BITS, fold::form::<P, I>()) });
    let packet_keys = isa.splat(const { fold_keys::<Ethernet>(I::WIDE_BITS, fold::form::<Ethernet, I>()) });
    while message.source().len() >= I::WIDE {
        let next = message.take(I::WIDE).wide(isa, 0);
        guard = isa.fold_wide(guard, guard_keys, fold::ordered_wide::<P, I>(isa, next));
        packet = isa.fold_wide(packet, packet_keys, next);
    }
    (guard, packet)
}

#[expect(clippy::cast_possible_truncation, reason = "states of this checksum have 32 bits")]
fn low_32(state: u64) -> u32 {
    state as u32
}
