//! One operation on a volume, and how it can end.
//!
//! Owns the values that cross the seam between requests and storage. An [`Io`] owns everything that it needs until it
//! comes back; "no room now" is a result that hands it back, never an error.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::locks::RangeGuard;
use super::pool::Buf;
use super::volume::Volume;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoOp {
    /// Blocks to `data`, metadata to `md`; either may be absent.
    Read,
    /// `data` and `md` to blocks. A protected volume needs both.
    Write,
    /// Makes every write that completed before durable. Concerns no blocks, needs no guard and no buffers.
    Flush,
    /// Data becomes zero; metadata becomes `md`, or zero without it (NVM Command Set, Write Zeroes without
    /// deallocation). The storage stays reserved where the file system can do that.
    WriteZeroes,
    /// Blocks become such as nobody wrote; storage is given back where possible. A hint to hosts, always done here.
    Deallocate,
}

/// An operation on a volume.
#[derive(Debug)]
pub struct Io {
    /// Where.
    pub volume: Arc<Volume>,
    /// What.
    pub op: IoOp,
    /// First block; 0 for [`IoOp::Flush`].
    pub slba: u64,
    /// Number of blocks (not 0's based); at least 1, but 0 for [`IoOp::Flush`].
    pub nlb: u32,
    /// `nlb` x block size bytes: for Read (optional) and Write.
    pub data: Option<Buf>,
    /// `nlb` x metadata size bytes, in the form that hosts see: for Read (optional), Write (on a volume with
    /// metadata) and WriteZeroes (optional).
    pub md: Option<Buf>,
    /// Durable before it completes (Force Unit Access).
    pub fua: bool,
    /// Covers the blocks: for writing unless the operation is Read. None for Flush.
    pub guard: Option<RangeGuard>,
    /// The caller's; comes back unchanged.
    pub token: u64,
}

/// A completed operation.
#[derive(Debug)]
#[must_use = "it owns the buffers and the guard, and somebody waits for the result"]
pub struct IoDone {
    /// As it was submitted.
    pub io: Io,
    /// How it went.
    pub result: Result<(), IoError>,
}

/// What became of a submitted operation.
#[derive(Debug)]
#[must_use = "the operation may have come back"]
pub enum Submit {
    /// Completed.
    Done(IoDone),
    /// Completes by [`super::Engine::poll`].
    Pending,
    /// No room now; submit it again after a completion.
    Busy(Io),
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// The medium could not read or write the block (`EIO` and the like).
    Media,
    /// No space is left for the block.
    NoSpace,
    /// The volume, or what stores it, can't be written.
    ReadOnly,
    /// The blocks lie beyond the end of the volume; it may just have shrunk.
    OutOfRange,
    /// The storage did not answer in time.
    Timeout,
    /// Any other refusal of the system.
    Internal,
}

impl IoErrorKind {
    /// Whether storage failed, rather than refused what it can't or may not do.
    #[must_use]
    pub fn is_of_medium(self) -> bool {
        match self {
            Self::Media | Self::Timeout => true,
            Self::NoSpace | Self::ReadOnly | Self::OutOfRange | Self::Internal => false,
        }
    }
}

/// Which part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Area {
    /// User data, or in the interleaved layout the block with its metadata.
    Data,
    /// Metadata stored apart.
    Metadata,
}

/// A failed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub struct IoError {
    /// What went wrong.
    pub kind: IoErrorKind,
    /// The first block that failed, or of which it is not known that it did not; the first of the operation for
    /// failures that concern no block.
    pub lba: u64,
    /// Where.
    pub area: Area,
    /// The system's error number; 0 when the system had no part in it.
    pub errno: i32,
}

impl IoError {
    /// A failure that the system had no part in.
    pub(super) fn own(kind: IoErrorKind, lba: u64) -> Self {
        Self { kind, lba, area: Area::Data, errno: 0 }
    }

    /// Block `lba` lies beyond the end.
    #[must_use]
    pub fn out_of_range(lba: u64) -> Self {
        Self::own(IoErrorKind::OutOfRange, lba)
    }

    /// What error number `errno` of a system call means for block `lba`.
    #[must_use]
    pub fn from_errno(errno: i32, lba: u64, area: Area) -> Self {
        let kind = match errno {
            libc::EIO
            | libc::ENODATA
            | libc::EILSEQ
            | libc::EBADMSG
            | libc::EREMOTEIO
            | libc::ENXIO
            | libc::ENOLINK
            | libc::ESTALE => IoErrorKind::Media,
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => IoErrorKind::NoSpace,
            libc::EROFS | libc::EPERM | libc::EACCES => IoErrorKind::ReadOnly,
            libc::ETIMEDOUT | libc::ETIME => IoErrorKind::Timeout,
            _ => IoErrorKind::Internal,
        };
        Self { kind, lba, area, errno }
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            IoErrorKind::Media => "medium failed",
            IoErrorKind::NoSpace => "no space left",
            IoErrorKind::ReadOnly => "read-only",
            IoErrorKind::OutOfRange => "beyond the end of the volume",
            IoErrorKind::Timeout => "storage did not answer in time",
            IoErrorKind::Internal => "refused by the system",
        };
        let area = match self.area {
            Area::Data => "block",
            Area::Metadata => "metadata of block",
        };
        write!(f, "{what} at {area} {}", self.lba)?;
        if self.errno != 0 {
            write!(f, " ({})", nix::Error::from_raw(self.errno))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_storage_refuses_is_no_failure_of_it() {
        let is_of_medium = |errno| IoError::from_errno(errno, 0, Area::Data).kind.is_of_medium();
        assert!([libc::EIO, libc::EREMOTEIO, libc::ENODATA, libc::ETIMEDOUT].into_iter().all(is_of_medium));
        let refusals = [libc::ENOSPC, libc::EDQUOT, libc::EROFS, libc::EACCES, libc::EINVAL];
        assert!(!refusals.into_iter().any(is_of_medium));
        assert!(!IoError::out_of_range(7).kind.is_of_medium());
    }
}
