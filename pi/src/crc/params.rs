//! The polynomials of the CRCs, and the constants that folding needs, computed at compile time.
//!
//! All CRCs are treated as 64 bits wide: a polynomial of degree n is multiplied by x^(64-n), which multiplies every
//! remainder by the same power. So one algorithm serves all widths, and only states are shifted at its ends.
//!
//! Numbers have one of two *forms*: in the reflected form the coefficient of the highest power is in the lowest bit. A
//! carry-less product of two reflected numbers comes out multiplied by x, which the constants take back. A CRC whose
//! bits go in lowest first is in the reflected form as it lies in memory; another gets there when the bits of each byte
//! are reversed, or to the normal form when the bytes of each lane are.

use super::scalar::{self, Scalar};

/// A CRC.
pub(super) trait Polynomial {
    /// Degree of the polynomial and width of the state, in bits: at most 64.
    const WIDTH: u32;
    /// Coefficients below the highest, as in the catalogues (bit i = power i).
    const POLY: u64;
    /// Whether bits go in and out lowest first.
    const REFLECTED: bool;
    /// The table-driven form, for messages that are too short to fold.
    type Scalar: Scalar;
}

/// CRC-16/T10-DIF.
#[derive(Debug)]
pub(super) struct T10Dif;

impl Polynomial for T10Dif {
    const WIDTH: u32 = 16;
    const POLY: u64 = 0x8BB7;
    const REFLECTED: bool = false;
    type Scalar = scalar::Crc16;
}

/// CRC-32C.
#[derive(Debug)]
pub(super) struct Castagnoli;

impl Polynomial for Castagnoli {
    const WIDTH: u32 = 32;
    const POLY: u64 = 0x1EDC_6F41;
    const REFLECTED: bool = true;
    type Scalar = scalar::Crc32c;
}

/// CRC-32 of IEEE 802.3.
#[derive(Debug)]
pub(super) struct Ethernet;

impl Polynomial for Ethernet {
    const WIDTH: u32 = 32;
    const POLY: u64 = 0x04C1_1DB7;
    const REFLECTED: bool = true;
    type Scalar = scalar::Crc32;
}

/// CRC-64/NVME.
#[derive(Debug)]
pub(super) struct Nvme;

impl Polynomial for Nvme {
    const WIDTH: u32 = 64;
    const POLY: u64 = 0xAD93_D235_94C9_3659;
    const REFLECTED: bool = true;
    type Scalar = scalar::Crc64;
}

/// Which end of a number the highest power is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// In the highest bit.
    Normal,
    /// In the lowest bit.
    Reflected,
}

impl Form {
    pub(super) const fn is_reflected(self) -> bool {
        matches!(self, Self::Reflected)
    }
}

/// A 128-bit lane as its low and high halves.
pub(super) type Pair = [u64; 2];

/// Multipliers that move a lane `bits` bits towards the start of the message: the halves of the lane are multiplied
/// by the halves of the pair and the products added. `bits` is at least 1.
pub(super) const fn fold_keys<P: Polynomial>(bits: u32, form: Form) -> Pair {
    if form.is_reflected() {
        [power::<P>(bits + 63).reverse_bits(), power::<P>(bits - 1).reverse_bits()]
    } else {
        [power::<P>(bits), power::<P>(bits + 64)]
    }
}

/// Constants of the last step, from a lane of 128 bits to a remainder of 64.
#[derive(Debug)]
pub(super) struct Reduction {
    /// Takes the upper half of the lane down by 64 bits.
    pub(super) fold: Pair,
    /// Quotient of x^128 by the polynomial.
    pub(super) quotient: Pair,
    /// The polynomial.
    pub(super) poly: Pair,
    /// Whether `poly` lacks its lowest coefficient, for which there was no room.
    pub(super) poly_is_cut: bool,
}

/// The constants of the last step. Both halves of each pair are equal.
pub(super) const fn reduction<P: Polynomial>(form: Form) -> Reduction {
    let poly = aligned::<P>();
    let (fold, quotient, poly, poly_is_cut) = if form.is_reflected() {
        // One bit further up, for the factor x of the product; the highest coefficient, which is 1, comes in below.
        let cut = poly & 1 != 0;
        let quotient = quotient(poly).reverse_bits() << 1 | 1;
        (power::<P>(127).reverse_bits(), quotient, poly.reverse_bits() << 1 | 1, cut)
    } else {
        (power::<P>(128), quotient(poly), poly, false)
    };
    Reduction { fold: [fold, fold], quotient: [quotient, quotient], poly: [poly, poly], poly_is_cut }
}

/// The polynomial at 64 bits, without its highest coefficient.
const fn aligned<P: Polynomial>() -> u64 {
    P::POLY << (64 - P::WIDTH)
}

/// x^n modulo the polynomial.
const fn power<P: Polynomial>(n: u32) -> u64 {
    let mut value = 1_u64;
    let mut i = 0;
    while i < n {
        let carry = value >> 63;
        value = (value << 1) ^ (aligned::<P>() * carry);
        i += 1;
    }
    value
}

/// The quotient of x^128 by x^64 + `poly`, without its highest coefficient.
const fn quotient(poly: u64) -> u64 {
    let mut remainder = poly;
    let mut quotient = 0_u64;
    let mut i = 0;
    while i < 64 {
        let carry = remainder >> 63;
        quotient = quotient << 1 | carry;
        remainder = (remainder << 1) ^ (poly * carry);
        i += 1;
    }
    quotient
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_those_that_are_published() {
        // CRC-64/NVME: x^128 / P and P, reflected, as other folding implementations have them.
        let nvme = reduction::<Nvme>(Form::Reflected);
        assert_eq!(nvme.quotient[0], 0x27EC_FA32_9AEF_9F77);
        assert_eq!(nvme.poly[0], 0x34D9_2653_5897_936B);
        assert!(nvme.poly_is_cut);
        // CRC-16/T10-DIF at 64 bits: the polynomial itself, and x^64 modulo it.
        assert_eq!(reduction::<T10Dif>(Form::Normal).poly[0], 0x8BB7_0000_0000_0000);
        assert_eq!(power::<T10Dif>(64), 0x8BB7_0000_0000_0000);
    }
}
