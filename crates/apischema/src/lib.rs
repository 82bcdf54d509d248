//! The schema table of the Kubernetes API, and everything it drives.
//!
//! There is no I/O in this crate, no async, no clock and no client: bytes and values in, values and verdicts out.

pub mod json;
pub mod openapi;
pub mod patch;
pub mod protobuf;
mod scalar;
pub mod schema;
mod zero;

pub use schema::Schema;
