//! KEP-1287's matrix of end-to-end tests, as tables over validation, admission, plan and projection.
//!
//! Every row is walked in both dialects, there and back again. The section on limit ranges is not here: what
//! a limit range allows is decided by the API server's admission, not by this crate.

mod one_container;
mod policies;
mod quota;
mod three_containers;
mod walk;
