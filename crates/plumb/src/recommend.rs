//! `plumb recommend`: what history gives, through the engine of the recommender, without a cluster.

mod samples;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{ArgGroup, Args, ValueEnum};

use crate::cli::Tuning;

/// Recommend requests from usage in the past.
///
/// The engine is that of the recommender: the same samples give the same numbers. Nothing is written to any cluster.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("history").required(true).args(["samples"])),
    after_help = "Examples:\n  \
        plumb recommend --samples usage.csv\n  \
        plumb recommend --samples - -o json < usage.csv\n  \
        plumb recommend --samples usage.csv --explain --plot usage.svg"
)]
pub(crate) struct Recommend {
    /// Read history from a CSV file: time,container,resource,value. `-` is standard input.
    ///
    /// The time is in RFC 3339 or in seconds since 1970; the resource is cpu (in cores), memory (in bytes) or oom (the
    /// memory request at an OOM kill, in bytes). A header is optional. Samples of a container must be in the order of
    /// their times.
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// How recommendations are printed.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Format,
    /// Print where the numbers come from, too: percentiles, margin, confidence, limits, histograms.
    #[arg(long)]
    explain: bool,
    /// Draw the histograms with their bounds into a file.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    tuning: Tuning,
}

/// How recommendations are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// For programs, as in the status of a VPA.
    Json,
    /// The same as YAML.
    Yaml,
}

pub(crate) fn run(args: Recommend) -> anyhow::Result<()> {
    samples::run(&args)
}

/// Writes to standard output. A reader that has gone away, such as `head`, is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output")
        }
        _ => Ok(()),
    }
}
