//! The admission webhook, on a real API server in this process.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod cluster;
mod fixture;
mod pod;
mod replicas;
mod robust;
mod vpa;
