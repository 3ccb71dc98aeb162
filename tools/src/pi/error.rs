//! Why `intact-pi` can't do what it was asked: one sentence each, that says what to do about it where that is known.

use std::io;
use std::path::{Path, PathBuf};

use intact::block::PiFileError;
use thiserror::Error;

use super::counted::Counted;
use super::interrupt::Signal;
use super::name::Name;

/// Why something can't be done. Nothing was changed then, unless the message says so.
#[derive(Debug, Error)]
pub enum PiError {
    /// The system refused.
    #[error("can't {operation} {}", Name(path))]
    System {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The system refused, of a file that is being made and was removed again.
    #[error("can't {operation} {}, which was to be {}", Name(unfinished), Name(path))]
    Unfinished {
        /// What was tried.
        operation: &'static str,
        /// What the file would have been called.
        path: PathBuf,
        /// What it was called.
        unfinished: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Standard output takes nothing.
    #[error("can't write to standard output")]
    Output(#[source] io::Error),
    /// Standard input gives nothing.
    #[error("can't read standard input")]
    Input(#[source] io::Error),
    /// A file of a kind that makes no sense here.
    #[error("{} is {found}; allowed is {allowed}", Name(path))]
    Kind {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// A file without a byte.
    #[error("{} is empty", Name(path))]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The image's length is not whole blocks.
    #[error(
        "{} has {}, which is not a multiple of its blocks' {block_size}{}",
        Name(path),
        Counted(*length, "byte"),
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
    /// Somebody wrote to it who asks for no lock.
    #[error("{} was changed by something else while it was read; do it again when nothing does", Name(path))]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Somebody serves or changes the image.
    #[error(
        "{} is in use: by intact serve, or by an intact-pi that changes it; wait until that has ended, or take its volume \
         out of the configuration",
        Name(path)
    )]
    InUse {
        /// The image.
        path: PathBuf,
    },
    /// A block device that somebody has for himself.
    #[error("{} is in use: by intact serve, or it is mounted or part of another device", Name(path))]
    Claimed {
        /// The device.
        path: PathBuf,
    },
    /// What would be made exists.
    #[error("{} exists already, as {found}{}", Name(path), removal(found))]
    Exists {
        /// Its name.
        path: PathBuf,
        /// What has it.
        found: &'static str,
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
    /// Flags that don't go together, or not with these files.
    #[error("{0}")]
    Flags(String),
    /// `FILE.pi` is not usable.
    #[error("{} can't be used", Name(path))]
    PiFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: PiFileError,
    },
    /// Blocks that the image has not.
    #[error("{} has {}, and block {wanted} is not among them", Name(path), Counted(*blocks, "block"))]
    Range {
        /// The image.
        path: PathBuf,
        /// What it has.
        blocks: u64,
        /// The first that is missing.
        wanted: u64,
    },
    /// A file of vectors without any.
    #[error("there are no vectors in {}", Name(path))]
    NoVectors {
        /// The file.
        path: PathBuf,
    },
    /// A signal came that ends the program.
    #[error("ended by {signal}: {state}")]
    Interrupted {
        /// The signal.
        signal: Signal,
        /// How things are now.
        state: String,
    },
}

fn hint(metadata_size: u16) -> String {
    if metadata_size == 0 {
        return String::new();
    }
    format!(
        " (data and {metadata_size} bytes of metadata); is it a plain image, with its protection information in FILE.pi, or \
         has it another format?"
    )
}

fn removal(found: &str) -> &'static str {
    match found {
        "a file" | "a symbolic link" => "; remove it if that may go",
        _ => "; only new files are made",
    }
}

/// The error of a system call.
pub(super) fn system(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> PiError {
    let path = path.to_owned();
    move |source| PiError::System { operation, path: path.clone(), source }
}
