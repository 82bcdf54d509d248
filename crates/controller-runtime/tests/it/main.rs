//! The toolkit through its public API: pure parts by themselves, the rest on an API server in this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod adoption;
mod controllers;
mod events;
mod example;
mod leader;
mod metrics;
mod reflectors;
mod stores;
mod work_queues;
