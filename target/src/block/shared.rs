//! Copies between pieces of shared memory, and returning memory to the kernel.
//!
//! Owns the raw operations that memory volumes and buffers need on [`Region`]s: copy, copy with the tuples inverted,
//! fill, discard. Every one is a raw copy that forms no reference into a region, so that none of them can break
//! Rust's aliasing rules; that no two of them touch the same bytes at once is the business of the range lock or the
//! exclusive buffer that the caller holds. It also owns the few places where such proof of exclusive or shared use
//! turns into a Rust slice. Never decides which bytes.
#![allow(unsafe_code, reason = "copies between mappings that several threads and the kernel share")]

use std::ptr::NonNull;

use nix::sys::mman::{MmapAdvise, madvise};
use rwctx::mem::Region;

use super::locks::{Mode, RangeGuard};
use super::pool::Buf;
use super::volume::Volume;

/// A piece of a region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'r> {
    region: &'r Region,
    offset: usize,
    length: usize,
}

/// Bytes that are asked for at most, and bytes that the processor brings at a time.
#[cfg(target_arch = "x86_64")]
const PREFETCH: usize = 4096;
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

impl<'r> Piece<'r> {
    /// `length` bytes from `offset` of `region`.
    ///
    /// # Panics
    /// When they don't lie inside the region; callers check addresses before.
    pub(super) fn new(region: &'r Region, offset: usize, length: usize) -> Self {
        assert!(region.ptr(offset, length).is_some(), "a piece lies inside its region");
        Self { region, offset, length }
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// The piece of this one from `offset` with `length` bytes.
    ///
    /// # Panics
    /// When it is not inside.
    pub(super) fn slice(&self, offset: usize, length: usize) -> Self {
        assert!(offset <= self.length && length <= self.length - offset, "a slice lies inside its piece");
        Self { region: self.region, offset: self.offset + offset, length }
    }

    fn ptr(&self) -> NonNull<u8> {
        self.region.ptr(self.offset, self.length).expect("checked when the piece was made")
    }

    /// Copies `from` here.
    ///
    /// # Panics
    /// When the lengths differ.
    pub(super) fn copy_from(&self, from: &Self) {
        assert_eq!(self.length, from.length, "both sides of a copy have one length");
        // SAFETY: both pointers have `length` bytes inside live mappings (checked by `new`); overlap is allowed.
        unsafe { std::ptr::copy(from.ptr().as_ptr(), self.ptr().as_ptr(), self.length) };
    }

    /// Asks the processor for its first bytes. Does nothing where no instruction for that is known.
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            let mut line = self.ptr().as_ptr();
            for _ in 0..self.length.min(PREFETCH).div_ceil(LINE) {
                // SAFETY: asks for memory without accessing it; any address is allowed.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
                line = line.wrapping_add(LINE);
            }
        }
    }

    /// Sets every byte.
    pub(super) fn fill(&self, byte: u8) {
        // SAFETY: the pointer has `length` writable bytes inside a live mapping (checked by `new`).
        unsafe { std::ptr::write_bytes(self.ptr().as_ptr(), byte, self.length) };
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// When the lengths differ.
    pub(super) fn write(&self, from: &[u8]) {
        assert_eq!(self.length, from.len(), "both sides of a copy have one length");
        self.region.write(self.offset, from);
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// When the lengths differ.
    pub(super) fn read(&self, to: &mut [u8]) {
        assert_eq!(self.length, to.len(), "both sides of a copy have one length");
        self.region.read(self.offset, to);
    }

    /// Makes the piece zero and gives whole pages inside it back to the kernel. Nothing may hold the pages pinned:
    /// a pinned page would be replaced behind its holder's back.
    pub(super) fn discard(&self) {
        const PAGE: usize = 4096;
        let start = self.offset.next_multiple_of(PAGE).min(self.offset + self.length);
        let end = ((self.offset + self.length) / PAGE * PAGE).max(start);
        self.slice(0, start - self.offset).fill(0);
        self.slice(end - self.offset, self.offset + self.length - end).fill(0);
        if start == end {
            return;
        }
        let pages = self.slice(start - self.offset, end - start);
        // SAFETY: whole pages of a private anonymous mapping that this process owns; afterwards they read as zero,
        // and no reference into them exists (module documentation).
        let done = unsafe { madvise(pages.ptr().cast(), pages.length, MmapAdvise::MADV_DONTNEED) };
        if done.is_err() {
            pages.fill(0);
        }
    }

    /// The bytes.
    ///
    /// # Safety
    /// For the life of the slice nobody (thread, device or kernel) writes them.
    unsafe fn bytes(&self) -> &'r [u8] {
        // SAFETY: the caller's promise is the one that the region asks for.
        unsafe { self.region.bytes(self.offset, self.length) }
    }

    /// The bytes, for writing.
    ///
    /// # Safety
    /// For the life of the slice nobody else (thread, device or kernel) reads or writes them.
    unsafe fn bytes_mut(&self) -> &'r mut [u8] {
        // SAFETY: the caller's promise is the one that the region asks for.
        unsafe { self.region.bytes_mut(self.offset, self.length) }
    }
}

impl Buf {
    /// The bytes.
    ///
    /// # Panics
    /// When it is pinned: a device might write them.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        assert!(!self.is_pinned(), "a buffer in use by a device is not looked at");
        // SAFETY: this is the only owner of the pages; a pin can't be made while `self` is borrowed and none exists,
        // so no device or kernel operation has the memory; the engine owns the buffer while the kernel has it.
        unsafe { self.piece().bytes() }
    }

    /// The bytes, for writing.
    ///
    /// # Panics
    /// When it is pinned: a device might read or write them.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(!self.is_pinned(), "a buffer in use by a device is not written");
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively for the life of the slice.
        unsafe { self.piece().bytes_mut() }
    }
}

impl Volume {
    /// The data of the blocks that `guard` holds, where it lies in memory: for checks of a volume whose data is sent
    /// from there. `None` when it is not one plain piece of memory, or the guard is of another volume.
    #[must_use]
    pub fn shared_bytes<'g>(&'g self, guard: &'g RangeGuard) -> Option<&'g [u8]> {
        let nlb = u32::try_from(guard.blocks()).ok()?;
        if !guard.covers(self.locks(), guard.slba(), guard.blocks(), Mode::Read) {
            return None;
        }
        let (region, offset, length) = self.shared_data(guard.slba(), nlb)?;
        // SAFETY: memory of a volume is written by engine and resize alone, and both own a guard for writing on what
        // they write while they do; it can't exist while `guard`, borrowed for the life of the slice, does. (A guard
        // for writing serves as well: the engine owns the one it writes under, so nobody can show it here.)
        Some(unsafe { Piece::new(region, offset, length).bytes() })
    }
}
