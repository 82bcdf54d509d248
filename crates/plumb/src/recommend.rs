//! `plumb recommend`: what history gives, through the engine of the recommender, without a cluster.

mod prometheus;
mod samples;

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

use crate::recommender_flags::{PrometheusFlags, Tuning};

/// Recommend requests from usage in the past.
///
/// The engine is that of the recommender: the same samples give the same numbers. Nothing is written to any cluster.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("history").required(true).args(["samples", "prometheus"])),
    after_help = "Examples:\n  \
        plumb recommend --samples usage.csv\n  \
        plumb recommend --samples - -o json < usage.csv\n  \
        plumb recommend --samples usage.csv --explain --plot usage.svg\n  \
        plumb recommend --prometheus http://localhost:9090 --prometheus-cadvisor-job-name kubelet\n  \
        plumb recommend --prometheus http://localhost:9090 -o html > report.html"
)]
pub(crate) struct Recommend {
    /// Read history from a CSV file: time,container,resource,value. `-` is standard input.
    ///
    /// The time is in RFC 3339 or in seconds since 1970; the resource is cpu (in cores), memory (in bytes) or oom (the
    /// memory request at an OOM kill, in bytes). A header is optional. Samples of a container must be in the order of
    /// their times.
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,
    /// Report on the containers of a cluster, from their history in Prometheus. Nothing is written.
    #[arg(long, value_name = "URL", alias = "prometheus-address")]
    prometheus: Option<String>,
    /// Report on one namespace. [default: all]
    #[arg(short, long, value_name = "NAME", conflicts_with = "samples", alias = "vpa-object-namespace")]
    namespace: Option<String>,
    /// The output format: `csv` and `html` are for reports on a cluster.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Format,
    /// Print where the numbers come from, too: percentiles, margin, confidence, limits, histograms.
    #[arg(long, conflicts_with = "prometheus")]
    explain: bool,
    /// Draw the histograms with their bounds into a file.
    #[arg(long, value_name = "FILE.svg", conflicts_with = "prometheus")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    tuning: Tuning,
    #[command(flatten)]
    prometheus_flags: PrometheusFlags,
}

impl Recommend {
    /// The error for flags that are valid by themselves and not together.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        let report = matches!(self.output, Format::Csv | Format::Html);
        (report && self.samples.is_some()).then_some("--output csv and html are for --prometheus")
    }
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
    /// For spreadsheets.
    Csv,
    /// A page for browsers.
    Html,
}

pub(crate) fn run(args: Recommend) -> anyhow::Result<()> {
    match &args.prometheus {
        Some(address) => prometheus::run(&args, address),
        None => samples::run(&args),
    }
}
