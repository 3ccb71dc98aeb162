//! Which code computes the checksums on this machine: detected once, kept as a pointer to a table of functions.
//!
//! The only caller of kernels that need CPU features. A [`Kernel`] can be had only for code that this CPU runs, so
//! holding one is the proof that calling it is sound.
#![allow(unsafe_code, reason = "calls functions that are compiled for CPU features found at run time")]

use std::env;
use std::fmt;
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use super::params::{Castagnoli, Ethernet, Nvme, T10Dif};
#[cfg(target_arch = "x86_64")]
use super::x86_64;
use super::{Ahead, Blocks, Checksum, CopyBlocks, Stores, Stream, Summed, Update, scalar};
use crate::format::Guard;

/// Environment variable that names the kernel to use instead of the fastest one: `portable`, `pclmulqdq`, `avx2` or
/// `avx512`.
pub const ENV: &str = "T10PI_KERNEL";

/// An implementation of the checksums that this CPU can run.
#[derive(Clone, Copy)]
pub struct Kernel(&'static Table);

impl Kernel {
    /// The kernel of this process: what [`ENV`] names when that is a kernel this CPU runs, otherwise the fastest.
    ///
    /// Decided at the first call. A program that wants to refuse a bad value calls [`Kernel::from_env`] first.
    pub fn active() -> Self {
        static ACTIVE: OnceLock<Kernel> = OnceLock::new();
        *ACTIVE.get_or_init(|| Self::from_env().unwrap_or_else(|_| Self::fastest()))
    }

    /// The kernel that [`ENV`] names; the fastest when it is not set or empty.
    ///
    /// # Errors
    /// As [`Kernel::named`].
    pub fn from_env() -> Result<Self, KernelError> {
        match env::var_os(ENV) {
            Some(name) if !name.is_empty() => Self::named(&name.to_string_lossy()),
            _ => Ok(Self::fastest()),
        }
    }

    /// The kernel called `name`.
    ///
    /// # Errors
    /// [`KernelError::Unknown`] when there is none of that name, [`KernelError::Unsupported`] when this CPU (or
    /// architecture) cannot run it.
    pub fn named(name: &str) -> Result<Self, KernelError> {
        match Self::available().find(|kernel| kernel.name() == name) {
            Some(kernel) => Ok(kernel),
            None if NAMES.contains(&name) => Err(KernelError::Unsupported { name: name.to_owned() }),
            None => Err(KernelError::Unknown { name: name.to_owned() }),
        }
    }

    /// The kernels that this CPU runs, fastest first; the portable one is always among them. Each was seen to agree with
    /// the portable one in this process: one that doesn't is not used, whatever the CPU says of its instructions.
    pub fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let tables = {
            static SOUND: OnceLock<[Option<&'static Table>; 4]> = OnceLock::new();
            *SOUND.get_or_init(|| {
                [
                    (x86_64::avx512::is_supported() && agrees(&AVX512)).then_some(&AVX512),
                    (x86_64::avx2::is_supported() && agrees(&AVX2)).then_some(&AVX2),
                    (x86_64::pclmul::is_supported() && agrees(&PCLMULQDQ)).then_some(&PCLMULQDQ),
                    Some(&PORTABLE),
                ]
            })
        };
        #[cfg(not(target_arch = "x86_64"))]
        let tables = [Some(&PORTABLE)];
        tables.into_iter().flatten().map(Self)
    }

    /// The name that [`Kernel::named`] takes.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Whether short blocks should go past the caches in groups.
    pub(crate) fn stages(self) -> bool {
        self.0.stages
    }

    /// Copies `from` to `to`, which has its length, past the caches, and fetches `ahead` meanwhile; a [`Stores::fence`]
    /// lives around it.
    pub(crate) fn stream(self, from: &[u8], to: &mut [u8], ahead: Ahead) {
        // SAFETY: as in `Checksum::blocks`.
        unsafe { (self.0.stream)(from, to, ahead) }
    }

    fn fastest() -> Self {
        Self::available().next().unwrap_or(Self(&PORTABLE))
    }

    /// The checksum of `guard`.
    pub(crate) fn checksum(self, guard: Guard) -> &'static Checksum {
        match guard {
            Guard::Crc16 => &self.0.crc16,
            Guard::Crc32c => &self.0.crc32c,
            Guard::Crc64 => &self.0.crc64,
            Guard::Ip => &IP,
        }
    }

    /// The CRC-32 of IEEE 802.3.
    pub(super) fn ethernet(self) -> &'static Checksum {
        &self.0.crc32
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name())
    }
}

/// Why a kernel cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// No kernel has this name.
    #[error("unknown checksum kernel {name:?}, there are {known}", known = NAMES.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The CPU lacks the instructions, or they did not give the right results.
    #[error("this CPU cannot run the checksum kernel {name:?}, or gets wrong results from it; it runs {runs}", runs = runs())]
    Unsupported {
        /// What was asked for.
        name: String,
    },
}

/// The names of the kernels that this CPU runs.
fn runs() -> String {
    Kernel::available().map(Kernel::name).collect::<Vec<_>>().join(", ")
}

impl Checksum {
    /// Returns the state after `bytes`, and fetches `ahead` meanwhile.
    #[inline]
    pub(super) fn update_ahead(&self, state: u64, bytes: &[u8], ahead: Ahead) -> u64 {
        // SAFETY: as in `blocks`.
        unsafe { (self.update)(state, bytes, ahead) }
    }

    /// Writes to `states` the state after each block: block `i` is the `length` bytes at `i * stride` of `src`, each
    /// starts from `init`. Fetches `ahead` meanwhile.
    ///
    /// # Panics
    /// When `src` is too short.
    pub(crate) fn blocks(
        &self,
        init: u64,
        src: &[u8],
        stride: usize,
        length: usize,
        states: &mut [u64],
        ahead: Ahead,
    ) {
        // SAFETY: the function needs the CPU features of its table, and a table is reached only through a `Kernel`,
        // which exists only for features that were detected; the other tables hold safe functions.
        unsafe { (self.blocks)(init, src, stride, length, states, ahead) }
    }

    /// As [`Checksum::blocks`], and writes to `sums` the CRC-32 of IEEE 802.3 of each block, from state 0 and without the
    /// final complement, in the same pass where the kernel can.
    ///
    /// # Panics
    /// When `src` is too short.
    #[expect(clippy::too_many_arguments, reason = "a strided area and what to make of it")]
    pub(crate) fn blocks_summed(
        &self,
        init: u64,
        src: &[u8],
        stride: usize,
        length: usize,
        states: &mut [u64],
        sums: &mut [u32],
        ahead: Ahead,
    ) {
        // SAFETY: as in `blocks`.
        unsafe { (self.summed)(init, src, stride, length, states, sums, ahead) }
    }

    /// As [`Checksum::blocks`], and copies block `i` to `i * dst_stride` of `dst` in the same pass. For stores that are
    /// streamed, a [`Stores::fence`] lives around all calls.
    ///
    /// # Panics
    /// When `src` or `dst` is too short.
    #[expect(clippy::too_many_arguments, reason = "two strided areas and what to do with them")]
    pub(crate) fn copy_blocks(
        &self,
        stores: Stores,
        init: u64,
        src: &[u8],
        stride: usize,
        dst: &mut [u8],
        dst_stride: usize,
        length: usize,
        states: &mut [u64],
    ) {
        let routine = match stores {
            Stores::Cached => self.copy_blocks,
            Stores::Streamed => self.stream_blocks,
        };
        // SAFETY: as in `blocks`.
        unsafe { routine(init, src, stride, dst, dst_stride, length, states) }
    }
}

/// Orders streamed stores before all that follows its end.
#[derive(Debug)]
#[must_use = "stores are ordered when it is dropped"]
pub(crate) struct Fence(pub(super) Stores);

impl Drop for Fence {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        if self.0 == Stores::Streamed {
            // SAFETY: SSE is part of x86-64.
            unsafe { std::arch::x86_64::_mm_sfence() };
        }
    }
}

/// Whether a kernel whose instructions this CPU has gives the results of the portable one, on lengths that its loops tell
/// apart, one block and many, in place, copying, and past the caches.
fn agrees(table: &'static Table) -> bool {
    const LENGTHS: [usize; 16] = [1, 7, 15, 16, 31, 63, 64, 127, 128, 255, 256, 257, 512, 520, 1031, 4104];
    const MOST: usize = 16;
    let bytes: Vec<u8> = (0..MOST * 600).map(noise).collect();
    let checksums = |table: &'static Table| [&table.crc16, &table.crc32c, &table.crc64, &table.crc32];
    let copies = |from: &[u8]| {
        let mut to = vec![0; from.len()];
        let fence = Stores::Streamed.fence();
        Kernel(table).stream(from, &mut to, Ahead::NONE);
        drop(fence);
        to == from
    };
    checksums(table).into_iter().zip(checksums(&PORTABLE)).all(|(own, portable)| {
        LENGTHS.into_iter().all(|length| {
            let stride = length + 3;
            [1, 3, MOST].into_iter().filter(|count| (count - 1) * stride + length < bytes.len()).all(
                |count| {
                    // An odd address: none is special.
                    let from = &bytes[1..=(count - 1) * stride + length];
                    let mut wanted = [0; MOST];
                    portable.blocks(own.init, from, stride, length, &mut wanted[..count], Ahead::NONE);
                    let same = |got: &[u64; MOST]| (0..count).all(|i| (got[i] ^ wanted[i]) & own.mask == 0);
                    let mut got = [0; MOST];
                    own.blocks(own.init, from, stride, length, &mut got[..count], Ahead::of(&bytes));
                    let alone = own.update_ahead(own.init, &from[..length], Ahead::of(&bytes));
                    let (mut twin, mut sums) = ([0; MOST], [0; MOST]);
                    let (states, of) = (&mut twin[..count], &mut sums[..count]);
                    own.blocks_summed(own.init, from, stride, length, states, of, Ahead::of(&bytes));
                    let sum = |i: usize| PORTABLE.crc32.update(0, &from[i * stride..][..length]);
                    same(&got)
                        && same(&twin)
                        && (0..count).all(|i| u64::from(sums[i]) == sum(i))
                        && (alone ^ wanted[0]) & own.mask == 0
                        && [Stores::Cached, Stores::Streamed].into_iter().all(|stores| {
                            let (mut got, mut to) = ([0; MOST], vec![0; from.len()]);
                            let fence = stores.fence();
                            own.copy_blocks(
                                stores,
                                own.init,
                                from,
                                stride,
                                &mut to,
                                stride,
                                length,
                                &mut got[..count],
                            );
                            drop(fence);
                            let block = |i: usize| i * stride..i * stride + length;
                            same(&got) && (0..count).all(|i| to[block(i)] == from[block(i)])
                        })
                },
            )
        })
    }) && LENGTHS.into_iter().all(|length| copies(&bytes[1..=length]))
}

/// A byte that follows from its place, without a pattern that a mistake could keep.
fn noise(index: usize) -> u8 {
    let mixed = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 29).to_le_bytes()[5]
}

/// The checksums of one kernel.
#[derive(Debug)]
struct Table {
    name: &'static str,
    /// Whether it gains by putting short blocks together for the way past the caches: what it costs must be less than
    /// what it saves, which it isn't with narrower registers.
    stages: bool,
    stream: Stream,
    crc16: Checksum,
    crc32c: Checksum,
    crc64: Checksum,
    /// Not of protection information: of the packets that carry it.
    crc32: Checksum,
}

macro_rules! scalar_routines {
    ($checksum:ty) => {
        (
            scalar::update::<$checksum> as Update,
            scalar::blocks::<$checksum> as Blocks,
            scalar::blocks_summed::<$checksum> as Summed,
            scalar::copy_blocks::<$checksum> as CopyBlocks,
            scalar::copy_blocks::<$checksum> as CopyBlocks,
        )
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! routines {
    ($isa:ident, $polynomial:ty) => {
        (
            x86_64::$isa::update::<$polynomial> as Update,
            x86_64::$isa::blocks::<$polynomial> as Blocks,
            x86_64::$isa::blocks_summed::<$polynomial> as Summed,
            x86_64::$isa::copy_blocks::<$polynomial> as CopyBlocks,
            x86_64::$isa::stream_blocks::<$polynomial> as CopyBlocks,
        )
    };
}

/// Every kernel's name, fastest first, whatever this CPU runs.
const NAMES: [&str; 4] = ["avx512", "avx2", "pclmulqdq", "portable"];

static PORTABLE: Table = Table {
    name: "portable",
    stages: false,
    stream: scalar::stream,
    crc16: crc16(scalar_routines!(scalar::Crc16)),
    crc32c: crc32(scalar_routines!(scalar::Crc32c)),
    crc64: crc64(scalar_routines!(scalar::Crc64)),
    crc32: crc32(scalar_routines!(scalar::Crc32)),
};

#[cfg(target_arch = "x86_64")]
static PCLMULQDQ: Table = Table {
    name: "pclmulqdq",
    stages: false,
    stream: x86_64::pclmul::stream,
    crc16: crc16(routines!(pclmul, T10Dif)),
    crc32c: crc32(routines!(pclmul, Castagnoli)),
    crc64: crc64(routines!(pclmul, Nvme)),
    crc32: crc32(routines!(pclmul, Ethernet)),
};

#[cfg(target_arch = "x86_64")]
static AVX2: Table = Table {
    name: "avx2",
    stages: false,
    stream: x86_64::avx2::stream,
    crc16: crc16(routines!(avx2, T10Dif)),
    crc32c: crc32(routines!(avx2, Castagnoli)),
    crc64: crc64(routines!(avx2, Nvme)),
    crc32: crc32(routines!(avx2, Ethernet)),
};

#[cfg(target_arch = "x86_64")]
static AVX512: Table = Table {
    name: "avx512",
    stages: true,
    stream: x86_64::avx512::stream,
    crc16: crc16(routines!(avx512, T10Dif)),
    crc32c: crc32(routines!(avx512, Castagnoli)),
    crc64: crc64(routines!(avx512, Nvme)),
    crc32: crc32(routines!(avx512, Ethernet)),
};

static IP: Checksum = checksum(scalar_routines!(scalar::Ip), 0, 0xFFFF, 0xFFFF);
static NULL: Checksum = checksum(scalar_routines!(scalar::Null), 0, 0, 0);

pub(super) fn null() -> &'static Checksum {
    &NULL
}

/// The routines of one checksum: over a message, over blocks, with their CRC-32s, copying, and copying past the caches.
type Routines = (Update, Blocks, Summed, CopyBlocks, CopyBlocks);

const fn crc16(routines: Routines) -> Checksum {
    checksum(routines, 0, 0, 0xFFFF)
}

/// CRC-32C and the CRC-32 of IEEE 802.3 differ in the polynomial alone.
const fn crc32(routines: Routines) -> Checksum {
    checksum(routines, 0xFFFF_FFFF, 0xFFFF_FFFF, 0xFFFF_FFFF)
}

const fn crc64(routines: Routines) -> Checksum {
    checksum(routines, u64::MAX, u64::MAX, u64::MAX)
}

const fn checksum(routines: Routines, init: u64, xorout: u64, mask: u64) -> Checksum {
    let (update, blocks, summed, copy_blocks, stream_blocks) = routines;
    Checksum { update, blocks, summed, copy_blocks, stream_blocks, init, xorout, mask }
}

/// From how many bytes on a copy is streamed: three quarters of this thread's share of the last-level cache, which the
/// C library does as well.
pub(super) fn streaming_threshold() -> usize {
    static THRESHOLD: OnceLock<usize> = OnceLock::new();
    *THRESHOLD.get_or_init(|| last_level_share().unwrap_or(4 << 20).max(1 << 20) / 4 * 3)
}

/// Bytes of the last-level cache for each thread that shares it, as the CPU tells; nothing where it doesn't.
#[cfg(target_arch = "x86_64")]
fn last_level_share() -> Option<usize> {
    use std::arch::x86_64::__cpuid_count;
    // Intel's and AMD's leaf have the same layout.
    [0x4, 0x8000_001D].into_iter().find_map(|leaf| {
        if __cpuid_count(leaf & 0x8000_0000, 0).eax < leaf {
            return None;
        }
        let caches = (0..8).map(|index| __cpuid_count(leaf, index)).take_while(|cache| cache.eax & 0x1F != 0);
        let last = caches.max_by_key(|cache| cache.eax >> 5 & 7)?;
        let sharing = (last.eax >> 14 & 0xFFF) + 1;
        let (ways, partitions, line) =
            ((last.ebx >> 22) + 1, (last.ebx >> 12 & 0x3FF) + 1, (last.ebx & 0xFFF) + 1);
        let sets = last.ecx as usize + 1;
        Some((ways * partitions * line) as usize * sets / sharing as usize)
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn last_level_share() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn table(crc16_routines: Routines, crc64_routines: Routines) -> Table {
        Table {
            name: "of a test",
            stages: false,
            stream: scalar::stream,
            crc16: crc16(crc16_routines),
            crc32c: crc32(scalar_routines!(scalar::Crc32c)),
            crc64: crc64(crc64_routines),
            crc32: crc32(scalar_routines!(scalar::Crc32)),
        }
    }

    #[test]
    fn a_kernel_with_wrong_results_is_seen() {
        fn copies_nothing(
            init: u64,
            src: &[u8],
            stride: usize,
            _dst: &mut [u8],
            _dst_stride: usize,
            length: usize,
            states: &mut [u64],
        ) {
            scalar::blocks::<scalar::Crc64>(init, src, stride, length, states, Ahead::NONE);
        }
        const GOOD: [Routines; 2] = [scalar_routines!(scalar::Crc16), scalar_routines!(scalar::Crc64)];
        static RIGHT: Table = table(GOOD[0], GOOD[1]);
        static OTHER_CHECKSUM: Table = table(scalar_routines!(scalar::Crc32c), GOOD[1]);
        static NO_COPY: Table = table(GOOD[0], (GOOD[1].0, GOOD[1].1, GOOD[1].2, copies_nothing, GOOD[1].4));
        fn sums_nothing(
            init: u64,
            src: &[u8],
            stride: usize,
            length: usize,
            states: &mut [u64],
            _sums: &mut [u32],
            _ahead: Ahead,
        ) {
            scalar::blocks::<scalar::Crc64>(init, src, stride, length, states, Ahead::NONE);
        }
        static NO_SUM: Table = table(GOOD[0], (GOOD[1].0, GOOD[1].1, sums_nothing, GOOD[1].3, GOOD[1].4));
        assert!(agrees(&RIGHT));
        assert!(!agrees(&OTHER_CHECKSUM) && !agrees(&NO_COPY) && !agrees(&NO_SUM));
    }

    #[test]
    fn the_kernels_that_this_cpu_has_agree() {
        assert_eq!(Kernel::available().last().map(Kernel::name), Some("portable"));
        #[cfg(target_arch = "x86_64")]
        assert_eq!(
            Kernel::available().count(),
            1 + [
                x86_64::avx512::is_supported(),
                x86_64::avx2::is_supported(),
                x86_64::pclmul::is_supported(),
            ]
            .into_iter()
            .filter(|supported| *supported)
            .count(),
            "a kernel was left out because its results are wrong"
        );
    }
}
