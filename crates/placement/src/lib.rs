//! Which nodes a pod may run on, apart from their capacity.
//!
//! The scheduler filters nodes by these predicates, the `DaemonSet` controller decides by the same ones which nodes get a
//! pod, and the node agent admits pods by them, so that they never disagree. There is no I/O here: objects in, answer out.
//!
//! | question | type |
//! |---|---|
//! | does a selector match these labels? | [`Selector`], [`Requirement`] |
//! | does a pod's `nodeSelector` and node affinity match a node? | [`NodeAffinity`] |
//! | does a pod tolerate a taint? | [`Toleration`] |
//! | do two pods need the same port of the node? | [`HostPort`] |

mod host_ports;
mod labels;
mod node_affinity;
mod taints;

pub use host_ports::HostPort;
pub use labels::{Labels, Requirement, Selector};
pub use node_affinity::{NodeAffinity, NodeTerm};
pub use taints::{Toleration, UNSCHEDULABLE_TAINT};
