//! What is installed, through the public API.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod apply;
mod chart;
mod helm;
mod manifests;
mod monitoring;
mod rbac;
mod uninstall;
mod upstream;
