//! The autoscaler through its public API; where it needs a cluster, on a real API server in this process.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod admission;
mod boost;
mod crds;
mod csv;
mod explain;
mod fuzz;
mod history;
mod install;
mod prometheus;
mod recommendation;
mod recommender;
mod target;
mod updater;
mod vpas;
