//! A cluster on this machine: the API server, controllers, scheduler, autoscaler, rollout and nodes as one process.
//!
//! [`up`] runs it, [`join`] runs a node of a cluster that runs on another machine, and [`down`] removes what either has left.
//! [`components`] is the list of what runs, [`data_dir`] the layout of what is kept. The command line is `crates/plumb`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

// First, for its macros.
#[macro_use]
pub mod output;

mod admin_kubeconfig;
mod audit;
mod autoscaler;
pub mod backup;
pub mod components;
mod controllers;
mod dashboard;
pub mod data_dir;
mod definitions;
pub mod down;
mod encryption;
pub mod features;
pub mod flags;
mod holder;
pub mod invitation;
pub mod join;
mod nodes;
mod pod_network;
pub mod rollout;
mod scheduler;
mod service_manager;
pub mod signals;
#[cfg(feature = "test-hooks")]
mod test_hooks;
pub mod up;
mod usage;

use anyhow::Context as _;

/// Runs what waits for a server, on one thread: a command does one thing.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the asynchronous runtime")?;
    runtime.block_on(work)
}
