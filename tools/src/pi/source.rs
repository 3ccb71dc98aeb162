//! Files that exist: opened without waiting for anybody, known by their kind, and locked as `intact serve` locks them.

use std::fs::{File, FileType, Metadata, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::error::{PiError, system};

/// What is done with a file, and so what others may do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It is read, and others read it.
    Read,
    /// It is read, and nobody else has it.
    Own,
    /// It is changed, and nobody else has it.
    Write,
}

/// Kinds of files that make sense somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinds {
    /// Regular files and block devices.
    Image,
    /// Regular files.
    File,
    /// Regular files, where standard input can be named instead.
    Text,
}

/// An open file with something in it.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    file: File,
    /// When it was opened.
    metadata: Metadata,
    length: u64,
}

impl Source {
    /// Opens a file; never waits, also where its name stands for a pipe or is made to meanwhile.
    pub(super) fn open(path: &Path, access: Access, kinds: Kinds) -> Result<Self, PiError> {
        let cant = system("open", path);
        // Asked before it is opened, for to open a device can do something to it, and again of what was opened.
        let kind = std::fs::metadata(path).map_err(&cant)?.file_type();
        kinds.admit(path, kind)?;
        let mut flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        if kind.is_block_device() && access != Access::Read {
            // Fails when it is mounted or otherwise claimed.
            flags |= OFlag::O_EXCL;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write).custom_flags(flags.bits());
        let file = options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => PiError::Claimed { path: path.to_owned() },
            _ => cant(error),
        })?;
        let metadata = file.metadata().map_err(&cant)?;
        kinds.admit(path, metadata.file_type())?;
        let length = length(&file, &metadata).map_err(system("find the end of", path))?;
        if length == 0 {
            return Err(PiError::Empty { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), file, metadata, length })
    }

    /// Keeps others from changing it, and where it is to be changed or owned from reading it; until it is closed.
    pub(super) fn lock(self, access: Access) -> Result<Self, PiError> {
        let locked = match access {
            Access::Read => self.file.try_lock_shared(),
            Access::Own | Access::Write => self.file.try_lock(),
        };
        match locked {
            Ok(()) => Ok(self),
            Err(TryLockError::WouldBlock) => Err(PiError::InUse { path: self.path }),
            Err(TryLockError::Error(source)) => Err(system("lock", &self.path)(source)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// In bytes; at least 1.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn is_device(&self) -> bool {
        self.metadata.file_type().is_block_device()
    }

    /// Whether its name stands where names don't outlive a restart of the machine.
    pub(super) fn is_in_dev(&self) -> bool {
        self.is_device() && self.path.starts_with("/dev") && !self.path.starts_with("/dev/shm")
    }

    /// Who may read and write it, for a file with the same contents.
    pub(super) fn mode(&self) -> u32 {
        self.metadata.mode() & 0o666
    }

    /// Whether `path` is a name of this file, too.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let same = |other: Metadata| {
            (other.dev(), other.ino()) == (self.metadata.dev(), self.metadata.ino())
                || (self.is_device()
                    && other.file_type().is_block_device()
                    && other.rdev() == self.metadata.rdev())
        };
        std::fs::metadata(path).is_ok_and(same)
    }

    /// Blocks of `size` bytes, of which `metadata_size` are metadata; a device may end with a part of one.
    pub(super) fn blocks(&self, size: u64, metadata_size: u16) -> Result<u64, PiError> {
        let is_whole = if self.is_device() { self.length >= size } else { self.length.is_multiple_of(size) };
        if is_whole {
            return Ok(self.length / size);
        }
        Err(PiError::Length { path: self.path.clone(), length: self.length, block_size: size, metadata_size })
    }

    /// Reads bytes that were there when it was opened.
    pub(super) fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<(), PiError> {
        self.file.read_exact_at(bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => PiError::Changed { path: self.path.clone() },
            _ => system("read", &self.path)(error),
        })
    }

    /// Writes bytes.
    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), PiError> {
        self.file.write_all_at(bytes, at).map_err(system("write", &self.path))
    }

    /// Makes what was written durable.
    pub(super) fn sync(&self) -> Result<(), PiError> {
        self.file.sync_all().map_err(system("sync", &self.path))
    }

    /// Refuses what was read when somebody who doesn't ask for locks has changed it meanwhile.
    pub(super) fn unchanged(&self) -> Result<(), PiError> {
        let now = self.file.metadata().map_err(system("look at", &self.path))?;
        let stamp = |metadata: &Metadata| (metadata.len(), metadata.mtime(), metadata.mtime_nsec());
        if self.is_device() || stamp(&now) == stamp(&self.metadata) {
            return Ok(());
        }
        Err(PiError::Changed { path: self.path.clone() })
    }
}

impl Kinds {
    fn admit(self, path: &Path, found: FileType) -> Result<(), PiError> {
        let allowed = match self {
            Self::Image if found.is_file() || found.is_block_device() => return Ok(()),
            Self::File | Self::Text if found.is_file() => return Ok(()),
            Self::Image => "a file or a block device",
            Self::File => "a file",
            Self::Text => "a file, or - for standard input",
        };
        Err(PiError::Kind { path: path.to_owned(), found: kind_name(found), allowed })
    }
}

/// What a file is.
pub(super) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_file() => "a file",
        kind if kind.is_dir() => "a directory",
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() => "a block device",
        kind if kind.is_char_device() => "a character device",
        _ => "something else",
    }
}

/// A block device has no length but its end.
fn length(mut file: &File, metadata: &Metadata) -> io::Result<u64> {
    if metadata.is_file() { Ok(metadata.len()) } else { file.seek(SeekFrom::End(0)) }
}
