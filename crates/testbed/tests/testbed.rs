//! The testbed through its public door.
//!
//! Tests in `obtain` and `command` need nothing but a shell. Those in `cluster` start a real Kubernetes: they are
//! ignored aloud by a plain `cargo test`, and `.ci/kubernetes` runs them.

#![expect(clippy::expect_used, reason = "what these tests build on must hold, or there is nothing to test")]

#[path = "testbed/cluster.rs"]
mod cluster;
#[path = "testbed/command.rs"]
mod command;
#[path = "testbed/machine_state.rs"]
mod machine_state;
#[path = "testbed/obtain.rs"]
mod obtain;
#[path = "testbed/scratch.rs"]
mod scratch;
