//! The rules of an in-place pod resize.

pub mod admission;
pub mod aggregate;
pub mod alpha;
pub mod cgroup;
pub mod field;
pub mod list;
pub mod memory;
pub mod oom;
pub mod plan;
pub mod pod;
pub mod qos;
pub mod quantity;
pub mod queue;
pub mod resource;
pub mod rules;
pub mod status;

pub use quantity::{Format, Quantity, QuantityError};
