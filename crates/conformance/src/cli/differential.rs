//! The command line of the differential test.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use kube::Client;

use super::{client, full_text};
use crate::differential::{
    AllowedDifferences, Case, Options, Servers, controllers, expressions, replay, run,
};
use crate::error::Error;

/// Sends the same requests to two API servers, and prints where their responses differ.
#[derive(Debug, Parser)]
#[command(name = "differential", version)]
struct Arguments {
    /// The kubeconfig of the server that is right: kube-apiserver, started by
    /// `testbed up --control-plane-only` with the flags in docs/differential.md.
    #[arg(long)]
    reference: PathBuf,
    /// The kubeconfig of the server that is tested: `plumb up --resize-dialect v1.36`.
    #[arg(long)]
    subject: PathBuf,
    #[command(subcommand)]
    what: Option<What>,
    /// The namespace that the cases take place in.
    #[arg(long, default_value = "differential")]
    namespace: String,
    /// How many cases.
    #[arg(long, default_value_t = 1000)]
    cases: u64,
    /// Begin no more after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// What the cases are made from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first case.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many at once.
    #[arg(long, default_value_t = 16)]
    at_once: usize,
    /// Only kinds whose address (`v1/pods`) contains this.
    #[arg(long)]
    only: Option<String>,
    /// Stop after so many different findings.
    #[arg(long, default_value_t = 20)]
    findings: usize,
    /// Take this kept difference for one that is not listed, to see what it covers; may be given several times.
    #[arg(long)]
    question: Vec<String>,
    /// Play the cases in this file, one a line, instead of making cases up.
    #[arg(long)]
    replay: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Performs the same steps in two clusters with controllers and without nodes, and prints where their objects differ.
    Controllers {
        /// Only scenarios of such a name, in which `*` stands for any part of it; more than once for several.
        #[arg(long, value_name = "GLOB")]
        only: Vec<String>,
        /// How many at once.
        #[arg(long, default_value_t = 24, value_name = "N")]
        at_once: usize,
    },
    /// Compiles and evaluates expressions (CEL) on both, and prints where they do not agree.
    Expressions {
        /// How many.
        #[arg(long, default_value_t = 5000, value_name = "N")]
        cases: u64,
        /// What they are made from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

/// Runs the differential test.
pub fn run_program() -> ExitCode {
    // An error means that a provider was installed before, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match perform(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("differential: {}", full_text(&error));
            ExitCode::FAILURE
        }
    }
}

fn perform(arguments: Arguments) -> Result<bool, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    runtime.block_on(async {
        let [reference, subject] =
            [client(Some(arguments.reference)).await?, client(Some(arguments.subject)).await?];
        match arguments.what {
            Some(What::Controllers { only, at_once }) => {
                return compare_controllers(reference, subject, controllers::Options { only, at_once }).await;
            }
            Some(What::Expressions { cases, seed }) => {
                let options = expressions::Options { cases, seed, ..expressions::Options::default() };
                let outcome = expressions::run(&reference, &subject, &options).await?;
                println!("{outcome}");
                return Ok(outcome.is_clean());
            }
            None => {}
        }
        let servers = Servers { reference, subject, namespace: arguments.namespace };
        let kept = AllowedDifferences::read()?.without(&arguments.question);
        if let Some(path) = arguments.replay {
            return replay_all(&servers, &kept, &path).await;
        }
        let options = Options {
            cases: arguments.cases,
            time: arguments.seconds.map(Duration::from_secs),
            seed: arguments.seed,
            first: arguments.first,
            at_once: arguments.at_once,
            only: arguments.only,
            findings: arguments.findings,
        };
        let outcome = run(&servers, &kept, &options).await?;
        println!("{outcome}");
        Ok(outcome.is_clean())
    })
}

async fn compare_controllers(
    reference: Client,
    subject: Client,
    options: controllers::Options,
) -> Result<bool, Error> {
    let kept = controllers::AllowedDifferences::read()?;
    let outcome = controllers::run(reference, subject, kept, &options, controllers::print).await?;
    println!("{outcome}");
    Ok(outcome.is_clean())
}

async fn replay_all(servers: &Servers, kept: &AllowedDifferences, path: &PathBuf) -> Result<bool, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::File { path: path.display().to_string(), source })?;
    let mut clean = true;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Case = serde_json::from_str(line).map_err(Error::Case)?;
        match replay(servers, kept, &case).await? {
            None => println!("the same: {line}"),
            Some(finding) => {
                clean = false;
                println!("{finding}\n");
            }
        }
    }
    Ok(clean)
}
