//! Tests of the testbed through its public API.
//!
//! Tests in `obtain` and `command` need nothing but a shell. Those in `cluster` start a real Kubernetes: they are
//! `#[ignore]`d with a reason, and `.ci/kubernetes` runs them.

#![expect(clippy::expect_used, reason = "a failure of the set-up is a failure of the test")]

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
