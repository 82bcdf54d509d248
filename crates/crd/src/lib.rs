//! Custom kinds: what a `CustomResourceDefinition` may say, and what it then asks of objects.
//!
//! ```text
//!   definition ──▶ definition::{create, update}: what is wrong with it, in kube-apiserver's words
//!        │
//!        └─ names::settle ▸ accepted names, conditions
//!        └─ Version::compile ──▶ schema, rules, columns, paths of one served version
//!                                      │
//!   object ──▶ prune ▸ default ▸ validate (types, bounds, lists, embedded objects, rules) ──▶ what is wrong
//! ```
//!
//! No I/O, no clock, no client here: values in, values and verdicts out. Objects and definitions come from
//! strangers; depth is bounded by whoever decoded them, patterns run in linear time, and rules run within the
//! budget that kube-apiserver gives them.

pub mod columns;
pub mod definition;
pub mod format;
pub mod names;
pub mod object;
pub mod rules;
pub mod schema;
mod version;

pub use schema::Schema;
pub use version::{Column, Scale, Version};
