//! The client against registries in the test's process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod authentication;
mod fake;
mod images;
mod layers;
