//! A vector instruction set in plain code: 512-bit registers in the reflected form, as the AVX-512 kernel has them. So
//! that what folding does there is tested on machines without it; the instructions themselves are not.

use super::lanes::{FourLanes, Isa};
use super::params::{Form, Pair};

/// The model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model;

type Lane = [u8; 16];

fn number(lane: Lane) -> u128 {
    u128::from_le_bytes(lane)
}

fn product(a: u64, b: u64) -> u128 {
    (0..64).filter(|bit| b >> bit & 1 == 1).fold(0, |sum, bit| sum ^ u128::from(a) << bit)
}

fn halves(lane: Lane) -> [u64; 2] {
    let (low, high) = lane.split_at(8);
    [low, high].map(|half| u64::from_le_bytes(half.try_into().expect("half a lane")))
}

fn fold(lane: Lane, keys: Lane) -> u128 {
    let ([low, high], [key_low, key_high]) = (halves(lane), halves(keys));
    product(low, key_low) ^ product(high, key_high)
}

impl Isa for Model {
    type Narrow = Lane;
    type Wide = [Lane; 4];
    const WIDE: usize = 64;
    const WIDE_BITS: u32 = 512;
    const FORM: Form = Form::Reflected;

    fn load(self, bytes: &[u8]) -> Lane {
        bytes[..16].try_into().expect("16 bytes")
    }

    fn store(self, bytes: &mut [u8], value: Lane) {
        bytes[..16].copy_from_slice(&value);
    }

    fn pair(self, [low, high]: Pair) -> Lane {
        (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
    }

    fn low(self, value: Lane) -> u64 {
        halves(value)[0]
    }

    fn high(self, value: Lane) -> u64 {
        halves(value)[1]
    }

    fn add(self, a: Lane, b: Lane) -> Lane {
        (number(a) ^ number(b)).to_le_bytes()
    }

    fn order(self, value: Lane) -> Lane {
        value.map(u8::reverse_bits)
    }

    fn mul_low(self, a: Lane, b: Lane) -> Lane {
        product(halves(a)[0], halves(b)[0]).to_le_bytes()
    }

    fn mul_high(self, a: Lane, b: Lane) -> Lane {
        product(halves(a)[1], halves(b)[1]).to_le_bytes()
    }

    fn raise(self, value: Lane) -> Lane {
        (number(value) << 64).to_le_bytes()
    }

    fn lower(self, value: Lane) -> Lane {
        (number(value) >> 64).to_le_bytes()
    }

    fn splice(self, value: Lane, last: Lane, count: usize) -> (Lane, Lane) {
        let mut message = [0; 32];
        message[16 - count..32 - count].copy_from_slice(&value);
        message[32 - count..].copy_from_slice(&last[16 - count..]);
        (self.load(&message[..16]), self.load(&message[16..]))
    }

    fn load_wide(self, bytes: &[u8]) -> [Lane; 4] {
        [0, 16, 32, 48].map(|at| self.load(&bytes[at..64]))
    }

    fn store_wide(self, bytes: &mut [u8], value: [Lane; 4]) {
        bytes[..64].copy_from_slice(value.as_flattened());
    }

    fn stream_wide(self, bytes: &mut [u8], value: [Lane; 4]) {
        assert!(bytes.as_ptr().addr().is_multiple_of(64), "streamed stores are aligned");
        self.store_wide(bytes, value);
    }

    fn fetch(self, _: usize) {}

    fn splat(self, halves: Pair) -> [Lane; 4] {
        [self.pair(halves); 4]
    }

    fn widen(self, value: Lane) -> [Lane; 4] {
        [value, [0; 16], [0; 16], [0; 16]]
    }

    fn add_wide(self, a: [Lane; 4], b: [Lane; 4]) -> [Lane; 4] {
        std::array::from_fn(|lane| self.add(a[lane], b[lane]))
    }

    fn order_wide(self, value: [Lane; 4]) -> [Lane; 4] {
        value.map(|lane| self.order(lane))
    }

    fn fold_wide(self, value: [Lane; 4], keys: [Lane; 4], next: [Lane; 4]) -> [Lane; 4] {
        std::array::from_fn(|lane| (fold(value[lane], keys[lane]) ^ number(next[lane])).to_le_bytes())
    }

    fn merge(self, value: [Lane; 4], [by_128, by_256, by_384]: [Pair; 3]) -> Lane {
        let moved =
            [by_384, by_256, by_128].into_iter().zip(value).map(|(keys, lane)| fold(lane, self.pair(keys)));
        moved.fold(number(value[3]), |sum, lane| sum ^ lane).to_le_bytes()
    }
}

impl FourLanes for Model {
    fn transpose(self, vectors: [[Lane; 4]; 4]) -> [[Lane; 4]; 4] {
        std::array::from_fn(|lane| vectors.map(|vector| vector[lane]))
    }

    fn mul_low_wide(self, a: [Lane; 4], b: [Lane; 4]) -> [Lane; 4] {
        std::array::from_fn(|lane| self.mul_low(a[lane], b[lane]))
    }

    fn raise_wide(self, value: [Lane; 4]) -> [Lane; 4] {
        value.map(|lane| self.raise(lane))
    }

    fn lower_wide(self, value: [Lane; 4]) -> [Lane; 4] {
        value.map(|lane| self.lower(lane))
    }

    fn highs(self, value: [Lane; 4]) -> [u64; 4] {
        value.map(|lane| self.high(lane))
    }
}
