//! What the client sends and how it reads the answers.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod api;
mod codec;
