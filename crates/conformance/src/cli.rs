//! The command lines.

mod differential;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::case::{Case, Dialect};
use crate::error::{Error, api};
use crate::runner::{self, Options, Summary};
use crate::table;

/// Runs the resize cases against the cluster that a kubeconfig leads to.
#[derive(Debug, Parser)]
#[command(name = "conformance", version)]
struct Arguments {
    /// The kubeconfig; `KUBECONFIG` or the usual place if not given.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Whose rules bind.
    #[arg(long, value_enum, default_value_t)]
    dialect: Dialect,
    /// An image on every node that has `/bin/sleep`.
    #[arg(long, default_value = "localhost/busybox:1")]
    image: String,
    /// How many cases run at once.
    #[arg(long, default_value_t = 4)]
    at_once: usize,
    /// Only cases whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Print the cases' names and do nothing.
    #[arg(long)]
    list: bool,
}

pub use differential::run_program as run_differential;

/// Runs the resize cases.
pub fn run() -> ExitCode {
    // An error means that one was chosen before, which is what is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match perform(Arguments::parse()) {
        Ok(summary) if summary.failed == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {}", full_text(&error));
            ExitCode::FAILURE
        }
    }
}

fn perform(arguments: Arguments) -> Result<Summary, Error> {
    let only = arguments.only.clone().unwrap_or_default();
    let cases: Vec<Case> = table::all().into_iter().filter(|case| case.name.contains(&only)).collect();
    if cases.is_empty() {
        return Err(Error::NoSuchCase(only));
    }
    if arguments.list {
        for case in cases {
            println!("{}", case.name);
        }
        return Ok(Summary::default());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)?;
    runtime.block_on(async {
        let client = client(arguments.kubeconfig).await?;
        let options = Options {
            dialect: arguments.dialect,
            image: arguments.image,
            at_once: arguments.at_once,
            ..Options::default()
        };
        let summary = runner::run(client, &cases, &options, |report| println!("{report}")).await?;
        println!("{summary}");
        Ok(summary)
    })
}

async fn client(path: Option<PathBuf>) -> Result<Client, Error> {
    let name =
        path.as_ref().map_or_else(|| "of the environment".to_owned(), |path| path.display().to_string());
    let unusable = |source| Error::Kubeconfig { path: name.clone(), source: Box::new(source) };
    let kubeconfig = match &path {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    }
    .map_err(unusable)?;
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(unusable)?;
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
