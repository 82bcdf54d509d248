//! Routes and tunnels with a real kernel: two network namespaces are two machines.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod machine;
mod network;
