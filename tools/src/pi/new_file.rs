//! A file that is made: it has its name only when it is complete, and nothing that was there gives way to it.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use intact::cli::complain;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use super::error::{PiError, system};
use super::name::Name;
use super::source::kind_name;

/// A file that is not complete. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct NewFile {
    /// What it will be called.
    path: PathBuf,
    /// What it is called.
    unfinished: PathBuf,
    folder: File,
    file: File,
    /// It has no name that must be removed.
    is_settled: bool,
}

impl NewFile {
    /// Makes a file that will be `path`, for those who `mode` and the umask let read and write it. Refused when there is
    /// anything of that name.
    pub(super) fn create(path: &Path, mode: u32) -> Result<Self, PiError> {
        let folder_path = folder_of(path)?;
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_DIRECTORY.bits())
            .open(folder_path)
            .map_err(system("open the folder", folder_path))?;
        match std::fs::symlink_metadata(path) {
            Ok(found) => {
                return Err(PiError::Exists { path: path.to_owned(), found: kind_name(found.file_type()) });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(system("make", path)(error)),
        }
        let mut random = Rng::new();
        // O_EXCL follows no link and takes nothing that exists; a name that is taken is improbable, and no reason to end.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        loop {
            let temporary = format!("intact-pi-unfinished-{:016x}", random.u64(..));
            let unfinished = path.with_file_name(&temporary);
            match openat(&folder, temporary.as_str(), flags, Mode::from_bits_truncate(mode)) {
                Ok(file) => {
                    let path = path.to_owned();
                    return Ok(Self { path, unfinished, folder, file: file.into(), is_settled: false });
                }
                Err(Errno::EEXIST) => {}
                Err(errno) => {
                    let (path, source) = (path.to_owned(), errno.into());
                    return Err(PiError::Unfinished { operation: "make", path, unfinished, source });
                }
            }
        }
    }

    /// Gives it a length; what nobody wrote is zero.
    pub(super) fn set_len(&self, length: u64) -> Result<(), PiError> {
        self.file.set_len(length).map_err(|error| self.cant("extend", error))
    }

    /// Writes bytes behind those that this wrote before.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), PiError> {
        self.file.write_all(bytes).map_err(|error| self.cant("write", error))
    }

    /// Writes bytes somewhere.
    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), PiError> {
        self.file.write_all_at(bytes, at).map_err(|error| self.cant("write", error))
    }

    /// Makes it durable, gives it its name, and makes that durable.
    pub(super) fn finish(mut self) -> Result<(), PiError> {
        self.file.sync_all().map_err(|error| self.cant("sync", error))?;
        match self.rename() {
            // Where the file system can't rename so that nothing is overwritten, it may have second names.
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => self.link(),
            renamed => renamed,
        }
        .map_err(|errno| match errno {
            Errno::EEXIST => {
                let found = std::fs::symlink_metadata(&self.path);
                let found = found.map_or("a file", |found| kind_name(found.file_type()));
                PiError::Exists { path: self.path.clone(), found }
            }
            errno => self.cant("give its name to", errno.into()),
        })?;
        self.folder.sync_all().map_err(system("sync the folder of the complete", &self.path))
    }

    fn rename(&mut self) -> Result<(), Errno> {
        let (from, to) = (last(&self.unfinished), last(&self.path));
        renameat2(&self.folder, from, &self.folder, to, RenameFlags::RENAME_NOREPLACE)?;
        self.is_settled = true;
        Ok(())
    }

    /// Two steps: both names are there in between.
    fn link(&mut self) -> Result<(), Errno> {
        let (from, to) = (last(&self.unfinished), last(&self.path));
        linkat(&self.folder, from, &self.folder, to, AtFlags::empty())?;
        self.remove();
        Ok(())
    }

    /// Removes the name that it has until it is complete, if that still stands for it.
    fn remove(&mut self) {
        self.is_settled = true;
        let name = last(&self.unfinished);
        let ours = |found: nix::sys::stat::FileStat| {
            self.file.metadata().is_ok_and(|our| (our.dev(), our.ino()) == (found.st_dev, found.st_ino))
        };
        if !fstatat(&self.folder, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(ours) {
            return;
        }
        if let Err(errno) = unlinkat(&self.folder, name, UnlinkatFlags::NoRemoveDir) {
            let why = errno.desc();
            complain(&format_args!("intact-pi: {} is left over, and can go: {why}", Name(&self.unfinished)));
        }
    }

    fn cant(&self, operation: &'static str, source: io::Error) -> PiError {
        let (path, unfinished) = (self.path.clone(), self.unfinished.clone());
        PiError::Unfinished { operation, path, unfinished, source }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_settled {
            self.remove();
        }
    }
}

/// Where the name stands, which must be a file's.
fn folder_of(path: &Path) -> Result<&Path, PiError> {
    let bytes = path.as_os_str().as_bytes();
    let (folder, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
        None => (&b"."[..], bytes),
        Some(0) => (&b"/"[..], &bytes[1..]),
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
    };
    if matches!(name, b"" | b"." | b"..") {
        return Err(PiError::Flags(format!("{} is no name of a file", Name(path))));
    }
    Ok(Path::new(OsStr::from_bytes(folder)))
}

/// The name in its folder.
fn last(path: &Path) -> &OsStr {
    path.file_name().expect("it is a file's")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect()
    }

    #[test]
    fn it_has_its_name_when_it_is_complete_and_no_trace_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let mut file = NewFile::create(&path, 0o600).unwrap();
        file.append(b"abc").unwrap();
        assert!(!path.exists() && names(folder.path()).len() == 1);
        drop(file);
        assert_eq!(names(folder.path()).len(), 0);
        let mut file = NewFile::create(&path, 0o640).unwrap();
        file.append(b"abc").unwrap();
        file.finish().unwrap();
        assert_eq!(
            (names(folder.path()), std::fs::read(&path).unwrap()),
            (vec!["new".into()], b"abc".to_vec())
        );
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777 & !0o640, 0);
    }

    #[test]
    fn what_takes_the_name_meanwhile_stays_whichever_way_names_are_given() {
        for by_link in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("new");
            let mut file = NewFile::create(&path, 0o600).unwrap();
            std::os::unix::fs::symlink("nowhere", &path).unwrap();
            let refused = if by_link { file.link() } else { file.rename() };
            assert_eq!(refused, Err(Errno::EEXIST));
            drop(file);
            assert_eq!(names(folder.path()), ["new"]);
            std::fs::remove_file(&path).unwrap();

            let mut file = NewFile::create(&path, 0o600).unwrap();
            let named = if by_link { file.link() } else { file.rename() };
            assert_eq!(named, Ok(()));
            drop(file);
            assert_eq!(names(folder.path()), ["new"]);
        }
    }

    #[test]
    fn only_its_own_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = NewFile::create(&folder.path().join("new"), 0o600).unwrap();
        let name = file.unfinished.clone();
        std::fs::remove_file(&name).unwrap();
        std::fs::write(&name, b"precious").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&name).unwrap(), b"precious");
    }

    #[test]
    fn names_of_folders_are_refused() {
        for path in ["", "/", ".", "..", "a/", "a/.", "a/.."] {
            let error = NewFile::create(Path::new(path), 0o600).unwrap_err().to_string();
            assert!(error.ends_with("is no name of a file"), "{path}: {error}");
        }
        assert_eq!(folder_of(Path::new("a")).unwrap(), Path::new("."));
        assert_eq!(folder_of(Path::new("/a")).unwrap(), Path::new("/"));
        assert_eq!(folder_of(Path::new("a/b/c")).unwrap(), Path::new("a/b"));
    }
}
