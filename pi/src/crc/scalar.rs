//! Portable checksums: table-driven CRCs by the `crc` crate, the Internet checksum, and "none" for transfers whose
//! guard is not looked at.
//!
//! Always built: the fallback of every machine, the tail of the vector kernels, and one half of the oracle that
//! they are tested against. States are raw: without the final complement, right-aligned in a `u64`.

use super::ahead::Ahead;
use crc::{Algorithm, CRC_16_T10_DIF, CRC_32_ISCSI, CRC_32_ISO_HDLC, CRC_64_NVME, Crc, Table};

/// Tables for sixteen bytes a step.
type Slices = Table<16>;

const RAW_32: Algorithm<u32> = Algorithm { xorout: 0, ..CRC_32_ISCSI };
const RAW_ETHERNET: Algorithm<u32> = Algorithm { xorout: 0, ..CRC_32_ISO_HDLC };
const RAW_64: Algorithm<u64> = Algorithm { xorout: 0, ..CRC_64_NVME };

static CRC16: Crc<u16, Slices> = Crc::<u16, Slices>::new(&CRC_16_T10_DIF);
static CRC32C: Crc<u32, Slices> = Crc::<u32, Slices>::new(&RAW_32);
static CRC32: Crc<u32, Slices> = Crc::<u32, Slices>::new(&RAW_ETHERNET);
static CRC64: Crc<u64, Slices> = Crc::<u64, Slices>::new(&RAW_64);

/// A checksum that runs over bytes from any state.
pub(super) trait Scalar {
    /// Returns the state after `bytes`.
    fn update(state: u64, bytes: &[u8]) -> u64;
}

/// CRC-16/T10-DIF.
#[derive(Debug)]
pub(super) struct Crc16;

impl Scalar for Crc16 {
    #[expect(clippy::cast_possible_truncation, reason = "states of this checksum have 16 bits")]
    fn update(state: u64, bytes: &[u8]) -> u64 {
        let mut digest = CRC16.digest_with_initial(state as u16);
        digest.update(bytes);
        u64::from(digest.finalize())
    }
}

/// CRC-32C.
#[derive(Debug)]
pub(super) struct Crc32c;

impl Scalar for Crc32c {
    #[expect(clippy::cast_possible_truncation, reason = "states of this checksum have 32 bits")]
    fn update(state: u64, bytes: &[u8]) -> u64 {
        // The crate reflects an initial value that it is given.
        let mut digest = CRC32C.digest_with_initial((state as u32).reverse_bits());
        digest.update(bytes);
        u64::from(digest.finalize())
    }
}

/// CRC-32 of IEEE 802.3.
#[derive(Debug)]
pub(super) struct Crc32;

impl Scalar for Crc32 {
    #[expect(clippy::cast_possible_truncation, reason = "states of this checksum have 32 bits")]
    fn update(state: u64, bytes: &[u8]) -> u64 {
        let mut digest = CRC32.digest_with_initial((state as u32).reverse_bits());
        digest.update(bytes);
        u64::from(digest.finalize())
    }
}

/// CRC-64/NVME.
#[derive(Debug)]
pub(super) struct Crc64;

impl Scalar for Crc64 {
    fn update(state: u64, bytes: &[u8]) -> u64 {
        let mut digest = CRC64.digest_with_initial(state.reverse_bits());
        digest.update(bytes);
        digest.finalize()
    }
}

/// The Internet checksum. State: the sum in bits 15:0, and bit 16 set after an odd number of bytes.
#[derive(Debug)]
pub(super) struct Ip;

/// Set in an [`Ip`] state whose last word lacks its right byte.
const ODD: u64 = 1 << 16;

impl Scalar for Ip {
    fn update(state: u64, bytes: &[u8]) -> u64 {
        let mut sum = state & 0xFFFF;
        let mut rest = bytes;
        let mut odd = state & ODD != 0;
        if odd && let Some((first, tail)) = rest.split_first() {
            sum += u64::from(*first);
            rest = tail;
            odd = false;
        }
        // A ones'-complement sum does not depend on the byte order it is taken in, up to one swap of the result;
        // and 32-bit words fold into 16-bit ones at the end.
        let words = rest.chunks_exact(4);
        let tail = words.remainder();
        let native: u64 =
            words.map(|word| u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))).sum();
        sum += u64::from(u16::from_be_bytes(fold(native).to_ne_bytes()));
        let pairs = tail.chunks_exact(2);
        if let [last] = pairs.remainder() {
            sum += u64::from(*last) << 8;
            odd = true;
        }
        sum += pairs.map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u64>();
        u64::from(fold(sum)) | if odd { ODD } else { 0 }
    }
}

/// Adds the carries back until 16 bits are left.
#[expect(clippy::cast_possible_truncation, reason = "the loop leaves 16 bits")]
fn fold(mut sum: u64) -> u16 {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

/// No checksum: reads nothing.
#[derive(Debug)]
pub(super) struct Null;

impl Scalar for Null {
    fn update(state: u64, _: &[u8]) -> u64 {
        state
    }
}

/// Copies; nothing portable goes past the caches.
pub(super) fn stream(src: &[u8], dst: &mut [u8], _: Ahead) {
    dst.copy_from_slice(src);
}

/// The state after `bytes`.
pub(super) fn update<S: Scalar>(state: u64, bytes: &[u8], _: Ahead) -> u64 {
    S::update(state, bytes)
}

/// States of the blocks at multiples of `stride` in `src`, `length` bytes each, from `init`; as many as `states`.
pub(super) fn blocks<S: Scalar>(
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    states: &mut [u64],
    _: Ahead,
) {
    for (index, state) in states.iter_mut().enumerate() {
        *state = S::update(init, &src[index * stride..][..length]);
    }
}

/// As [`blocks`], and the CRC-32 of each block, from state 0.
pub(super) fn blocks_summed<S: Scalar>(
    init: u64,
    src: &[u8],
    stride: usize,
    length: usize,
    states: &mut [u64],
    sums: &mut [u32],
    ahead: Ahead,
) {
    blocks::<S>(init, src, stride, length, states, ahead);
    for (index, sum) in sums.iter_mut().enumerate().take(states.len()) {
        #[expect(clippy::cast_possible_truncation, reason = "states of this checksum have 32 bits")]
        let state = Crc32::update(0, &src[index * stride..][..length]) as u32;
        *sum = state;
    }
}

/// As [`blocks`], and copies each block to the same index in `dst`, whose blocks are `dst_stride` apart.
pub(super) fn copy_blocks<S: Scalar>(
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
        dst[index * dst_stride..][..length].copy_from_slice(from);
        *state = S::update(init, from);
    }
}
