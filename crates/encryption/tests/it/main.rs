//! Encryption at rest through its public API.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its builders too")]

mod configuration;
mod known_answers;
mod rotation;
mod support;
mod tampering;
