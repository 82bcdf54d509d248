//! Connections to the node agents (kubelets).
//!
//! The Node has the address of its agent. The connection is TLS: the agent's certificate must be of the cluster's authority and
//! for that address, and the API server has a client certificate.

mod client;
mod endpoint;

pub(crate) use client::error_text;
pub use client::{KubeletClient, KubeletClientError};
pub(crate) use endpoint::Endpoint;
