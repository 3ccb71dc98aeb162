//! `intact-pi`: works on images of volumes and their protection information.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use intact::cli::{check_environment, complain};
use intact::serve::with_sources;
use intact_tools::pi::{Cli, Outcome, run};

/// Wrong arguments or files; clap uses the same.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = check_environment() {
        complain(&format_args!("intact-pi: {error}"));
        return ExitCode::from(EXIT_USAGE);
    }
    match run(&cli.command, &mut io::stdout()) {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::FAILURE,
        Err(error) => {
            complain(&format_args!("intact-pi: {}", with_sources(&error)));
            ExitCode::from(EXIT_USAGE)
        }
    }
}
