//! `intact-pi`: works on images of volumes and their protection information.

use std::io::{self, BufWriter, ErrorKind};
use std::process::ExitCode;

use clap::Parser;
use intact::cli::{check_environment, complain};
use intact::serve::with_sources;
use intact_tools::pi::{Cli, Interrupt, Outcome, PiError, Signal, run};

/// Wrong arguments or files; clap uses the same.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = check_environment() {
        complain(&format_args!("intact-pi: {error}"));
        return ExitCode::from(EXIT_USAGE);
    }
    let interrupt = match cli.command.writes().then(Interrupt::listen).transpose() {
        Ok(interrupt) => interrupt.unwrap_or_default(),
        Err(error) => {
            complain(&format_args!("intact-pi: can't listen for signals: {error}"));
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match run(&cli.command, &interrupt, &mut BufWriter::new(io::stdout())) {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::FAILURE,
        Err(error) => {
            match &error {
                // As other programs end when nobody reads on (`| head -1`).
                PiError::Output(source) if source.kind() == ErrorKind::BrokenPipe => Signal::PIPE.end(),
                error => complain(&format_args!("intact-pi: {}", with_sources(error))),
            }
            if let PiError::Interrupted { signal, .. } = error {
                signal.end();
            }
            ExitCode::from(EXIT_USAGE)
        }
    }
}
