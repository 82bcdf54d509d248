//! The dashboard of an API server in this process, over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod actions;
mod fixture;
mod live;
mod pages;
mod requests;
mod rights;
mod usage;
