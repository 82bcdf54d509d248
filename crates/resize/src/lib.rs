//! The rules of an in-place pod resize.

pub mod quantity;

pub use quantity::{Format, Quantity, QuantityError};
