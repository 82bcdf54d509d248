//! The autoscaler through its public API; where it needs a cluster, on a real API server in this process.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod admission;
mod boost;
mod crds;
mod csv;
mod explain;
mod fuzz;
mod history;
#[path = "../common/in_process_webhook.rs"]
mod in_process_webhook;
mod install;
mod prometheus;
mod recommendation;
mod recommender;
mod target;
mod updater;
mod vpas;
