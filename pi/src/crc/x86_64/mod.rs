//! The x86-64 instruction sets: 128-bit PCLMULQDQ, and VPCLMULQDQ on the 256-bit registers of AVX2 and the 512-bit ones
//! of AVX-512.

pub(super) mod avx2;
pub(super) mod avx512;
pub(super) mod pclmul;
