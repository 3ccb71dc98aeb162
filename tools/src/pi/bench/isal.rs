//! Debian's libisal2, if it is installed: the checksums of the storage world's reference, loaded at run time.
#![allow(unsafe_code, reason = "functions of a C library that is found at run time")]

use libloading::{Library, Symbol};

type Crc16 = unsafe extern "C" fn(seed: u16, buffer: *const u8, length: u64) -> u16;
type Crc16Copy = unsafe extern "C" fn(seed: u16, to: *mut u8, from: *const u8, length: u64) -> u16;
type Crc32 = unsafe extern "C" fn(buffer: *const u8, length: i32, seed: u32) -> u32;

/// The library's functions. They stay loaded for as long as the program runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Isal {
    crc16: Crc16,
    crc16_copy: Crc16Copy,
    crc32: Crc32,
}

impl Isal {
    /// Loads the library; an error says why it can't be had.
    pub(super) fn load() -> Result<Self, libloading::Error> {
        // SAFETY: the library's initialisation only looks at the CPU.
        let library = unsafe { Library::new("libisal.so.2") }?;
        // Never unloaded, so that its functions can be kept.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: `crc.h` of ISA-L declares it with this signature.
        let crc16: Symbol<'_, Crc16> = unsafe { library.get("crc16_t10dif") }?;
        // SAFETY: as above; the destination comes before the source.
        let crc16_copy: Symbol<'_, Crc16Copy> = unsafe { library.get("crc16_t10dif_copy") }?;
        // SAFETY: as above.
        let crc32: Symbol<'_, Crc32> = unsafe { library.get("crc32_iscsi") }?;
        Ok(Self { crc16: *crc16, crc16_copy: *crc16_copy, crc32: *crc32 })
    }

    /// `crc16_t10dif`
    #[inline]
    pub(super) fn crc16(&self, seed: u16, bytes: &[u8]) -> u16 {
        // SAFETY: reads as many bytes as the slice has.
        unsafe { (self.crc16)(seed, bytes.as_ptr(), bytes.len() as u64) }
    }

    /// `crc16_t10dif_copy`
    ///
    /// # Panics
    /// When the slices have different lengths.
    #[inline]
    pub(super) fn crc16_copy(&self, seed: u16, from: &[u8], to: &mut [u8]) -> u16 {
        assert_eq!(from.len(), to.len());
        // SAFETY: reads and writes as many bytes as both slices have, which can't overlap.
        unsafe { (self.crc16_copy)(seed, to.as_mut_ptr(), from.as_ptr(), from.len() as u64) }
    }

    /// `crc32_iscsi`, which inverts neither at its start nor at its end.
    ///
    /// # Panics
    /// When the slice has 2 GiB or more.
    #[inline]
    pub(super) fn crc32(&self, seed: u32, bytes: &[u8]) -> u32 {
        let length = i32::try_from(bytes.len()).expect("less than 2 GiB");
        // SAFETY: reads as many bytes as the slice has, and writes none.
        unsafe { (self.crc32)(bytes.as_ptr(), length, seed) }
    }
}
