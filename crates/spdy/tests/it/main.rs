//! Tests of the public API.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod connections;
mod frames;
mod fuzz;
