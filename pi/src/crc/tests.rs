//! Published values, and every kernel against the oracle.

use proptest::prelude::*;

use super::naive::{self, prefixes as naive_prefixes};
use super::scalar::Scalar;
use super::*;

const GUARDS: [Guard; 4] = [Guard::Crc16, Guard::Crc32c, Guard::Crc64, Guard::Ip];

/// Deterministic bytes without structure.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .collect()
}

/// Noise that starts at a multiple of 64, so that offsets into it are alignments.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    fn noise(length: usize) -> Self {
        let bytes = noise(length + 64);
        let start = bytes.as_ptr().align_offset(64);
        Self { bytes, start, length }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[self.start..][..self.length]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.length]
    }
}

fn finished(kernel: Kernel, guard: Guard, bytes: &[u8]) -> u64 {
    let checksum = kernel.checksum(guard);
    checksum.finish(checksum.update(checksum.init, bytes))
}

#[test]
fn every_kernel_of_the_architecture_is_tested_or_named_as_missing() {
    for name in ["avx512", "avx2", "pclmulqdq", "portable"] {
        match Kernel::named(name) {
            Ok(kernel) => assert_eq!(kernel.name(), name),
            Err(error) => eprintln!("not tested on this machine: {error}"),
        }
    }
    assert!(Kernel::available().any(|kernel| kernel.name() == "portable"));
}

#[test]
fn check_values_are_those_of_the_catalogue() {
    for kernel in Kernel::available() {
        assert_eq!(kernel.crc16(0, b"123456789"), 0xD0DB, "{kernel:?}");
        assert_eq!(kernel.crc32c(0, b"123456789"), 0xE306_9283, "{kernel:?}");
        assert_eq!(kernel.crc64(0, b"123456789"), 0xAE8B_1486_0A79_9888, "{kernel:?}");
        assert_eq!(kernel.crc32(0, b"123456789"), 0xCBF4_3926, "{kernel:?}");
    }
}

#[test]
fn long_messages_have_their_published_values() {
    let zeroes = vec![0; 4096];
    let ones = vec![0xFF; 4096];
    let up: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let down: Vec<u8> = (0..=255).rev().cycle().take(4096).collect();
    for (bytes, values) in [
        (&zeroes, [0x0000, 0x98F9_4189, 0x6482_D367_EB22_B64E, 0xFFFF]),
        (&ones, [0x8B5D, 0x25C1_FE13, 0xC0DD_BA73_02EC_A3AC, 0x0000]),
        (&up, [0x8F6D, 0x9C71_FE32, 0x3E72_9F5F_6750_449C, 0xFC03]),
        (&down, [0x0430, 0x2149_41A8, 0x9A2D_F64B_8E9E_517E, 0x03FC]),
    ] {
        for kernel in Kernel::available() {
            for (guard, value) in GUARDS.into_iter().zip(values) {
                assert_eq!(finished(kernel, guard, bytes), value, "{kernel:?} {guard:?}");
            }
        }
    }
}

/// The kernels that differ for a guard: the Internet checksum is the same code in all.
fn kernels(guard: Guard) -> impl Iterator<Item = Kernel> {
    Kernel::available().take(if guard == Guard::Ip { 1 } else { usize::MAX })
}

/// Lengths up to which every kernel is compared with the oracle.
const LENGTHS: usize = 4200;

#[test]
fn every_kernel_agrees_with_the_oracle_on_every_length_at_every_alignment() {
    let bytes = Aligned::noise(LENGTHS + 64);
    for guard in GUARDS {
        // Each alignment has other bytes, and so its own oracle.
        for offset in 0..64 {
            let piece = &bytes.get()[offset..offset + LENGTHS];
            let expected = naive_prefixes(guard, piece);
            for kernel in kernels(guard) {
                for (length, expected) in expected.iter().enumerate() {
                    let value = finished(kernel, guard, &piece[..length]);
                    assert_eq!(value, *expected, "{kernel:?} {guard:?} {length}+{offset}");
                }
            }
        }
    }
}

#[test]
fn every_kernel_agrees_with_the_oracle_on_long_messages() {
    const LONGEST: usize = 300_000;
    let bytes = Aligned::noise(LONGEST + 64);
    for guard in GUARDS {
        let expected = naive_prefixes(guard, &bytes.get()[..if guard == Guard::Ip { 0 } else { LONGEST }]);
        let mut state = 0x1234_5678_9ABC_DEF1_u64;
        for _ in 0..100 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let length = usize::try_from(state >> 40).expect("24 bits") % LONGEST;
            let piece = &bytes.get()[..length];
            let expected = if guard == Guard::Ip { naive::checksum(guard, piece) } else { expected[length] };
            for kernel in kernels(guard) {
                assert_eq!(finished(kernel, guard, piece), expected, "{kernel:?} {guard:?} {length}");
            }
        }
    }
}

#[test]
fn every_kernel_copies_every_length_between_all_alignments() {
    let bytes = Aligned::noise(LENGTHS + 64);
    let mut copy = Aligned::noise(LENGTHS + 192);
    for guard in GUARDS {
        for (length, number) in (0..=LENGTHS).zip(0_usize..) {
            // Alignments of source and destination, all pairs over the lengths.
            let (from, to) = (number * 7 % 64, number / 64 * 5 % 64 + 64);
            let piece = &bytes.get()[from..from + length];
            for kernel in Kernel::available() {
                let checksum = kernel.checksum(guard);
                let expected = checksum.update(checksum.init, piece);
                for stores in [Stores::Cached, Stores::Streamed] {
                    let _fence = stores.fence();
                    let around = copy.get_mut();
                    around.fill(0xEE);
                    let mut states = [0];
                    let target = &mut around[to..to + length];
                    checksum.copy_blocks(
                        stores,
                        checksum.init,
                        piece,
                        length,
                        target,
                        length,
                        length,
                        &mut states,
                    );
                    let what = (kernel, guard, stores, length, from, to);
                    assert_eq!(states[0], expected, "{what:?}");
                    assert!(around[to..to + length] == *piece, "{what:?}");
                    let untouched = around[..to].iter().chain(&around[to + length..]);
                    assert!(untouched.into_iter().all(|byte| *byte == 0xEE), "{what:?}");
                }
            }
        }
    }
}

#[test]
fn every_split_of_a_message_gives_the_same_value() {
    const SPLITS: usize = 600;
    let bytes = Aligned::noise(SPLITS);
    for guard in GUARDS {
        let expected = naive_prefixes(guard, bytes.get());
        for kernel in kernels(guard) {
            let checksum = kernel.checksum(guard);
            for split in 0..=SPLITS {
                let state = checksum.update(checksum.init, &bytes.get()[..split]);
                for (end, expected) in expected.iter().enumerate().skip(split) {
                    let state = checksum.update(state, &bytes.get()[split..end]);
                    assert_eq!(checksum.finish(state), *expected, "{kernel:?} {guard:?} {split} of {end}");
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn folding_in_wide_registers_and_the_reflected_form_agrees_with_the_oracle() {
    use super::fold;
    use super::model::Model;
    use super::params::{Castagnoli, Nvme, Polynomial, T10Dif};

    /// All lengths to 700 and some beyond, copied past the caches too.
    fn check<P: Polynomial>(guard: Guard, bytes: &[u8]) {
        let expected = naive_prefixes(guard, bytes);
        let checksum = Kernel::active().checksum(guard);
        let mut copy = Aligned::noise(bytes.len() + 64);
        for length in (0..=700).chain([1023, 1024, 1025, 1100, 2047, 2100]) {
            let piece = &bytes[..length];
            let mut states = [0];
            fold::blocks::<P, Model>(Model, checksum.init, piece, length, length, &mut states, Ahead::NONE);
            assert_eq!(checksum.finish(states[0]), expected[length], "{guard:?} {length}");
            let target = &mut copy.get_mut()[length % 64..][..length];
            fold::stream_blocks::<P, Model>(
                Model,
                checksum.init,
                piece,
                length,
                target,
                length,
                length,
                &mut states,
            );
            assert_eq!(checksum.finish(states[0]), expected[length], "{guard:?} {length} streamed");
            assert!(target == piece, "{guard:?} {length}");
            // From a state in the middle.
            let (head, tail) = piece.split_at(length / 3);
            let state = checksum.update(checksum.init, head);
            let ahead = Ahead::of(bytes);
            fold::blocks::<P, Model>(Model, state, tail, tail.len(), tail.len(), &mut states, ahead);
            assert_eq!(checksum.finish(states[0]), expected[length], "{guard:?} {length} continued");
            let state = fold::update::<P, Model>(Model, state, tail, ahead);
            assert_eq!(checksum.finish(state), expected[length], "{guard:?} {length} alone");
        }
        // Where four end together, and some are left.
        for length in [0, 1, 255, 256, 257, 320, 512] {
            let (stride, dst_stride) = (length + 8, length + 3);
            for count in 0..=9_usize {
                let source = &bytes[..(count * stride).min(bytes.len())];
                let count = source.len() / stride;
                let (mut states, mut again) = (vec![0; count], vec![0; count]);
                let init = checksum.init;
                for ahead in [Ahead::NONE, Ahead::of(bytes)] {
                    fold::blocks_by_four::<P, Model>(Model, init, source, stride, length, &mut states, ahead);
                    for (index, state) in states.iter().enumerate() {
                        let wanted = naive::checksum(guard, &source[index * stride..][..length]);
                        assert_eq!(checksum.finish(*state), wanted, "{guard:?} {length} {index} of {count}");
                    }
                }
                let mut sums = vec![0; count];
                for by_four in [false, true] {
                    again.fill(0);
                    sums.fill(0);
                    let (of, ahead) = (&mut sums[..], Ahead::of(bytes));
                    let routine =
                        if by_four { twin::blocks_by_four::<P, Model> } else { twin::blocks::<P, Model> };
                    routine(Model, init, source, stride, length, &mut again, of, ahead);
                    assert_eq!(again, states, "{guard:?} {length} {count} summed");
                    for (sum, block) in sums.iter().zip(source.chunks(stride)) {
                        let wanted = scalar::Crc32::update(0, &block[..length]);
                        assert_eq!(u64::from(*sum), wanted, "{guard:?} {length} {count}");
                    }
                }
                let mut copied = vec![0xEE; count * dst_stride];
                fold::copy_blocks_by_four::<P, Model>(
                    Model,
                    init,
                    source,
                    stride,
                    &mut copied,
                    dst_stride,
                    length,
                    &mut again,
                );
                assert_eq!(again, states, "{guard:?} {length} {count} copied");
                for (to, from) in copied.chunks(dst_stride).zip(source.chunks(stride)) {
                    assert_eq!(to[..length], from[..length], "{guard:?} {length} {count}");
                    assert_eq!(to[length..], [0xEE; 3], "{guard:?} {length} {count}");
                }
            }
        }
    }

    let bytes = noise(4700);
    check::<T10Dif>(Guard::Crc16, &bytes);
    check::<Castagnoli>(Guard::Crc32c, &bytes);
    check::<Nvme>(Guard::Crc64, &bytes);
}

#[test]
fn public_functions_continue_from_a_finished_value() {
    let bytes = noise(1000);
    let (head, tail) = bytes.split_at(333);
    assert_eq!(crc16(crc16(0, head), tail), crc16(0, &bytes));
    assert_eq!(crc32c(crc32c(0, head), tail), crc32c(0, &bytes));
    assert_eq!(crc64(crc64(0, head), tail), crc64(0, &bytes));
    let kernel = Kernel::active();
    assert_eq!(kernel.crc32(kernel.crc32(0, head), tail), kernel.crc32(0, &bytes));
    assert_eq!(u64::from(ip_checksum(&bytes)), naive::checksum(Guard::Ip, &bytes));
}

#[test]
fn the_crc_of_packets_agrees_with_the_oracle_on_every_length_and_from_every_state() {
    let bytes = Aligned::noise(LENGTHS + 64);
    for alignment in [0, 1, 12, 63] {
        let piece = &bytes.get()[alignment..][..LENGTHS];
        let expected = naive::ethernet_prefixes(piece);
        for kernel in Kernel::available() {
            for (length, expected) in expected.iter().enumerate() {
                assert_eq!(kernel.crc32(0, &piece[..length]), *expected, "{kernel:?} {alignment} {length}");
                let (head, tail) = piece[..length].split_at(length.min(28));
                assert_eq!(kernel.crc32(kernel.crc32(0, head), tail), *expected, "{kernel:?} {length}");
            }
        }
    }
}

#[test]
fn an_unknown_kernel_is_named_in_the_error() {
    let error = Kernel::named("magic").unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"unknown checksum kernel "magic", there are avx512, avx2, pclmulqdq, portable"#
    );
    assert_eq!(Kernel::named("portable").unwrap().name(), "portable");
}

proptest! {
    #[test]
    fn any_split_of_a_message_gives_the_same_value(
        bytes in proptest::collection::vec(any::<u8>(), 0..3000),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        for guard in GUARDS {
            let expected = naive::checksum(guard, &bytes);
            for kernel in Kernel::available() {
                let checksum = kernel.checksum(guard);
                let mut state = checksum.init;
                let mut from = 0;
                for cut in cuts.iter().copied().chain([bytes.len()]) {
                    let piece = &bytes[from..cut];
                    let mut copied = vec![0; piece.len()];
                    state = checksum.copy(state, piece, &mut copied);
                    prop_assert_eq!(&copied, piece);
                    from = cut;
                }
                prop_assert_eq!(checksum.finish(state), expected, "{:?} {:?}", kernel, guard);
            }
        }
    }

    #[test]
    fn strided_blocks_are_checksummed_and_copied_one_by_one(
        count in 1_usize..9,
        length in 0_usize..700,
        gap in 0_usize..20,
        dst_gap in 0_usize..20,
    ) {
        let (stride, dst_stride) = (length + gap, length + dst_gap);
        let bytes = noise(count * stride);
        for guard in GUARDS {
            for kernel in Kernel::available() {
                let checksum = kernel.checksum(guard);
                let mut states = vec![0; count];
                let mut copied = vec![0xEE; count * dst_stride];
                checksum.copy_blocks(Stores::Cached, checksum.init, &bytes, stride, &mut copied, dst_stride, length, &mut states);
                let mut again = vec![0; count];
                for ahead in [Ahead::NONE, Ahead::of(&bytes[..bytes.len() / 2])] {
                    checksum.blocks(checksum.init, &bytes, stride, length, &mut again, ahead);
                    prop_assert_eq!(&states, &again);
                }
                for index in 0..count {
                    let block = &bytes[index * stride..][..length];
                    prop_assert_eq!(checksum.finish(states[index]), naive::checksum(guard, block));
                    prop_assert_eq!(&copied[index * dst_stride..][..length], block);
                    prop_assert!(copied[index * dst_stride + length..(index + 1) * dst_stride].iter().all(|b| *b == 0xEE));
                }
            }
        }
    }
}
