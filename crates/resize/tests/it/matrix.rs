//! KEP-1287's matrix of end-to-end tests, as tables over validation, admission, plan and projection.
//!
//! Every row is walked in both dialects, there and back again.

mod limit_ranges;
mod one_container;
mod policies;
mod quota;
mod three_containers;
mod walk;
