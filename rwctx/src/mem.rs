//! Registered memory: regions, keys, access rights, and the only place that touches their bytes.
//!
//! The soft device reaches memory through [`MemTable`]; nothing else turns a key into bytes. Memory that a device
//! may write is reached through raw pointers, never through a Rust reference that lives across device activity.
#![allow(unsafe_code, reason = "owns raw memory that devices read and write")]

mod entry;
mod integrity;
mod pages;
mod table;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::remote::Rkey;

pub(crate) use entry::PACKET_PIECES;
pub(crate) use integrity::BLOCK;
pub use integrity::Use;
pub use pages::{PAGE, PageList};
pub use table::{MemError, MemTable, Remote, Sinks};

/// A local key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lkey(pub u32);

/// A memory region of a device, for deregistration and fast registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MrId(pub u32);

/// A protection domain: keys of one are unknown in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pd(pub u32);

/// Access rights of a memory region (verbs `IBV_ACCESS_*`). Local read is always granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The device may write it for local work requests (receives, READ sinks).
    pub local_write: bool,
    /// Peers may RDMA READ it.
    pub remote_read: bool,
    /// Peers may RDMA WRITE it.
    pub remote_write: bool,
}

/// A registered memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// Names it towards its device.
    pub id: MrId,
    /// For local work requests.
    pub lkey: Lkey,
    /// For peers.
    pub rkey: Rkey,
    /// Address of its first byte, in this process and towards peers.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
}

/// Page-aligned zeroed memory that devices, the kernel and several threads may share.
///
/// Its bytes are reached by copying ([`Self::read`], [`Self::write`]) or, where exclusive or shared use of a range is
/// proven by other means (a range lock, a pool slot), by the unsafe slice methods.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    length: usize,
}

/// Mappings of at least this size ask for huge pages: random access to a large volume otherwise pays for the page tables.
const HUGE_PAGE: usize = 2 << 20;

// SAFETY: the mapping is plain memory owned by this value; which thread touches which bytes is the business of the
// callers of the unsafe slice methods, and the copying methods use raw copies without forming references.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `length` bytes (rounded up to pages) of zeroed memory.
    ///
    /// # Errors
    /// `ENOMEM` and the like from the kernel; `EINVAL` for zero bytes.
    pub fn new(length: usize) -> nix::Result<Self> {
        let size = NonZeroUsize::new(length).ok_or(nix::Error::EINVAL)?;
        // SAFETY: an anonymous private mapping at an address that the kernel chooses touches no existing memory.
        let base = unsafe {
            mmap_anonymous(
                None,
                size,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE,
            )
        }?;
        if length >= HUGE_PAGE {
            // SAFETY: the mapping was just made and nobody uses it; the advice changes no bytes. A kernel without huge
            // pages refuses it, which costs speed alone.
            let _ = unsafe { madvise(base, length, MmapAdvise::MADV_HUGEPAGE) };
        }
        Ok(Self { base: base.cast(), length })
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: a region has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Address of the first byte, as SGEs name it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// Pointer to byte `offset` with `length` bytes behind it, if that lies inside.
    #[must_use]
    pub fn ptr(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(length)?;
        if end > self.length {
            return None;
        }
        // SAFETY: offset <= length of the mapping, so the result points into it or one past its end.
        Some(unsafe { self.base.add(offset) })
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// When the range lies outside; callers check wire values first.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        let from = self.ptr(offset, to.len()).expect("range lies inside the region");
        // SAFETY: `from` has `to.len()` readable bytes; `to` is exclusive and so can't overlap a live `&mut` here.
        unsafe { std::ptr::copy(from.as_ptr(), to.as_mut_ptr(), to.len()) };
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// When the range lies outside; callers check wire values first.
    pub fn write(&self, offset: usize, from: &[u8]) {
        let to = self.ptr(offset, from.len()).expect("range lies inside the region");
        // SAFETY: `to` has `from.len()` writable bytes of this mapping.
        unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), from.len()) };
    }

    /// The bytes of a range.
    ///
    /// # Safety
    /// For the life of the slice nobody (thread, device or kernel) writes the range.
    ///
    /// # Panics
    /// When the range lies outside.
    #[must_use]
    pub unsafe fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        let at = self.ptr(offset, length).expect("range lies inside the region");
        // SAFETY: inside the mapping, initialised (zeroed by the kernel), unwritten for the life by the caller's promise.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), length) }
    }

    /// The bytes of a range, for writing.
    ///
    /// # Safety
    /// For the life of the slice nobody else (thread, device or kernel) reads or writes the range.
    ///
    /// # Panics
    /// When the range lies outside.
    #[must_use]
    #[expect(
        clippy::mut_from_ref,
        reason = "exclusive use is the caller's promise, per range and not per region"
    )]
    pub unsafe fn bytes_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        let at = self.ptr(offset, length).expect("range lies inside the region");
        // SAFETY: inside the mapping, initialised, exclusive for the life by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), length) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this base and length; nothing borrows it any more.
        let unmapped = unsafe { munmap(self.base.cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "a mapping that was made can be unmapped");
    }
}

/// A piece of registered memory, resolved and checked, for the time of a call.
#[derive(Clone, Copy, Debug)]
pub struct Iov<'m> {
    base: NonNull<u8>,
    length: usize,
    life: PhantomData<&'m MemTable>,
}

impl<'m> Iov<'m> {
    /// No bytes.
    pub const EMPTY: Self = Self { base: NonNull::dangling(), length: 0, life: PhantomData };

    /// The bytes of a slice.
    #[must_use]
    pub fn from_slice(bytes: &'m [u8]) -> Self {
        Self { base: NonNull::from(bytes).cast(), length: bytes.len(), life: PhantomData }
    }

    /// First byte.
    #[must_use]
    pub fn ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Its bytes.
    ///
    /// # Safety
    /// For the life of the slice nobody writes them.
    unsafe fn bytes(&self) -> &'m [u8] {
        // SAFETY: the table that made this value keeps the memory mapped for its life, and it was zeroed by the kernel at
        // first; unwritten by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }

    /// Its bytes, for writing.
    ///
    /// # Safety
    /// For the life of the slice nobody else reads or writes them.
    unsafe fn bytes_mut(&self) -> &'m mut [u8] {
        // SAFETY: as above; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }

    /// Appends its bytes to `to`.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        to.reserve(self.length);
        let end = to.len();
        let room = to.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: the table that made this value keeps the memory mapped for its life; `reserve` made room.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr(), room, self.length) };
        // SAFETY: these bytes were just written.
        unsafe { to.set_len(end + self.length) };
    }
}
