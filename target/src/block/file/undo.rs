//! How a volume's files are brought back to what they were, when a change that they were part of does not happen.
//!
//! Owns the names of files that were made, and how far files went before they were extended. Only called before anybody
//! could write to what is taken away. Opens nothing then: what is undone may be due to too many open files.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

use super::{FileBackend, FileSpec, PI_HEADER_LEN, VolumeError, folder_of, length_of};

/// What a volume's files were before it was opened.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// How far they went, once made.
    pub(super) extent: Extent,
    /// Those that were made.
    pub(super) made: Made,
}

/// Files that this process made for a volume.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// Where their names stand, open before there is one.
    folder: Option<File>,
    data: Option<MadeFile>,
    pi: Option<MadeFile>,
}

#[derive(Debug)]
struct MadeFile {
    path: PathBuf,
    file: File,
    /// Device and inode: a name may stand for another file later.
    id: (u64, u64),
}

/// How far a volume's files go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::block) struct Extent {
    data: u64,
    /// Length and header of the `.pi` file.
    pi: Option<(u64, Box<[u8; PI_HEADER_LEN]>)>,
}

impl Made {
    /// Files are about to be made.
    pub(super) fn begin(&mut self, spec: &FileSpec<'_>) -> Result<(), VolumeError> {
        if self.folder.is_none() {
            let folder = folder_of(spec.path);
            let open = File::open(folder).map_err(|error| spec.system("make a file in", folder, error))?;
            self.folder = Some(open);
        }
        Ok(())
    }

    /// The data file was made.
    pub(super) fn data(&mut self, spec: &FileSpec<'_>, file: &File) -> Result<(), VolumeError> {
        self.data = Some(MadeFile::new(spec, spec.path, file)?);
        Ok(())
    }

    /// The `.pi` file was made.
    pub(super) fn pi(&mut self, spec: &FileSpec<'_>, path: &Path, file: &File) -> Result<(), VolumeError> {
        self.pi = Some(MadeFile::new(spec, path, file)?);
        Ok(())
    }

    /// Makes the names of new files durable.
    pub(super) fn sync_names(&self, spec: &FileSpec<'_>) -> Result<(), VolumeError> {
        let folder = folder_of(spec.path);
        self.sync().map_err(|error| spec.system("make durable the names in", folder, error))
    }

    /// Removes them. A crash in the middle leaves an empty data file, of which a volume can be made.
    pub(super) fn remove(&self) {
        for (made, how) in [
            (&self.data, MadeFile::empty as fn(&_) -> _),
            (&self.pi, MadeFile::remove),
            (&self.data, MadeFile::remove),
        ] {
            if let Some(made) = made
                && let Err(error) = how(made).and_then(|()| self.sync())
            {
                return made.kept(&error);
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.folder.as_ref().map_or(Ok(()), File::sync_all)
    }
}

impl MadeFile {
    fn new(spec: &FileSpec<'_>, path: &Path, file: &File) -> Result<Self, VolumeError> {
        let made = file.metadata().map(|file| id(&file)).and_then(|id| {
            let file = file.try_clone()?;
            Ok(Self { path: path.to_owned(), file, id })
        });
        made.map_err(|error| {
            // It was made a moment ago.
            let _ = std::fs::remove_file(path);
            spec.system("open", path, error)
        })
    }

    fn empty(&self) -> io::Result<()> {
        set_len(&self.file, 0)
    }

    fn remove(&self) -> io::Result<()> {
        if id(&std::fs::symlink_metadata(&self.path)?) != self.id {
            return Err(io::Error::other("the name stands for another file by now"));
        }
        std::fs::remove_file(&self.path)
    }

    fn kept(&self, error: &io::Error) {
        tracing::warn!(file = %self.path.display(), %error, "a file that was made in vain stays");
    }
}

impl FileBackend {
    /// How far the files go.
    pub(in crate::block) fn extent(&self) -> Result<Extent, VolumeError> {
        let data = length_of(&self.data.plain, self.data.is_device)
            .map_err(|error| self.system("ask the size of", &self.data.path, error))?;
        let pi = match &self.pi {
            Some(pi) => {
                let mut header = Box::new([0; PI_HEADER_LEN]);
                pi.plain
                    .read_exact_at(&mut *header, 0)
                    .and_then(|()| length_of(&pi.plain, pi.is_device))
                    .map(|length| Some((length, header)))
                    .map_err(|error| self.system("read", &pi.path, error))?
            }
            None => None,
        };
        Ok(Extent { data, pi })
    }

    /// Makes the files go as far as before they were extended. Nobody was told of the blocks beyond.
    pub(in crate::block) fn restore(&self, before: &Extent) {
        if self.extent().is_ok_and(|extent| extent == *before) {
            return;
        }
        // The data first, as it was extended last.
        let mut done = set_len(&self.data.plain, before.data).map_err(|error| (&self.data.path, error));
        if let (Ok(()), Some(pi), Some((length, header))) = (&done, &self.pi, &before.pi) {
            let header = pi.plain.write_all_at(&**header, 0);
            done = header.and_then(|()| set_len(&pi.plain, *length)).map_err(|error| (&pi.path, error));
        }
        match done {
            Ok(()) => tracing::info!(volume = self.volume(), "files are as long as before again"),
            Err((path, error)) => {
                tracing::warn!(volume = self.volume(), file = %path.display(), %error, "a file stays longer than it was");
            }
        }
    }

    /// Makes the files what they were before the volume was opened.
    pub(in crate::block) fn undo_open(&self) {
        let before = self.before();
        if before.made.data.is_none() {
            self.restore(&before.extent);
        }
        before.made.remove();
    }

    /// The volume is to stay: what its files were before it was opened is not needed any more.
    pub(in crate::block) fn keep(&self) {
        *self.before() = Before::default();
    }

    fn before(&self) -> MutexGuard<'_, Before> {
        // One thread alone uses it.
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn id(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn set_len(file: &File, length: u64) -> io::Result<()> {
    file.set_len(length)?;
    file.sync_all()
}
