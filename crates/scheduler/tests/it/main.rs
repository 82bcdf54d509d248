//! The scheduler: its decisions in a world made of values, and itself on a real API server in this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod accounting;
mod differential;
mod laws;
mod live;
mod messages;
mod neighbours;
mod preemption;
mod queue;
mod world;
