//! The way to the nodes: what a client asks of a node's agent goes through the API server.
//!
//! The agent's address is what its Node says. The connection is TLS: the agent must show a certificate of our
//! authority for that address, and is shown one of ours. Nothing is kept in memory on the way through.

mod endpoint;
mod link;
pub(crate) mod log;
pub(crate) mod proxy;
pub(crate) mod streams;

pub use link::{LinkError, NodeLink};
