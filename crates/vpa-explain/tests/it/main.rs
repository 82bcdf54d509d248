//! Explanations through their public API.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod explain;
mod fuzz;
mod history;
