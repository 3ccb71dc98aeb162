//! The few vector operations that folding needs, as a trait that each instruction set implements.

use super::params::{Form, Pair};

/// An instruction set. A value of it proves that the CPU has it, so all its operations are safe.
///
/// A *narrow* vector is one lane of 128 bits, a *wide* one as many lanes as the registers hold, the first bytes of
/// the message in lane 0. Implementations are inlined into functions compiled for the instruction set.
pub(super) trait Isa: Copy {
    /// One lane.
    type Narrow: Copy;
    /// Several lanes (or one).
    type Wide: Copy;
    /// Bytes of a wide vector.
    const WIDE: usize;
    /// Bits of a wide vector.
    const WIDE_BITS: u32;
    /// The form to which [`Isa::order`] brings the bytes of a CRC whose bits go in highest first.
    const FORM: Form;

    /// Loads the first 16 bytes.
    fn load(self, bytes: &[u8]) -> Self::Narrow;
    /// Stores to the first 16 bytes.
    fn store(self, bytes: &mut [u8], value: Self::Narrow);
    /// A lane of these halves, low first.
    fn pair(self, halves: Pair) -> Self::Narrow;
    /// The low half.
    fn low(self, value: Self::Narrow) -> u64;
    /// The high half.
    fn high(self, value: Self::Narrow) -> u64;
    /// Sum of the lanes.
    fn add(self, a: Self::Narrow, b: Self::Narrow) -> Self::Narrow;
    /// Brings memory to [`Isa::FORM`] and back: the bytes of the lane, or the bits of each byte, in reverse order.
    fn order(self, value: Self::Narrow) -> Self::Narrow;
    /// Carry-less product of the low halves.
    fn mul_low(self, a: Self::Narrow, b: Self::Narrow) -> Self::Narrow;
    /// Carry-less product of the high halves.
    fn mul_high(self, a: Self::Narrow, b: Self::Narrow) -> Self::Narrow;
    /// The low half in the high one, the low one zero.
    fn raise(self, value: Self::Narrow) -> Self::Narrow;
    /// The high half in the low one, the high one zero.
    fn lower(self, value: Self::Narrow) -> Self::Narrow;
    /// Regards the 16 bytes of `value` and the last `count` (1 to 15) of the 16 bytes `last` as one message, and
    /// returns its last 16 bytes and, with zeroes before them, those before.
    fn splice(self, value: Self::Narrow, last: Self::Narrow, count: usize) -> (Self::Narrow, Self::Narrow);

    /// Loads the first [`Isa::WIDE`] bytes.
    fn load_wide(self, bytes: &[u8]) -> Self::Wide;
    /// Stores to the first [`Isa::WIDE`] bytes.
    fn store_wide(self, bytes: &mut [u8], value: Self::Wide);
    /// As [`Isa::store_wide`], past the caches.
    ///
    /// # Panics
    /// When the bytes don't start at a multiple of [`Isa::WIDE`].
    fn stream_wide(self, bytes: &mut [u8], value: Self::Wide);
    /// Starts to bring the cache line of an address into the cache. Any address will do.
    fn fetch(self, address: usize);
    /// The same pair in every lane.
    fn splat(self, halves: Pair) -> Self::Wide;
    /// The lane in lane 0, zeroes in the others.
    fn widen(self, value: Self::Narrow) -> Self::Wide;
    /// Sum of the vectors.
    fn add_wide(self, a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// As [`Isa::order`], of each lane.
    fn order_wide(self, value: Self::Wide) -> Self::Wide;
    /// Low half by low half plus high half by high half, plus `next`; lane by lane.
    fn fold_wide(self, value: Self::Wide, keys: Self::Wide, next: Self::Wide) -> Self::Wide;
    /// Moves every lane to the place of the last one and adds them there. `keys` are the multipliers for 128, 256 and
    /// 384 bits.
    fn merge(self, value: Self::Wide, keys: [Pair; 3]) -> Self::Narrow;
}

/// An instruction set whose wide vectors have four lanes, so that four messages can end together.
pub(super) trait FourLanes: Isa {
    /// Lane `j` of vector `i` becomes lane `i` of vector `j`.
    fn transpose(self, vectors: [Self::Wide; 4]) -> [Self::Wide; 4];
    /// As [`Isa::mul_low`], lane by lane.
    fn mul_low_wide(self, a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// As [`Isa::raise`], lane by lane.
    fn raise_wide(self, value: Self::Wide) -> Self::Wide;
    /// As [`Isa::lower`], lane by lane.
    fn lower_wide(self, value: Self::Wide) -> Self::Wide;
    /// The high half of each lane.
    fn highs(self, value: Self::Wide) -> [u64; 4];
}
