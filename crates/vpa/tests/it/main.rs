//! Tests of what the components of the autoscaler share. Those that need a cluster run an API server in this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod boost;
mod crds;
mod install;
mod recommendation;
mod target;
mod vpas;
