//! The store through its public API.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its builders too")]

mod backups;
mod crashes;
mod damage;
mod directory;
mod faults;
mod memory;
mod model;
mod quota;
mod sim;
mod support;
mod transformer;
mod watches;
mod writes;
