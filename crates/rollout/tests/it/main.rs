//! The tests of the rollout, through its public API.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod cloneset;
mod crds;
mod engine;
mod objects;
mod webhook;
mod workloads;
