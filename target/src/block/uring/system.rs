//! System calls about files that no safe wrapper exists for.
//!
//! Owns the questions "how must direct I/O on this file be aligned" and "what are this block device's sizes". Decides
//! nothing from the answers.

use std::fs::File;
use std::os::fd::AsRawFd;

/// The alignment that direct I/O on `file` needs, of memory and file offset, in bytes (`statx(2)`,
/// `STATX_DIOALIGN`); `None` where the kernel can't tell. Zeros: direct I/O is not possible.
pub(in super::super) fn direct_alignment(file: &File) -> nix::Result<Option<(u32, u32)>> {
    let mut answer = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is an empty C string, which with AT_EMPTY_PATH names the descriptor itself, open for the call;
    // the answer has room for a `struct statx`.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            answer.as_mut_ptr(),
        )
    };
    nix::Error::result(result)?;
    // SAFETY: zeroed at first, and filled by the call that succeeded; every bit pattern is a value of its integers.
    let answer = unsafe { answer.assume_init() };
    let known = answer.stx_mask & libc::STATX_DIOALIGN != 0;
    Ok(known.then_some((answer.stx_dio_mem_align, answer.stx_dio_offset_align)))
}

mod ioctl {
    nix::ioctl_read_bad!(blksszget, libc::BLKSSZGET, libc::c_int);
    nix::ioctl_read!(blkgetsize64, 0x12, 114, u64);
}

/// Bytes of a logical sector of a block device.
pub(in super::super) fn sector_size(device: &File) -> nix::Result<usize> {
    let mut size = 0;
    // SAFETY: the request stores one int, and `size` is one.
    unsafe { ioctl::blksszget(device.as_raw_fd(), &raw mut size) }?;
    usize::try_from(size).map_err(|_| nix::Error::EINVAL)
}

/// Bytes of a block device.
pub(in super::super) fn device_size(device: &File) -> nix::Result<u64> {
    let mut size = 0;
    // SAFETY: the request stores one 64-bit integer (despite the `size_t` in its name's definition), and `size` is one.
    unsafe { ioctl::blkgetsize64(device.as_raw_fd(), &raw mut size) }?;
    Ok(size)
}
