//! The scheduler: the decisions of its planner in a simulated cluster, and its loop on an API server in this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod accounting;
mod cluster;
mod differential;
mod inter_pod;
mod laws;
mod live;
mod messages;
mod preemption;
mod queue;
mod resize_preemption;
mod volumes;
