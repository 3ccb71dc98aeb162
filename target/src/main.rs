//! `intact`: the target's command line.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use intact::cli::{self, Cli, Command, EXIT_CONFIG, complain};
use intact::serve::{self, ServeError};

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = cli::check_environment() {
        complain(&format_args!("intact: {error}"));
        return ExitCode::from(EXIT_CONFIG);
    }
    match cli.command {
        Command::Check(check) => match cli::check(&check.config) {
            Ok(plan) => match std::io::stdout().write_all(plan.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    complain(&format_args!("intact: can't write to stdout: {error}"));
                    ExitCode::FAILURE
                }
            },
            Err(errors) => {
                complain(&errors);
                ExitCode::from(EXIT_CONFIG)
            }
        },
        Command::Serve(arguments) => {
            cli::start_logging(arguments.log, arguments.log_format);
            match serve::serve(&arguments.config) {
                Ok(()) => ExitCode::SUCCESS,
                Err(ServeError::Config(errors)) => {
                    complain(&errors);
                    ExitCode::from(EXIT_CONFIG)
                }
                Err(error) => {
                    complain(&format_args!("intact: {}", serve::with_sources(&error)));
                    ExitCode::FAILURE
                }
            }
        }
    }
}
