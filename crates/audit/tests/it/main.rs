//! Tests of the audit log: policies, events and files.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod events;
mod logs;
mod policies;
