//! `intact`: the target's command line.

use std::process::ExitCode;

use clap::Parser;
use intact::cli::{self, Cli, Command, EXIT_CONFIG};
use intact::serve::{self, ServeError};

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = cli::check_environment() {
        eprintln!("intact: {error}");
        return ExitCode::from(EXIT_CONFIG);
    }
    match cli.command {
        Command::Check(check) => match cli::check(&check.config) {
            Ok(plan) => {
                print!("{plan}");
                ExitCode::SUCCESS
            }
            Err(errors) => {
                eprintln!("{errors}");
                ExitCode::from(EXIT_CONFIG)
            }
        },
        Command::Serve(arguments) => {
            cli::start_logging(arguments.log, arguments.log_format);
            match serve::serve(&arguments.config) {
                Ok(()) => ExitCode::SUCCESS,
                Err(ServeError::Config(errors)) => {
                    eprintln!("{errors}");
                    ExitCode::from(EXIT_CONFIG)
                }
                Err(error) => {
                    eprintln!("intact: {}", serve::with_sources(&error));
                    ExitCode::FAILURE
                }
            }
        }
    }
}
