//! What the components of the autoscaler share; where it needs a cluster, on a real API server in this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod boost;
mod crds;
mod install;
mod recommendation;
mod target;
mod vpas;
