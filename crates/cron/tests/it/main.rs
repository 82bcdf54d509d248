//! The tests of `plumb-cron`, through its public API.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its builders too")]

mod schedules;
mod times;
