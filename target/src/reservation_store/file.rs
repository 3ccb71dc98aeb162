//! `FILE.pr` on its file system: read once, and replaced as a whole each time.
//!
//! Owns that a crash leaves what was stored before or what is stored now, and never a part: a file of another name is
//! written, made durable and renamed, and then the folder is made durable. Follows no link and waits for no pipe.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::StoreError;
use super::image::{self, IMAGE_MAX, ImageError};
use crate::scsi::reservations::{Persistence, Reservations, Saved};

/// The file of a volume.
#[derive(Debug)]
pub(super) struct PrFile {
    volume: String,
    uuid: Uuid,
    path: PathBuf,
    /// The name that it is written under.
    new_path: PathBuf,
    /// What stands there; empty: there is no file.
    stored: Vec<u8>,
}

/// Why what was to be stored is not.
#[derive(Debug)]
struct Failure {
    /// What was tried.
    operation: &'static str,
    error: io::Error,
    /// Whether the name may stand for something else than before.
    renamed: bool,
}

/// `FILE.pr`, and the name under which its next contents are written.
#[must_use]
pub fn pr_paths(file: &Path) -> [PathBuf; 2] {
    [".pr", ".pr.new"].map(|suffix| {
        let mut path = OsString::from(file);
        path.push(suffix);
        PathBuf::from(path)
    })
}

impl PrFile {
    /// Reads the reservations of the volume in `file`; none when there is no `FILE.pr`. Changes nothing.
    ///
    /// # Errors
    /// What stands there is not this volume's reservations, or can't be read.
    pub(super) fn open(volume: &str, uuid: Uuid, file: &Path) -> Result<(Self, Reservations), StoreError> {
        let [path, new_path] = pr_paths(file);
        let stored = read(volume, &path)?;
        let reservations = match &stored {
            None => Reservations::new(Persistence::Stored),
            Some(bytes) => image::decode(uuid, bytes).map_err(|problem| StoreError::Image {
                volume: volume.to_owned(),
                path: path.clone(),
                problem: Box::new(problem),
            })?,
        };
        let (volume, stored) = (volume.to_owned(), stored.unwrap_or_default());
        Ok((Self { volume, uuid, path, new_path, stored }, reservations))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Another unit keeps its reservations here.
    pub(super) fn superseded(&self) -> StoreError {
        StoreError::Superseded { volume: self.volume.clone(), path: self.path.clone() }
    }

    /// Stores reservations in place of those that are; without any, there is no file.
    ///
    /// # Errors
    /// They can't be. What was stored before still is, or the log says that it is not.
    pub(super) fn store(&mut self, saved: &Saved) -> Result<(), StoreError> {
        let bytes = if saved.is_empty() { Vec::new() } else { image::encode(self.uuid, saved) };
        let Err(failure) = self.replace(&bytes) else {
            self.stored = bytes;
            return Ok(());
        };
        if failure.renamed
            && let Err(Failure { operation, error, .. }) = self.replace(&self.stored)
        {
            tracing::error!(
                volume = self.volume, file = %self.path.display(), operation, %error,
                "what is kept of reservations may be another than is in effect, until they change again"
            );
        }
        let path = self.path.clone();
        Err(StoreError::System {
            volume: self.volume.clone(),
            operation: failure.operation,
            path,
            source: failure.error,
        })
    }

    /// Makes the name stand for these bytes, or for nothing.
    fn replace(&self, bytes: &[u8]) -> Result<(), Failure> {
        let tell = |operation, renamed| move |error| Failure { operation, error, renamed };
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // Before anything changes: there may be no descriptor left.
        let folder = File::open(folder).map_err(tell("open the folder of", false))?;
        if bytes.is_empty() {
            remove(&self.path).map_err(tell("remove", false))?;
        } else {
            self.write_new(bytes)
                .and_then(|()| std::fs::rename(&self.new_path, &self.path))
                .inspect_err(|_| {
                    // Nobody reads it, and the next one takes its place.
                    let _ = std::fs::remove_file(&self.new_path);
                })
                .map_err(tell("write", false))?;
        }
        folder.sync_all().map_err(tell("make durable the name", true))
    }

    fn write_new(&self, bytes: &[u8]) -> io::Result<()> {
        // A crash may have left one.
        remove(&self.new_path)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&self.new_path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }
}

/// What stands in a `.pr` file, if there is one.
fn read(volume: &str, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let refuse = |what| StoreError::Kind { volume: volume.to_owned(), path: path.to_owned(), what };
    let system = |operation| {
        move |source| StoreError::System {
            volume: volume.to_owned(),
            operation,
            path: path.to_owned(),
            source,
        }
    };
    // Without O_NONBLOCK, opening a pipe may last for ever.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Err(refuse("a symbolic link")),
        // A socket.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Err(refuse("no regular file")),
        Err(error) => return Err(system("open")(error)),
    };
    let found = file.metadata().map_err(system("look at"))?;
    if !found.is_file() {
        return Err(refuse("no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(IMAGE_MAX + 1).read_to_end(&mut bytes).map_err(system("read"))?;
    if bytes.len() as u64 > IMAGE_MAX {
        return Err(StoreError::Image {
            volume: volume.to_owned(),
            path: path.to_owned(),
            problem: Box::new(ImageError::Length {
                length: found.len(),
                needed: format!("at most {IMAGE_MAX}"),
            }),
        });
    }
    Ok(Some(bytes))
}

/// Removes a file or link; that there is none is as well.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
