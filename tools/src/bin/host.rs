//! `intact-host`: an initiator for NVMe over RDMA and iSER, on the soft device.

use std::process::ExitCode;

use clap::Parser;
use intact::cli::{LogFormat, check_environment, complain, start_logging};
use intact::serve::with_sources;
use intact_tools::host::HostError;
use intact_tools::host::cli::{Cli, run};

/// Wrong arguments or files; clap uses the same.
const EXIT_USAGE: u8 = 2;
/// No connection, or no answer.
const EXIT_LINK: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = check_environment() {
        complain(&format_args!("intact-host: {error}"));
        return ExitCode::from(EXIT_USAGE);
    }
    start_logging(cli.log, LogFormat::Text);
    let Err(error) = run(&cli.command) else { return ExitCode::SUCCESS };
    if let Some(status) = error.status() {
        tracing::info!(%error, "failed");
        complain(&format_args!("status: {status}"));
        if let Some(advice) = error.advice() {
            complain(&format_args!("intact-host: {advice}"));
        }
        return ExitCode::FAILURE;
    }
    complain(&format_args!("intact-host: {}", with_sources(&error)));
    match error {
        HostError::Corrupt(_) => ExitCode::FAILURE,
        HostError::Invalid(_) | HostError::File { .. } => ExitCode::from(EXIT_USAGE),
        _ => ExitCode::from(EXIT_LINK),
    }
}
