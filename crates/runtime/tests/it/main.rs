//! The runtime through its public API.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by ending")]

mod attacks;
mod cgroup_real;
mod cgroup_v2;
mod containers;
mod fake;
mod faults;
mod fuzz;
mod guards;
mod hostile_containers;
mod hostile_images;
mod images;
mod leaks;
mod machine;
mod network;
mod node;
mod pressure;
mod pulls;
mod restarts;
mod streams;
mod untrusted;
mod virtuals;
