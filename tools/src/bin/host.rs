//! `intact-host`: an NVMe-oF/RDMA initiator on the soft device.

use std::process::ExitCode;

use clap::Parser;
use intact::cli::{LogFormat, check_environment, complain, start_logging};
use intact::serve::with_sources;
use intact_tools::host::cli::{Cli, run};
use intact_tools::host::{HostError, advice, describe};

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
    match error {
        HostError::Status { command, status } => {
            tracing::info!(%command, "failed");
            complain(&format_args!("status: {}", describe(command, status)));
            if let Some(advice) = advice(command, status) {
                complain(&format_args!("intact-host: {advice}"));
            }
            ExitCode::FAILURE
        }
        error => {
            complain(&format_args!("intact-host: {}", with_sources(&error)));
            match error {
                HostError::Corrupt(_) => ExitCode::FAILURE,
                HostError::Invalid(_) | HostError::File { .. } => ExitCode::from(EXIT_USAGE),
                _ => ExitCode::from(EXIT_LINK),
            }
        }
    }
}
