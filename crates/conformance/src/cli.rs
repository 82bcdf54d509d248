//! The command lines.

mod differential;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::case::{Case, Dialect};
use crate::error::{Error, api};
use crate::glob::matches;
use crate::junit::junit;
use crate::report::{Report, Summary, Verdict};
use crate::runner::{self, Options};
use crate::target::Target;
use crate::{skips, table};

/// Runs the resize cases against the cluster that a kubeconfig leads to.
#[derive(Debug, Parser)]
#[command(name = "plumb-conformance", version)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
struct Arguments {
    /// The kubeconfig; `KUBECONFIG` or the usual place if not given.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// What it leads to.
    #[arg(long, value_enum, default_value_t)]
    target: Target,
    /// Whose rules bind. [default: v1.36 for kubernetes, else kep]
    #[arg(long, value_enum)]
    dialect: Option<Dialect>,
    /// An image on every node that has `/bin/sleep`. [default: localhost/busybox:1, or plumb/load as it is]
    #[arg(long)]
    image: Option<String>,
    /// The node is this machine: read actual resources from its cgroups, too.
    #[arg(long)]
    cgroups: bool,
    /// The container runtime was slowed down (`plumb up --runtime-delay`): check resizes in progress.
    #[arg(long)]
    slowed: bool,
    /// The feature gates that were switched off (`plumb up --feature-gates A=false`); the cases about them are run.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    gates_off: Vec<String>,
    /// In-place rollouts run in the cluster (`plumb up --feature-gates InPlaceWorkloadVerticalScaling=true`).
    #[arg(long)]
    in_place_rollout: bool,
    /// How many cases run at once.
    #[arg(long, default_value_t = 4, value_name = "N")]
    at_once: usize,
    /// Only cases of such a name, in which `*` stands for any part of it; more than once for several.
    #[arg(long, value_name = "GLOB")]
    only: Vec<String>,
    /// Where to write what came of the cases, as the XML of `JUnit`.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print the cases' names and do nothing.
    #[arg(long)]
    list: bool,
}

pub use differential::run_program as run_differential;

/// Runs the resize cases.
pub fn run() -> ExitCode {
    // An error means that a provider was installed before, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match perform(Arguments::parse()) {
        Ok(summary) if summary.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("plumb-conformance: {}", full_text(&error));
            ExitCode::FAILURE
        }
    }
}

fn perform(arguments: Arguments) -> Result<Summary, Error> {
    let only = &arguments.only;
    let is_wanted = |case: &Case| only.is_empty() || only.iter().any(|pattern| matches(pattern, case.name));
    let cases: Vec<Case> = table::all().into_iter().filter(is_wanted).collect();
    if cases.is_empty() {
        return Err(Error::NoSuchCase(only.join(" ")));
    }
    if arguments.list {
        for case in cases {
            println!("{}", case.name);
        }
        return Ok(Summary::default());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    runtime.block_on(run_cases(arguments, &cases))
}

async fn run_cases(arguments: Arguments, cases: &[Case]) -> Result<Summary, Error> {
    let target = arguments.target;
    let usual = if target == Target::Kubernetes { Dialect::V1_36 } else { Dialect::Kep };
    let dialect = arguments.dialect.unwrap_or(usual);
    let mut options = Options {
        at_once: arguments.at_once,
        is_slowed: arguments.slowed,
        in_place_rollout: arguments.in_place_rollout,
        gates_off: arguments.gates_off,
        skips: skips::all().map_err(|error| Error::List(error.to_string()))?,
        ..target.options(dialect, arguments.cgroups)
    };
    if let Some(image) = arguments.image {
        options.image = image;
    }
    let client = client(arguments.kubeconfig).await?;
    let mut reports = Vec::new();
    let summary = runner::run(client, cases, &options, |report| {
        println!("{report}");
        reports.push(report.clone());
    })
    .await?;
    let failed: Vec<&Report> =
        reports.iter().filter(|report| matches!(report.verdict, Verdict::Failed(_))).collect();
    // The lines of the failures have scrolled away by now.
    if !failed.is_empty() && failed.len() < reports.len() {
        println!();
        for report in failed {
            println!("{report}");
        }
    }
    println!("{summary}");
    if let Some(path) = arguments.junit {
        let suite = format!("plumb-conformance.{}.{}", target.name(), dialect.name());
        let written = std::fs::write(&path, junit(&suite, &reports));
        written.map_err(|source| Error::Unwritten { path: path.display().to_string(), source })?;
    }
    Ok(summary)
}

/// A client for the cluster of a kubeconfig, or of the environment. It retries nothing: a refusal is a result.
pub async fn client(path: Option<PathBuf>) -> Result<Client, Error> {
    let name =
        path.as_ref().map_or_else(|| "of the environment".to_owned(), |path| path.display().to_string());
    let unusable = |source| Error::Kubeconfig { path: name.clone(), source: Box::new(source) };
    let kubeconfig = match &path {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    }
    .map_err(unusable)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)?;
    config.default_retry = false;
    Client::try_from(config).map_err(api("make a client"))
}

fn full_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}
