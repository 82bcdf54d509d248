//! The public API of `plumb-flowcontrol`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod bootstrap;
mod borrowing;
mod dropped;
mod fairness;
mod laws;
mod levels;
mod schemas;
mod shuffle;
mod work;
