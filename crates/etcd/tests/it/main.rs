//! The client and the store on a real etcd.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its builders too")]

mod client;
mod failures;
mod stores;
mod support;
