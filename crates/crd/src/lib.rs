//! Custom kinds: validation of `CustomResourceDefinitions`, and pruning, defaulting and validation of custom resources.
//!
//! ```text
//!   definition ──▶ definition::{create, update}: errors, with kube-apiserver's messages
//!        │
//!        └─ names::accept_names ▸ accepted names, conditions
//!        └─ Version::compile ──▶ schema, rules, columns, paths of one served version
//!                                      │
//!   object ──▶ prune ▸ default ▸ validate (types, bounds, lists, embedded objects, rules) ──▶ errors
//! ```
//!
//! The crate has no I/O, no clock and no client. Objects and definitions are untrusted: the decoder bounds their depth,
//! patterns run in linear time, and rules run within the cost limits of kube-apiserver.

pub mod columns;
pub mod definition;
mod format;
pub mod names;
mod object;
pub mod rules;
pub mod schema;
mod version;

pub use schema::Schema;
pub use version::{Column, Scale, Version};
