//! Four lanes of 128 bits at a time: VPCLMULQDQ on the 512-bit registers of AVX-512.
//!
//! Bytes are not reversed but their bits, by GFNI: carry-less multiplications fill the one port that a byte shuffle
//! would need as well. Every CPU with AVX-512 VPCLMULQDQ has GFNI.
#![allow(unsafe_code, reason = "vector instructions that the CPU may lack, and loads from slices")]

use std::arch::x86_64::*;

use super::pclmul::{self, Pclmul};
use crate::crc::ahead::Ahead;
use crate::crc::fold;
use crate::crc::lanes::{FourLanes, Isa};
use crate::crc::params::{Form, Pair, Polynomial};
use crate::crc::twin;

/// Proof that the CPU has VPCLMULQDQ and AVX-512 F, BW, DQ and VL, GFNI, and what [`Pclmul`] proves.
#[derive(Clone, Copy, Debug)]
pub(in crate::crc) struct Avx512(Pclmul);

/// Whether this CPU runs the functions of this file.
pub(in crate::crc) fn is_supported() -> bool {
    pclmul::is_supported()
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("gfni")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// As [`fold::update`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,gfni,avx512f,avx512bw,avx512dq,avx512vl")]
pub(in crate::crc) fn update<P: Polynomial>(state: u64, bytes: &[u8], ahead: Ahead) -> u64 {
    fold::update::<P, Avx512>(isa(), state, bytes, ahead)
}

/// As [`fold::blocks_by_four`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,gfni,avx512f,avx512bw,avx512dq,avx512vl")]
pub(in crate::crc) fn blocks<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    states: &mut [u64],
    ahead: Ahead,
) {
    fold::blocks_by_four::<P, Avx512>(isa(), init, src, stride, length, states, ahead);
}

/// As [`twin::blocks_by_four`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,gfni,avx512f,avx512bw,avx512dq,avx512vl")]
pub(in crate::crc) fn blocks_summed<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    states: &mut [u64],
    sums: &mut [u32],
    ahead: Ahead,
) {
    twin::blocks_by_four::<P, Avx512>(isa(), init, src, stride, length, states, sums, ahead);
}

/// As [`fold::stream`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,gfni,avx512f,avx512bw,avx512dq,avx512vl")]
pub(in crate::crc) fn stream(src: &[u8], dst: &mut [u8], ahead: Ahead) {
    fold::stream(isa(), src, dst, ahead);
}

/// As [`fold::copy_blocks_by_four`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,gfni,avx512f,avx512bw,avx512dq,avx512vl")]
pub(in crate::crc) fn copy_blocks<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    dst: &mut [u8],
    dst_stride: usize,
    length: usize,
    states: &mut [u64],
) {
    fold::copy_blocks_by_four::<P, Avx512>(isa(), init, src, stride, dst, dst_stride, length, states);
}

/// As [`fold::stream_blocks`].
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,gfni,avx512f,avx512bw,avx512dq,avx512vl")]
pub(in crate::crc) fn stream_blocks<P: Polynomial>(
    init: u64,
    src: &[u8],
    stride: usize,
    dst: &mut [u8],
    dst_stride: usize,
    length: usize,
    states: &mut [u64],
) {
    fold::stream_blocks::<P, Avx512>(isa(), init, src, stride, dst, dst_stride, length, states);
}

#[inline]
#[target_feature(enable = "pclmulqdq,ssse3,sse4.1,vpclmulqdq,gfni,avx512f,avx512bw,avx512dq,avx512vl")]
fn isa() -> Avx512 {
    // SAFETY: this function can only be called where its features are, among them those of `Pclmul`.
    Avx512(unsafe { Pclmul::assume() })
}

// Every method is inlined into a function that has the features; the value `self` exists only in such functions.
impl Isa for Avx512 {
    type Narrow = __m128i;
    type Wide = __m512i;
    const WIDE: usize = 64;
    const WIDE_BITS: u32 = 512;
    const FORM: Form = Form::Reflected;

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
        // SAFETY: `self` proves GFNI.
        unsafe { reverse_bits(value) }
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
    fn load_wide(self, bytes: &[u8]) -> __m512i {
        let bytes = &bytes[..64];
        // SAFETY: `self` proves AVX-512F; the slice holds the 64 bytes that are read, and this load needs no alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_wide(self, bytes: &mut [u8], value: __m512i) {
        let bytes = &mut bytes[..64];
        // SAFETY: `self` proves AVX-512F; the slice holds the 64 bytes that are written, and this store needs no
        // alignment.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn stream_wide(self, bytes: &mut [u8], value: __m512i) {
        let bytes = &mut bytes[..64];
        assert!(bytes.as_ptr().addr().is_multiple_of(64), "streamed stores are aligned");
        // SAFETY: `self` proves AVX-512F; the slice holds the 64 bytes that are written, which start where this store needs it.
        unsafe { _mm512_stream_si512(bytes.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn fetch(self, address: usize) {
        self.0.fetch(address);
    }

    #[inline(always)]
    fn splat(self, halves: Pair) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_broadcast_i32x4(self.pair(halves)) }
    }

    #[inline(always)]
    fn widen(self, value: __m128i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_zextsi128_si512(value) }
    }

    #[inline(always)]
    fn add_wide(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512F.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn order_wide(self, value: __m512i) -> __m512i {
        // SAFETY: `self` proves GFNI and AVX-512F.
        unsafe { reverse_bits_wide(value) }
    }

    #[inline(always)]
    fn fold_wide(self, value: __m512i, keys: __m512i, next: __m512i) -> __m512i {
        // SAFETY: `self` proves VPCLMULQDQ and AVX-512F.
        unsafe { fold_wide(value, keys, next) }
    }

    #[inline(always)]
    fn merge(self, value: __m512i, keys: [Pair; 3]) -> __m128i {
        // SAFETY: `self` proves VPCLMULQDQ and AVX-512F, DQ and VL.
        unsafe { merge(value, keys) }
    }
}

impl FourLanes for Avx512 {
    #[inline(always)]
    fn transpose(self, vectors: [__m512i; 4]) -> [__m512i; 4] {
        // SAFETY: `self` proves AVX-512F.
        unsafe { transpose(vectors) }
    }

    #[inline(always)]
    fn mul_low_wide(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves VPCLMULQDQ and AVX-512F.
        unsafe { _mm512_clmulepi64_epi128::<0x00>(a, b) }
    }

    #[inline(always)]
    fn raise_wide(self, value: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512BW.
        unsafe { _mm512_bslli_epi128::<8>(value) }
    }

    #[inline(always)]
    fn lower_wide(self, value: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512BW.
        unsafe { _mm512_bsrli_epi128::<8>(value) }
    }

    #[inline(always)]
    fn highs(self, value: __m512i) -> [u64; 4] {
        let mut halves = [0; 8];
        // SAFETY: `self` proves AVX-512F; the array holds the 64 bytes that are written.
        unsafe { _mm512_storeu_si512((&raw mut halves).cast(), value) };
        [halves[1], halves[3], halves[5], halves[7]]
    }
}

/// The matrix that reverses the bits of a byte, for `gf2p8affineqb`.
const REVERSAL: i64 = 0x8040_2010_0804_0201_u64.cast_signed();

#[inline]
#[target_feature(enable = "gfni")]
fn reverse_bits(value: __m128i) -> __m128i {
    _mm_gf2p8affine_epi64_epi8::<0>(value, _mm_set1_epi64x(REVERSAL))
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn reverse_bits_wide(value: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(value, _mm512_set1_epi64(REVERSAL))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn transpose([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab_front, ab_back) = (_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0xEE>(a, b));
    let (cd_front, cd_back) = (_mm512_shuffle_i64x2::<0x44>(c, d), _mm512_shuffle_i64x2::<0xEE>(c, d));
    [
        _mm512_shuffle_i64x2::<0x88>(ab_front, cd_front),
        _mm512_shuffle_i64x2::<0xDD>(ab_front, cd_front),
        _mm512_shuffle_i64x2::<0x88>(ab_back, cd_back),
        _mm512_shuffle_i64x2::<0xDD>(ab_back, cd_back),
    ]
}

#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold_wide(value: __m512i, keys: __m512i, next: __m512i) -> __m512i {
    let low = _mm512_clmulepi64_epi128::<0x00>(value, keys);
    let high = _mm512_clmulepi64_epi128::<0x11>(value, keys);
    // The sum of all three.
    _mm512_ternarylogic_epi64::<0x96>(low, high, next)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,vpclmulqdq")]
fn merge(value: __m512i, keys: [Pair; 3]) -> __m128i {
    // Lane 0 is 384 bits before the last one. The last lane is multiplied by zero, and added as it is.
    let [by_128, by_256, by_384] = keys.map(|[low, high]| [low.cast_signed(), high.cast_signed()]);
    let keys = _mm512_set_epi64(0, 0, by_128[1], by_128[0], by_256[1], by_256[0], by_384[1], by_384[0]);
    let last = _mm512_maskz_mov_epi64(0b1100_0000, value);
    let moved = fold_wide(value, keys, last);
    let half = _mm256_xor_si256(_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64::<1>(moved));
    _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half))
}
