//! What stands at a path, for checks that need to look: injected, so that reading a configuration is otherwise pure.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Looks at a path.
pub type Probe<'p> = &'p dyn Fn(&Path) -> io::Result<FileState>;

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// Nothing, but it could be made.
    Missing,
    /// Nothing, nor the folder that it would be in.
    MissingFolder,
    /// A regular file without bytes.
    Empty,
    /// A regular file with bytes.
    Regular,
    /// A block device.
    BlockDevice,
    /// A folder.
    Folder,
    /// A character device, a socket, a pipe.
    Other,
}

/// Looks at the real file system.
///
/// # Errors
/// Whatever the kernel says but "not found".
pub fn probe(path: &Path) -> io::Result<FileState> {
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let there = folder.is_none_or(Path::is_dir);
            return Ok(if there { FileState::Missing } else { FileState::MissingFolder });
        }
        Err(why) => return Err(why),
    };
    let kind = metadata.file_type();
    Ok(match () {
        () if kind.is_file() && metadata.len() == 0 => FileState::Empty,
        () if kind.is_file() => FileState::Regular,
        () if kind.is_block_device() => FileState::BlockDevice,
        () if kind.is_dir() => FileState::Folder,
        () => FileState::Other,
    })
}
