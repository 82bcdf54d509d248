//! `plumb top`: nodes, pods, VPAs and rollouts on a terminal, as they change.
//!
//! ```text
//!   keys, watches, metrics ──Event──▶ update(model) ──Effect──▶ sources: requests ──▶ further events
//!                                         │
//!                                         ▼
//!                                    view(model) ──▶ terminal
//! ```
//!
//! [`update`] and [`view`] do no I/O: [`sources`] has the watches and sends the requests, [`terminal`] has the screen. Numbers
//! and words are those of `plumb status`, by the same functions.

mod amounts;
mod detail;
mod dialog;
mod event;
mod keys;
mod model;
mod nodes;
mod observed;
mod pods;
mod rollouts;
mod sources;
mod styled;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod update;
mod view;
mod vpas;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::ListParams;
use plumb_client::Api;
use tokio::time::{MissedTickBehavior, interval};

use crate::client::{self, Cluster, block_on};
use crate::status::watch::Notice;

use event::{Effect, Event};
use model::Model;
use sources::Sources;
use terminal::Screen;

/// Show nodes, pods, VPAs and rollouts on the terminal, as they change; resize pods with a preview.
///
/// The keys 1 to 4 choose what is shown, the arrows a row, Enter its details, / a filter, s the column to sort by, r resizes
/// the pod of the row; ? lists all keys, and q quits. Usage is read every 15 seconds, all else is watched.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    plumb top\n  \
    plumb top nodes\n  \
    plumb top pods -n shop\n  \
    plumb top vpas -A")]
pub(crate) struct Top {
    /// What is shown first.
    #[arg(value_enum, value_name = "VIEW", default_value = "pods")]
    view: Tab,
    /// Objects of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    cluster: Cluster,
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Tab {
    /// Nodes: capacity, allocated, desired and used.
    Nodes,
    /// Containers of pods, as `plumb status` shows them.
    Pods,
    /// VPAs, as `plumb status vpa` shows them.
    Vpas,
    /// Workloads and their in-place rollouts.
    Rollouts,
}

impl Tab {
    const ALL: [Self; 4] = [Self::Nodes, Self::Pods, Self::Vpas, Self::Rollouts];

    fn title(self) -> &'static str {
        match self {
            Self::Nodes => "Nodes",
            Self::Pods => "Pods",
            Self::Vpas => "VPAs",
            Self::Rollouts => "Rollouts",
        }
    }

    /// What the rows are about.
    fn objects(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::Vpas => "VPAs",
            Self::Rollouts => "workloads",
        }
    }
}

/// How often the screen is redrawn at most because of changes in the cluster. Keys redraw it at once.
const REDRAW: Duration = Duration::from_millis(250);

pub(crate) fn run(args: Top) -> anyhow::Result<ExitCode> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() || is_dumb {
        bail!("plumb top needs a terminal; `plumb status --watch` prints what changes");
    }
    block_on(top(args))
}

async fn top(args: Top) -> anyhow::Result<ExitCode> {
    let (client, namespace) = args.cluster.connect().await?;
    let namespace = (!args.all_namespaces).then_some(namespace);
    // A server that cannot be reached, or does not allow it, ends the command; later failures are retried.
    let reads_all_pods = readable(&client, namespace.as_deref()).await?;
    let notice = Notice::default();
    let client = notice.reporting(client, true);
    let mut sources = Sources::new(client, namespace.as_deref(), reads_all_pods, notice);
    let mut screen = Screen::open().context("setting up the terminal")?;
    let mut model = Model::new(args.view, namespace, reads_all_pods, screen.size());
    let mut redraw = interval(REDRAW);
    redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_due = true;
    loop {
        tokio::select! {
            event = sources.next() => {
                let is_of_user = matches!(event, Event::Key(_) | Event::Size { .. });
                for effect in update::update(&mut model, event) {
                    match effect {
                        Effect::Quit => return Ok(ExitCode::SUCCESS),
                        effect => sources.perform(effect),
                    }
                }
                is_due = !is_of_user;
                if is_of_user {
                    screen.draw(&mut model)?;
                }
            }
            _ = redraw.tick(), if is_due => {
                screen.draw(&mut model)?;
                is_due = false;
            }
        }
    }
}

/// Whether the pods of all namespaces can be read, which the sums of nodes need; an error if not even those of the namespace
/// can.
async fn readable(client: &Client, namespace: Option<&str>) -> anyhow::Result<bool> {
    let first = ListParams { limit: Some(1), ..ListParams::default() };
    let all: Api<Pod> = Api::all(client.clone());
    match (all.list(&first).await, namespace) {
        (Ok(_), None) => Ok(true),
        (Ok(_), Some(namespace)) => {
            client::check_namespace(client, namespace).await?;
            Ok(true)
        }
        (Err(kube::Error::Api(status)), Some(namespace)) if status.code == 403 => {
            let own: Api<Pod> = Api::namespaced(client.clone(), namespace);
            own.list(&first).await.map_err(client::refusal)?;
            Ok(false)
        }
        (Err(error), _) => Err(client::refusal(error)),
    }
}
