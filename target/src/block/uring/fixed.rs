//! Memory that is registered with a ring, so that the kernel need not look its pages up for each operation.
//!
//! Registered memory is resident and locked. So a region is registered in chunks, each when an operation first touches it:
//! a reactor with little to do holds little, and what it holds grows to what it has under way at the most. Where the
//! process may lock only so much (`ulimit -l`), half of that is left to the rings themselves; operations on memory that is
//! not registered go on as before, and cost a little more. Nothing is allocated after construction.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use io_uring::Submitter;
use nix::sys::resource::{Resource, getrlimit};
use rwctx::mem::Region;

use super::ring::address;

/// Bytes of a chunk: a huge page, and as much as a command moves at the most, so that no buffer lies in two.
const CHUNK: u64 = 2 << 20;

/// Bytes that this process has registered.
static REGISTERED: AtomicU64 = AtomicU64::new(0);

/// The registrations of one ring.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    /// Mapped as long as the ring may use them. Their chunks have the table's places in order.
    regions: Vec<Arc<Region>>,
    /// By place: whether the chunk is registered.
    chunks: Box<[bool]>,
    /// No more can be registered.
    is_full: bool,
    /// Bytes that all rings of this process may register.
    limit: u64,
    /// Bytes that this one has.
    bytes: u64,
}

impl Fixed {
    /// Makes places for the regions' chunks. The ring has none yet, or nothing in flight.
    pub(super) fn new(submitter: &Submitter<'_>, regions: &[Arc<Region>]) -> Self {
        let count: u64 = regions.iter().map(|region| chunks_of(region)).sum();
        let Ok(places) = u32::try_from(count) else { return Self::default() };
        if let Err(error) = submitter.register_buffers_sparse(places) {
            tracing::info!(
                %error,
                "I/O buffers are not registered with io_uring (Linux 5.19 can); file I/O costs a little more"
            );
            return Self::default();
        }
        Self {
            regions: regions.to_vec(),
            chunks: (0..places).map(|_| false).collect(),
            is_full: false,
            limit: limit(),
            bytes: 0,
        }
    }

    /// The registration that holds `length` bytes at `addr`, which is made where there is none yet.
    pub(super) fn index(&mut self, submitter: &Submitter<'_>, addr: u64, length: u64) -> Option<u16> {
        let mut first = 0;
        for region in &self.regions {
            let Some(offset) =
                addr.checked_sub(region.addr()).filter(|at| at + length <= region.len() as u64)
            else {
                first += chunks_of(region);
                continue;
            };
            let chunk = offset / CHUNK;
            if (offset + length).div_ceil(CHUNK) > chunk + 1 {
                return None;
            }
            let place = usize::try_from(first + chunk).ok()?;
            if !self.chunks[place] {
                let start = chunk * CHUNK;
                let bytes = CHUNK.min(region.len() as u64 - start);
                self.register(submitter, place, region.addr() + start, bytes)?;
            }
            return u16::try_from(place).ok();
        }
        None
    }

    fn register(&mut self, submitter: &Submitter<'_>, place: usize, addr: u64, bytes: u64) -> Option<()> {
        if self.is_full {
            return None;
        }
        let of_others = REGISTERED.fetch_add(bytes, Ordering::Relaxed);
        let registered = if of_others + bytes > self.limit {
            Err(io::Error::from_raw_os_error(libc::ENOMEM))
        } else {
            let base = std::ptr::with_exposed_provenance_mut(address(addr));
            let chunk = libc::iovec { iov_base: base, iov_len: address(bytes) };
            let place = u32::try_from(place).expect("counted with a u32");
            // SAFETY: the chunk is a part of a region that `regions` keeps mapped until the ring is gone, or has it no more.
            unsafe { submitter.register_buffers_update(place, &[chunk], None) }
        };
        match registered {
            Ok(()) => {
                self.chunks[place] = true;
                self.bytes += bytes;
                Some(())
            }
            Err(error) => {
                REGISTERED.fetch_sub(bytes, Ordering::Relaxed);
                self.is_full = true;
                tracing::info!(
                    %error,
                    registered = self.bytes,
                    "no more I/O buffers are registered with io_uring (ulimit -l is the limit); file I/O costs a little more"
                );
                None
            }
        }
    }
}

impl Drop for Fixed {
    fn drop(&mut self) {
        REGISTERED.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn chunks_of(region: &Region) -> u64 {
    (region.len() as u64).div_ceil(CHUNK)
}

/// Bytes that this process may register in all.
fn limit() -> u64 {
    /// `CAP_IPC_LOCK`: no limit applies.
    const IPC_LOCK: u64 = 1 << 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    if effective.is_some_and(|effective| effective & IPC_LOCK != 0) {
        return u64::MAX;
    }
    getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft / 2)
}

#[cfg(test)]
mod tests {
    use io_uring::IoUring;

    use super::*;

    fn fixed(bytes: &[u64]) -> (IoUring, Fixed) {
        let ring = IoUring::new(8).unwrap();
        let regions: Vec<_> =
            bytes.iter().map(|bytes| Arc::new(Region::new(address(*bytes)).unwrap())).collect();
        let mut fixed = Fixed::new(&ring.submitter(), &regions);
        fixed.limit = u64::MAX;
        (ring, fixed)
    }

    #[test]
    fn a_chunk_is_registered_when_it_is_first_used() {
        let (ring, mut fixed) = fixed(&[CHUNK / 2, 64 * CHUNK]);
        let (small, large) = (fixed.regions[0].addr(), fixed.regions[1].addr());
        assert_eq!(fixed.bytes, 0);
        assert_eq!(fixed.index(&ring.submitter(), large + 5 * CHUNK + 4096, 4096), Some(6));
        assert_eq!(fixed.bytes, CHUNK);
        assert_eq!(fixed.index(&ring.submitter(), large + 5 * CHUNK, CHUNK), Some(6));
        assert_eq!(fixed.bytes, CHUNK);
        assert_eq!(fixed.index(&ring.submitter(), small + CHUNK / 2 - 1, 1), Some(0));
        assert_eq!(fixed.bytes, CHUNK + CHUNK / 2);
    }

    #[test]
    fn memory_in_no_chunk_or_two_is_not_registered() {
        let (ring, mut fixed) = fixed(&[4 * CHUNK]);
        let base = fixed.regions[0].addr();
        for (addr, length) in
            [(base + CHUNK - 1, 2), (base, CHUNK + 1), (base - 1, 2), (base + 4 * CHUNK, 1), (0, 1)]
        {
            assert_eq!(fixed.index(&ring.submitter(), addr, length), None, "{addr:#x} {length}");
        }
        assert_eq!(fixed.bytes, 0);
    }

    #[test]
    fn what_the_limit_leaves_no_room_for_is_not_registered() {
        let (ring, mut fixed) = fixed(&[4 * CHUNK]);
        // Other tests of this process register, too.
        fixed.limit = 0;
        let base = fixed.regions[0].addr();
        assert_eq!(fixed.index(&ring.submitter(), base, 4096), None);
        fixed.limit = u64::MAX;
        assert_eq!(fixed.index(&ring.submitter(), base, 4096), None, "it was tried once");
        assert_eq!(fixed.bytes, 0);
    }
}
