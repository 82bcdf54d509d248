//! The service proxy and network policies with the rules of a real kernel and real connections. Each test has a network namespace of
//! its own, which is the machine, and others for pods and a client outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by ending")]

mod changes;
mod cluster;
mod cluster_ip;
mod external;
mod machine;
mod model;
mod policies;
