//! Predicates that decide which nodes a pod can run on, apart from capacity.
//!
//! The scheduler, the `DaemonSet` controller, admission and the node agent use the same predicates, so that they never disagree
//! about a node. The functions are pure.
//!
//! | question | type |
//! |---|---|
//! | does a selector match these labels? | [`Selector`], [`Requirement`] |
//! | does a pod's `nodeSelector` and node affinity match a node? | [`NodeAffinity`] |
//! | does a pod tolerate a taint? | [`Toleration`] |
//! | which features must a node declare for a pod, or for an update of it? | [`NodeFeature`] |
//! | do two pods need the same port of the node? | [`HostPort`] |
//! | which volume may a claim be bound to, and which nodes reach it? | [`volumes`] |

mod host_ports;
mod labels;
mod node_affinity;
mod node_features;
mod taints;
pub mod volumes;

pub use host_ports::HostPort;
pub use labels::{Labels, Requirement, Selector};
pub use node_affinity::{NodeAffinity, NodeTerm};
pub use node_features::{NodeFeature, required_to_run, required_to_update};
pub use taints::{Toleration, UNSCHEDULABLE_TAINT};
