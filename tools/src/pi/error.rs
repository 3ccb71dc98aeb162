//! Why `intact-pi` can't do what it was asked: one sentence each, that says what to do about it where that is known.

use std::io;
use std::path::{Path, PathBuf};

use intact::block::PiFileError;
use thiserror::Error;

/// Why something can't be done. Nothing was changed then, unless the message says so.
#[derive(Debug, Error)]
pub enum PiError {
    /// The system refused.
    #[error("can't {operation} {}", path.display())]
    System {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The image's length is not whole blocks.
    #[error(
        "{} has {length} bytes, which is not a multiple of its blocks' {block_size}{}",
        path.display(),
        hint(*metadata_size)
    )]
    Length {
        /// The image.
        path: PathBuf,
        /// Its length in bytes.
        length: u64,
        /// Bytes of a block, with its metadata where that is in the same file.
        block_size: u64,
        /// Metadata that is part of a block.
        metadata_size: u16,
    },
    /// Somebody serves or changes the image.
    #[error(
        "{} is in use: by intact serve, or by an intact-pi that changes it; wait until that has ended, or take its volume \
         out of the configuration",
        path.display()
    )]
    InUse {
        /// The image.
        path: PathBuf,
    },
    /// What would be made exists.
    #[error("{} exists already; remove it if its contents may go", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A format that can't be.
    #[error("block size {block_size} and metadata size {metadata_size} are no format: {why}")]
    Format {
        /// Bytes of a block.
        block_size: u32,
        /// Bytes of its metadata.
        metadata_size: u16,
        /// What is wrong.
        why: String,
    },
    /// Flags that don't go together.
    #[error("{0}")]
    Flags(String),
    /// `FILE.pi` is not usable.
    #[error("{} can't be used: {source}", path.display())]
    PiFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PiFileError,
    },
    /// Blocks that the image has not.
    #[error("{} has {blocks} blocks, and block {wanted} is not among them", path.display())]
    Range {
        /// The image.
        path: PathBuf,
        /// What it has.
        blocks: u64,
        /// The first that is missing.
        wanted: u64,
    },
}

fn hint(metadata_size: u16) -> String {
    if metadata_size == 0 {
        return String::new();
    }
    format!(
        " (data and {metadata_size} bytes of metadata); is it a plain image, whose protection is in FILE.pi \
         (--layout separate), or has it another format?"
    )
}

/// The error of a system call.
pub(super) fn system(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> PiError {
    let path = path.to_owned();
    move |source| PiError::System { operation, path: path.clone(), source }
}
