//! Two lanes of 128 bits at a time: VPCLMULQDQ on the 256-bit registers of AVX2.
#![allow(unsafe_code, reason = "vector instructions that the CPU may lack, and loads from slices")]

use std::arch::x86_64::*;

use super::pclmul::{self, Pclmul};
use crate::crc::ahead::Ahead;
use crate::crc::fold;
use crate::crc::lanes::Isa;
use crate::crc::params::{Form, Pair, Polynomial};
use crate::crc::twin;

/// Proof that the CPU has VPCLMULQDQ and AVX2, and what [`Pclmul`] proves.
#[derive(Clone, Copy, Debug)]
pub(in crate::crc) struct Avx2(Pclmul);

/// Whether this CPU runs the functions of this file.
pub(in crate::crc) fn is_supported() -> bool {
    pclmul::is_supported() && is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx2")
}

/// As [`fold::update`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,avx2")]
pub(in crate::crc) fn update<P: Polynomial>(state: u64, bytes: &[u8], ahead: Ahead) -> u64 {
    fold::update::<P, Avx2>(isa(), state, bytes, ahead)
}

/// As [`fold::blocks`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,avx2")]
pub(in crate::crc) fn blocks<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    states: &mut [u64],
    ahead: Ahead,
) {
    fold::blocks::<P, Avx2>(isa(), init, src, stride, length, states, ahead);
}

/// As [`twin::blocks`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,avx2")]
pub(in crate::crc) fn blocks_summed<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    states: &mut [u64],
    sums: &mut [u32],
    ahead: Ahead,
) {
    twin::blocks::<P, Avx2>(isa(), init, src, stride, length, states, sums, ahead);
}

/// As [`fold::stream`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,avx2")]
pub(in crate::crc) fn stream(src: &[u8], dst: &mut [u8], ahead: Ahead) {
    fold::stream(isa(), src, dst, ahead);
}

/// As [`fold::copy_blocks`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,avx2")]
pub(in crate::crc) fn copy_blocks<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    dst: &mut [u8],
    dst_stride: usize,
    length: usize,
    states: &mut [u64],
) {
    fold::copy_blocks::<P, Avx2>(isa(), init, src, stride, dst, dst_stride, length, states);
}

/// As [`fold::stream_blocks`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,avx2")]
pub(in crate::crc) fn stream_blocks<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    dst: &mut [u8],
    dst_stride: usize,
    length: usize,
    states: &mut [u64],
) {
    fold::stream_blocks::<P, Avx2>(isa(), init, src, stride, dst, dst_stride, length, states);
}

#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,avx2")]
fn isa() -> Avx2 {
    // SAFETY: this function can only be called where its features are, among them those of `Pclmul`.
    Avx2(unsafe { Pclmul::assume() })
}

// Every method is inlined into a function that has the features; the value `self` exists only in such functions.
impl Isa for Avx2 {
    type Narrow = __m128i;
    type Wide = __m256i;
    const WIDE: usize = 32;
    const WIDE_BITS: u32 = 256;
    const FORM: Form = Form::Normal;

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> __m128i {
        self.0.load(bytes)
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], value: __m128i) {
        self.0.store(bytes, value);
    }

    #[inline(always)]
    fn pair(self, halves: Pair) -> __m128i {
        self.0.pair(halves)
    }

    #[inline(always)]
    fn low(self, value: __m128i) -> u64 {
        self.0.low(value)
    }

    #[inline(always)]
    fn high(self, value: __m128i) -> u64 {
        self.0.high(value)
    }

    #[inline(always)]
    fn add(self, a: __m128i, b: __m128i) -> __m128i {
        self.0.add(a, b)
    }

    #[inline(always)]
    fn order(self, value: __m128i) -> __m128i {
        self.0.order(value)
    }

    #[inline(always)]
    fn mul_low(self, a: __m128i, b: __m128i) -> __m128i {
        self.0.mul_low(a, b)
    }

    #[inline(always)]
    fn mul_high(self, a: __m128i, b: __m128i) -> __m128i {
        self.0.mul_high(a, b)
    }

    #[inline(always)]
    fn raise(self, value: __m128i) -> __m128i {
        self.0.raise(value)
    }

    #[inline(always)]
    fn lower(self, value: __m128i) -> __m128i {
        self.0.lower(value)
    }

    #[inline(always)]
    fn splice(self, value: __m128i, last: __m128i, count: usize) -> (__m128i, __m128i) {
        self.0.splice(value, last, count)
    }

    #[inline(always)]
    fn load_wide(self, bytes: &[u8]) -> __m256i {
        let bytes = &bytes[..32];
        // SAFETY: `self` proves AVX2; the slice holds the 32 bytes that are read, and this load needs no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_wide(self, bytes: &mut [u8], value: __m256i) {
        let bytes = &mut bytes[..32];
        // SAFETY: `self` proves AVX2; the slice holds the 32 bytes that are written, and this store needs no
        // alignment.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn stream_wide(self, bytes: &mut [u8], value: __m256i) {
        let bytes = &mut bytes[..32];
        assert!(bytes.as_ptr().addr().is_multiple_of(32), "streamed stores are aligned");
        // SAFETY: `self` proves AVX2; the slice holds the 32 bytes that are written, which start where this store needs it.
        unsafe { _mm256_stream_si256(bytes.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn fetch(self, address: usize) {
        self.0.fetch(address);
    }

    #[inline(always)]
    fn splat(self, halves: Pair) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_broadcastsi128_si256(self.pair(halves)) }
    }

    #[inline(always)]
    fn widen(self, value: __m128i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_zextsi128_si256(value) }
    }

    #[inline(always)]
    fn add_wide(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn order_wide(self, value: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { reverse(value) }
    }

    #[inline(always)]
    fn fold_wide(self, value: __m256i, keys: __m256i, next: __m256i) -> __m256i {
        // SAFETY: `self` proves VPCLMULQDQ and AVX2.
        unsafe { fold_wide(value, keys, next) }
    }

    #[inline(always)]
    fn merge(self, value: __m256i, [by_128, ..]: [Pair; 3]) -> __m128i {
        // SAFETY: `self` proves PCLMULQDQ and AVX2.
        unsafe { merge(value, by_128) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn reverse(value: __m256i) -> __m256i {
    let order = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    _mm256_shuffle_epi8(value, _mm256_broadcastsi128_si256(order))
}

#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold_wide(value: __m256i, keys: __m256i, next: __m256i) -> __m256i {
    let low = _mm256_clmulepi64_epi128::<0x00>(value, keys);
    let high = _mm256_clmulepi64_epi128::<0x11>(value, keys);
    _mm256_xor_si256(_mm256_xor_si256(low, next), high)
}

#[inline]
#[target_feature(enable = "avx2,pclmulqdq")]
fn merge(value: __m256i, [low, high]: Pair) -> __m128i {
    let keys = _mm_set_epi64x(high.cast_signed(), low.cast_signed());
    let first = _mm256_castsi256_si128(value);
    let moved_low = _mm_clmulepi64_si128::<0x00>(first, keys);
    let moved_high = _mm_clmulepi64_si128::<0x11>(first, keys);
    let last = _mm256_extracti128_si256::<1>(value);
    _mm_xor_si128(_mm_xor_si128(moved_low, last), moved_high)
}
