//! The protocol through the public API.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by ending")]

mod connections;
mod frames;
mod fuzz;
