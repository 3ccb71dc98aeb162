//! What `intact-pi` does: images of volumes and their protection information, vectors, measurements.

mod bench;
mod convert;
mod corrupt;
mod error;
mod format;
mod generate;
mod image;
mod progress;
pub mod vectors;
mod verify;

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use bench::Bench;
pub use convert::{Insert, Strip};
pub use corrupt::{Corrupt, Kind};
pub use error::PiError;
pub use format::{CheckArgs, CheckName, FormatArgs, GuardName, LayoutName, PositionName, TagArgs};
pub use generate::Generate;
pub use verify::{Inspect, Verify};

use error::system;

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
    /// Check an image against its protection information; exit status 1 if a block fails
    Verify(Verify),
    /// Print the tuples of a range of blocks; exit status 1 if a block fails
    Inspect(Inspect),
    /// Damage an image, for drills
    Corrupt(Corrupt),
    /// Make an interleaved image from a plain one
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
    /// The vectors
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

/// Carries a command out, and writes what there is to tell to `out`.
///
/// # Errors
/// [`PiError`], when it can't be done.
pub fn run(command: &Command, out: &mut impl Write) -> Result<Outcome, PiError> {
    match command {
        Command::Generate(arguments) => generate::generate(arguments, out),
        Command::Verify(arguments) => verify::verify(arguments, out),
        Command::Inspect(arguments) => verify::inspect(arguments, out),
        Command::Corrupt(arguments) => corrupt::corrupt(arguments, out),
        Command::Insert(arguments) => convert::insert(arguments, out),
        Command::Strip(arguments) => convert::strip(arguments, out),
        Command::Bench(arguments) => {
            let written = system("write to", "standard output".as_ref());
            bench::run(arguments, out, &mut io::stderr()).map(|()| Outcome::Good).map_err(written)
        }
        Command::CheckVectors(arguments) => check_vectors(arguments, out),
    }
}

fn check_vectors(arguments: &CheckVectors, out: &mut impl Write) -> Result<Outcome, PiError> {
    let path = &arguments.file;
    let written = |error| system("write to", "standard output".as_ref())(error);
    let file = File::open(path).map_err(system("open", path))?;
    let mut result = Ok(());
    let tally = vectors::check(BufReader::new(file), |problem| {
        if result.is_ok() {
            result = writeln!(out, "{problem}");
        }
    })
    .map_err(system("read", path))?;
    result.map_err(written)?;
    writeln!(out, "{} passed, {} failed", tally.passed, tally.failed).map_err(written)?;
    Ok(if tally.failed == 0 { Outcome::Good } else { Outcome::Bad })
}
