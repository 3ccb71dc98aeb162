//! The guard checksums as functions of a seed and bytes, and the choice of the code that computes them.
//!
//! Knows widths and values, never CPUs: what runs where is in `dispatch.rs`, the algorithms in the files beside it.
//! (Parameters: NVM Command Set, "16b/32b/64b Guard Protection Information"; SBC-4, "Protection information CRC".)

mod ahead;
mod dispatch;
#[cfg(target_arch = "x86_64")]
mod fold;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod message;
#[cfg(target_arch = "x86_64")]
mod params;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod twin;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use crate::format::Guard;

pub use ahead::Ahead;
pub use dispatch::{ENV, Kernel, KernelError};

/// Routine over one message, which fetches what is read next: `(state, bytes, ahead)`. Unsafe as [`Blocks`].
type Update = unsafe fn(u64, &[u8], Ahead) -> u64;
/// Routine over many blocks, which fetches what is read next: `(init, src, stride, length, states, ahead)`. Unsafe to call
/// where the CPU lacks the features that it is compiled for.
type Blocks = unsafe fn(u64, &[u8], usize, usize, &mut [u64], Ahead);
/// Routine over many blocks that makes the CRC-32 of each from state 0, too: `(init, src, stride, length, states, sums,
/// ahead)`. Unsafe as [`Blocks`].
type Summed = unsafe fn(u64, &[u8], usize, usize, &mut [u64], &mut [u32], Ahead);
/// Routine that copies on the way: `(init, src, stride, dst, dst_stride, length, states)`. Unsafe as [`Blocks`].
type CopyBlocks = unsafe fn(u64, &[u8], usize, &mut [u8], usize, usize, &mut [u64]);

/// Routine that only copies, past the caches, and fetches what is read next: `(src, dst, ahead)`. Unsafe as [`Blocks`].
type Stream = unsafe fn(&[u8], &mut [u8], Ahead);

/// How a copy stores: see [`Checksum::copy_blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Through the caches.
    Cached,
    /// Past them, for what would only push out what is in them.
    Streamed,
}

impl Stores {
    /// What is best for a copy of this many bytes.
    pub(crate) fn of(bytes: usize) -> Self {
        if bytes < dispatch::streaming_threshold() { Self::Cached } else { Self::Streamed }
    }

    /// To be held while copying, and dropped before anybody is told of the copy.
    pub(crate) fn fence(self) -> dispatch::Fence {
        dispatch::Fence(self)
    }
}

/// A checksum as one kernel computes it. States are raw (before the final complement), right-aligned.
#[derive(Debug)]
pub(crate) struct Checksum {
    update: Update,
    blocks: Blocks,
    summed: Summed,
    copy_blocks: CopyBlocks,
    /// As `copy_blocks`, past the caches.
    stream_blocks: CopyBlocks,
    /// State before the first byte.
    pub(crate) init: u64,
    xorout: u64,
    mask: u64,
}

impl Checksum {
    /// Returns the state after `bytes`.
    pub(crate) fn update(&self, state: u64, bytes: &[u8]) -> u64 {
        self.update_ahead(state, bytes, Ahead::NONE)
    }

    /// Copies `src` to `dst`, which has its length, and returns the state after it.
    pub(crate) fn copy(&self, state: u64, src: &[u8], dst: &mut [u8]) -> u64 {
        let mut states = [0];
        let length = src.len();
        self.copy_blocks(Stores::Cached, state, src, length, dst, length, length, &mut states);
        states[0]
    }

    /// Returns the state after `count` bytes of value `byte`.
    pub(crate) fn update_fill(&self, mut state: u64, byte: u8, mut count: usize) -> u64 {
        let bytes = [byte; 1024];
        while count > 0 {
            let step = count.min(bytes.len());
            state = self.update(state, &bytes[..step]);
            count -= step;
        }
        state
    }

    /// Returns the checksum of a state.
    pub(crate) fn finish(&self, state: u64) -> u64 {
        (state ^ self.xorout) & self.mask
    }

    /// Returns the state of a checksum.
    fn resume(&self, value: u64) -> u64 {
        value ^ self.xorout
    }
}

/// CRC-16/T10-DIF of `bytes`, continuing from `seed`: 0 at the start, or the value for the bytes before.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    Kernel::active().crc16(seed, bytes)
}

/// CRC-32C of `bytes`, continuing from `seed`: 0 at the start, or the value for the bytes before.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    Kernel::active().crc32c(seed, bytes)
}

/// CRC-64/NVME of `bytes`, continuing from `seed`: 0 at the start, or the value for the bytes before.
pub fn crc64(seed: u64, bytes: &[u8]) -> u64 {
    Kernel::active().crc64(seed, bytes)
}

/// Internet checksum of `bytes`; an odd last byte counts as if a zero followed it.
pub fn ip_checksum(bytes: &[u8]) -> u16 {
    let checksum = Kernel::active().checksum(Guard::Ip);
    low_16(checksum.finish(checksum.update(checksum.init, bytes)))
}

impl Kernel {
    /// [`crc16`](fn@crc16) by this kernel.
    pub fn crc16(self, seed: u16, bytes: &[u8]) -> u16 {
        low_16(self.run(Guard::Crc16, u64::from(seed), bytes))
    }

    /// [`crc32c`](fn@crc32c) by this kernel.
    #[expect(clippy::cast_possible_truncation, reason = "the mask of this checksum leaves 32 bits")]
    pub fn crc32c(self, seed: u32, bytes: &[u8]) -> u32 {
        self.run(Guard::Crc32c, u64::from(seed), bytes) as u32
    }

    /// [`crc64`](fn@crc64) by this kernel.
    pub fn crc64(self, seed: u64, bytes: &[u8]) -> u64 {
        self.run(Guard::Crc64, seed, bytes)
    }

    /// CRC-32 of IEEE 802.3 of `bytes`, continuing from `seed`: 0 at the start, or the value for the bytes before. It guards
    /// no block, but the packets that carry them: it is the ICRC of InfiniBand and RoCE.
    #[inline]
    pub fn crc32(self, seed: u32, bytes: &[u8]) -> u32 {
        self.crc32_ahead(seed, bytes, Ahead::NONE)
    }

    /// As [`Kernel::crc32`], and fetches `ahead` meanwhile.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the mask of this checksum leaves 32 bits")]
    pub fn crc32_ahead(self, seed: u32, bytes: &[u8], ahead: Ahead) -> u32 {
        let checksum = self.ethernet();
        checksum.finish(checksum.update_ahead(checksum.resume(u64::from(seed)), bytes, ahead)) as u32
    }

    fn run(self, guard: Guard, seed: u64, bytes: &[u8]) -> u64 {
        let checksum = self.checksum(guard);
        checksum.finish(checksum.update(checksum.resume(seed), bytes))
    }
}

/// The checksum that reads nothing, for transfers whose guard is not looked at.
pub(crate) fn null() -> &'static Checksum {
    dispatch::null()
}

#[expect(clippy::cast_possible_truncation, reason = "the masks of these checksums leave 16 bits")]
fn low_16(value: u64) -> u16 {
    value as u16
}

#[cfg(all(test, target_arch = "x86_64"))]
mod model;
#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;
