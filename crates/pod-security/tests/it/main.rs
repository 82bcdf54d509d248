//! The public API of `plumb-pod-security`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod checks;
mod configuration;
mod existing;
mod pods;
mod policies;
mod versions;
