//! What a node does with packets by rules of `nf_tables`, beyond the network of its pods.
//!
//! ```text
//!   watch Services, EndpointSlices ──▶ state (synchronous index) ──▶ rules (pure) ──▶ one transaction of the kernel
//! ```
//!
//! [`services`] sends connections to Services to their endpoints, as kube-proxy does. [`policies`] drops connections that
//! network policies do not allow.

pub mod policies;
pub mod services;
