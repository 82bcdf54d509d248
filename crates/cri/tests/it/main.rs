//! The client against a fake runtime, and against a real containerd: those tests are ignored by a plain `cargo test`, and
//! `.ci/containerd` runs them.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod calls;
mod containerd;
mod failures;
mod fake;
mod node;
mod real_systemd;
mod systemd;
mod units;
mod updates;
