//! What `intact-pi` does: images of volumes and their protection information, vectors, measurements.

mod bench;
mod checks;
mod convert;
mod corrupt;
mod counted;
mod error;
mod format;
mod generate;
mod image;
mod interrupt;
mod name;
mod new_file;
mod progress;
mod source;
pub mod vectors;
mod verify;

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use bench::Bench;
pub use checks::{CheckArgs, CheckName};
pub use convert::{Insert, Strip};
pub use corrupt::{Corrupt, Kind};
pub use error::PiError;
pub use format::{FormatArgs, GuardName, LayoutName, PositionName, TagArgs};
pub use generate::Generate;
pub use interrupt::{Interrupt, Signal};
pub use verify::{Inspect, Verify};

use error::system;
use intact::cli::complain;
use source::{Access, Kinds, Source};

/// Works on images of volumes and their T10 protection information.
///
/// Exit status: 0 success; 1 a block or a test vector fails; 2 wrong arguments or files.
#[derive(Debug, Parser)]
#[command(name = "intact-pi", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the protection information of the data that is in an image
    Generate(Generate),
    /// Check an image against its protection information; exit status 1 if a block fails. Application and storage tags are
    /// compared only when --app-tag and --storage-tag say what they should be
    Verify(Verify),
    /// Print the tuples of a range of blocks; exit status 1 if a block fails
    Inspect(Inspect),
    /// Damage an image, for drills
    Corrupt(Corrupt),
    /// Make an interleaved image from a plain one, with the metadata of its FILE.pi if there is one, checking every block
    /// (exit status 1 if a block fails), and with new tuples otherwise
    Insert(Insert),
    /// Make a plain image from an interleaved one, checking every block; exit status 1 if a block fails
    Strip(Strip),
    /// Measure checksums and operations beside libisal, memcpy and crc-fast
    Bench(Bench),
    /// Run test vectors, one JSON object a line; exit status 1 if one fails
    CheckVectors(CheckVectors),
}

/// Arguments of `intact-pi check-vectors`.
#[derive(Debug, Args)]
pub struct CheckVectors {
    /// The vectors, or `-` for those that come from standard input
    pub file: PathBuf,
}

/// How something ended that could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Good,
    /// A check failed.
    Bad,
}

impl Command {
    /// Whether it makes or changes files, so that a signal should not end it anywhere.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self {
            Self::Generate(_) | Self::Corrupt(_) | Self::Insert(_) | Self::Strip(_) => true,
            Self::Verify(_) | Self::Inspect(_) | Self::Bench(_) | Self::CheckVectors(_) => false,
        }
    }
}

/// Carries a command out, and writes what there is to tell to `out`. A command that [writes](Command::writes) ends early
/// when `interrupt` says so.
///
/// # Errors
/// [`PiError`], when it can't be done.
pub fn run(command: &Command, interrupt: &Interrupt, out: &mut impl Write) -> Result<Outcome, PiError> {
    let outcome = match command {
        Command::Generate(arguments) => generate::generate(arguments, interrupt, out),
        Command::Verify(arguments) => verify::verify(arguments, out),
        Command::Inspect(arguments) => verify::inspect(arguments, out),
        Command::Corrupt(arguments) => corrupt::corrupt(arguments, interrupt, out),
        Command::Insert(arguments) => convert::insert(arguments, interrupt, out),
        Command::Strip(arguments) => convert::strip(arguments, interrupt, out),
        Command::Bench(arguments) => bench::run(arguments, out, &mut io::stderr()).map(|()| Outcome::Good),
        Command::CheckVectors(arguments) => check_vectors(arguments, out),
    };
    // Also what was written before something failed.
    let flushed = out.flush().map_err(PiError::Output);
    outcome.and_then(|outcome| flushed.map(|()| outcome))
}

fn check_vectors(arguments: &CheckVectors, out: &mut impl Write) -> Result<Outcome, PiError> {
    let path = &arguments.file;
    let tally = if path.as_os_str() == "-" {
        complain(&"intact-pi: reading vectors from standard input");
        tally(io::stdin().lock(), PiError::Input, out)?
    } else {
        let file = Source::open(path, Access::Read, Kinds::Text)?;
        tally(BufReader::new(file.file()), system("read", path), out)?
    };
    if tally == vectors::Tally::default() {
        return Err(PiError::NoVectors { path: path.clone() });
    }
    writeln!(out, "{} passed, {} failed", tally.passed, tally.failed).map_err(PiError::Output)?;
    Ok(if tally.failed == 0 { Outcome::Good } else { Outcome::Bad })
}

/// Runs vectors, and writes a line for each mismatch.
fn tally(
    vectors: impl BufRead,
    unreadable: impl Fn(io::Error) -> PiError,
    out: &mut impl Write,
) -> Result<vectors::Tally, PiError> {
    let mut result = Ok(());
    let tally = vectors::check(vectors, |problem| {
        if result.is_ok() {
            result = writeln!(out, "{problem}");
        }
    });
    result.map_err(PiError::Output)?;
    tally.map_err(unreadable)
}
