//! Lanes of 128 bits: PCLMULQDQ with AVX's three-operand forms, in any x86-64 CPU since about 2011.
#![allow(unsafe_code, reason = "vector instructions that the CPU may lack, and loads from slices")]

use std::arch::x86_64::*;
use std::ptr;

use crate::crc::ahead::Ahead;
use crate::crc::fold;
use crate::crc::lanes::Isa;
use crate::crc::params::{Form, Pair, Polynomial};
use crate::crc::twin;

/// Proof that the CPU has PCLMULQDQ, SSSE3, SSE4.1 and AVX.
#[derive(Clone, Copy, Debug)]
pub(in crate::crc) struct Pclmul(());

/// Whether this CPU runs the functions of this file.
pub(in crate::crc) fn is_supported() -> bool {
    is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("ssse3")
        && is_x86_feature_detected!("sse4.1")
        && is_x86_feature_detected!("avx")
}

/// As [`fold::update`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,avx")]
pub(in crate::crc) fn update<P: Polynomial>(state: u64, bytes: &[u8], ahead: Ahead) -> u64 {
    fold::update::<P, Pclmul>(Pclmul(()), state, bytes, ahead)
}

/// As [`fold::blocks`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,avx")]
pub(in crate::crc) fn blocks<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    states: &mut [u64],
    ahead: Ahead,
) {
    fold::blocks::<P, Pclmul>(Pclmul(()), init, src, stride, length, states, ahead);
}

/// As [`twin::blocks`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,avx")]
pub(in crate::crc) fn blocks_summed<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    states: &mut [u64],
    sums: &mut [u32],
    ahead: Ahead,
) {
    twin::blocks::<P, Pclmul>(Pclmul(()), init, src, stride, length, states, sums, ahead);
}

/// As [`fold::stream`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,avx")]
pub(in crate::crc) fn stream(src: &[u8], dst: &mut [u8], ahead: Ahead) {
    fold::stream(Pclmul(()), src, dst, ahead);
}

/// As [`fold::copy_blocks`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,avx")]
pub(in crate::crc) fn copy_blocks<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    dst: &mut [u8],
    dst_stride: usize,
    length: usize,
    states: &mut [u64],
) {
    fold::copy_blocks::<P, Pclmul>(Pclmul(()), init, src, stride, dst, dst_stride, length, states);
}

/// As [`fold::stream_blocks`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,avx")]
pub(in crate::crc) fn stream_blocks<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    dst: &mut [u8],
    dst_stride: usize,
    length: usize,
    states: &mut [u64],
) {
    fold::stream_blocks::<P, Pclmul>(Pclmul(()), init, src, stride, dst, dst_stride, length, states);
}

impl Pclmul {
    /// # Safety
    /// The CPU must have the features of this file.
    #[inline(always)]
    pub(super) unsafe fn assume() -> Self {
        Self(())
    }
}

// Every method is inlined into a function that has the features; the value `self` exists only in such functions.
impl Isa for Pclmul {
    type Narrow = __m128i;
    type Wide = __m128i;
    const WIDE: usize = 16;
    const WIDE_BITS: u32 = 128;
    const FORM: Form = Form::Normal;

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> __m128i {
        let bytes = &bytes[..16];
        // SAFETY: the slice holds the 16 bytes that are read, and this load needs no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], value: __m128i) {
        let bytes = &mut bytes[..16];
        // SAFETY: the slice holds the 16 bytes that are written, and this store needs no alignment.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn pair(self, [low, high]: Pair) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_set_epi64x(high.cast_signed(), low.cast_signed()) }
    }

    #[inline(always)]
    fn low(self, value: __m128i) -> u64 {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_cvtsi128_si64(value) }.cast_unsigned()
    }

    #[inline(always)]
    fn high(self, value: __m128i) -> u64 {
        self.low(self.lower(value))
    }

    #[inline(always)]
    fn add(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    fn order(self, value: __m128i) -> __m128i {
        // SAFETY: `self` proves SSSE3.
        unsafe { reverse(value) }
    }

    #[inline(always)]
    fn mul_low(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: `self` proves PCLMULQDQ.
        unsafe { _mm_clmulepi64_si128::<0x00>(a, b) }
    }

    #[inline(always)]
    fn mul_high(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: `self` proves PCLMULQDQ.
        unsafe { _mm_clmulepi64_si128::<0x11>(a, b) }
    }

    #[inline(always)]
    fn raise(self, value: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_slli_si128::<8>(value) }
    }

    #[inline(always)]
    fn lower(self, value: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_srli_si128::<8>(value) }
    }

    #[inline(always)]
    fn splice(self, value: __m128i, last: __m128i, count: usize) -> (__m128i, __m128i) {
        let before = self.load(&MOVES[count..]);
        let end = self.load(&MOVES[16 + count..]);
        // SAFETY: `self` proves SSSE3 and SSE4.1.
        unsafe { splice(value, last, before, end) }
    }

    #[inline(always)]
    fn load_wide(self, bytes: &[u8]) -> __m128i {
        self.load(bytes)
    }

    #[inline(always)]
    fn store_wide(self, bytes: &mut [u8], value: __m128i) {
        self.store(bytes, value);
    }

    #[inline(always)]
    fn stream_wide(self, bytes: &mut [u8], value: __m128i) {
        let bytes = &mut bytes[..16];
        assert!(bytes.as_ptr().addr().is_multiple_of(16), "streamed stores are aligned");
        // SAFETY: SSE2 is part of x86-64; the slice holds the 16 bytes that are written, which start where this store needs it.
        unsafe { _mm_stream_si128(bytes.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn fetch(self, address: usize) {
        // SAFETY: SSE is part of x86-64, and a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ptr::without_provenance(address)) }
    }

    #[inline(always)]
    fn splat(self, halves: Pair) -> __m128i {
        self.pair(halves)
    }

    #[inline(always)]
    fn widen(self, value: __m128i) -> __m128i {
        value
    }

    #[inline(always)]
    fn add_wide(self, a: __m128i, b: __m128i) -> __m128i {
        self.add(a, b)
    }

    #[inline(always)]
    fn order_wide(self, value: __m128i) -> __m128i {
        self.order(value)
    }

    #[inline(always)]
    fn fold_wide(self, value: __m128i, keys: __m128i, next: __m128i) -> __m128i {
        self.add(self.add(self.mul_low(value, keys), self.mul_high(value, keys)), next)
    }

    #[inline(always)]
    fn merge(self, value: __m128i, _: [Pair; 3]) -> __m128i {
        value
    }
}

/// Byte selectors for [`splice`]: sixteen bytes from `count` on move a lane up by 16 - `count` bytes, from
/// 16 + `count` on down by `count`. Those with the highest bit select zero.
static MOVES: [u8; 48] = {
    let mut moves = [0x80; 48];
    let mut i = 0;
    while i < 16 {
        moves[16 + i as usize] = i;
        i += 1;
    }
    moves
};

#[inline]
#[target_feature(enable = "ssse3")]
fn reverse(value: __m128i) -> __m128i {
    _mm_shuffle_epi8(value, _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
}

#[inline]
#[target_feature(enable = "ssse3,sse4.1")]
fn splice(value: __m128i, last: __m128i, before: __m128i, end: __m128i) -> (__m128i, __m128i) {
    // Where `end` selects zero stand the bytes of `last` that are not in `value`.
    (_mm_shuffle_epi8(value, before), _mm_blendv_epi8(_mm_shuffle_epi8(value, end), last, end))
}
