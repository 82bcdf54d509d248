//! The client against a real containerd. These tests are ignored by a plain `cargo test`; `.ci/containerd` runs them.

mod containerd;
mod failures;
mod node;
