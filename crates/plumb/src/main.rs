//! Plumb: in-place vertical scaling for Kubernetes, as one binary.

mod backup;
mod cli;
mod controllers;
mod up;

use clap::Parser as _;
use std::process::ExitCode;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| cli.log.clone().into()),
        )
        .with_writer(std::io::stderr)
        .init();
    let done = match cli.command {
        Command::Up(up) => up::run(up),
        Command::Backup(backup) => backup::backup(&backup),
        Command::Restore(restore) => backup::restore(&restore),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plumb: {error:#}");
            ExitCode::FAILURE
        }
    }
}
