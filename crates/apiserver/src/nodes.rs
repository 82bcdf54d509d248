//! Requests to the node agents (kubelets), which the API server forwards.
//!
//! The Node has the address of its agent. The connection is TLS: the agent's certificate must be of the cluster's authority and
//! for that address, and the API server has a client certificate. Bodies are streamed.

mod endpoint;
mod link;
pub(crate) mod log;
pub(crate) mod proxy;
pub(crate) mod streams;

pub use link::{LinkError, NodeLink};
