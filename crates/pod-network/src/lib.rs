//! One pod network over several nodes: each agent routes the pod networks of the other nodes to them.
//!
//! ```text
//!   Node objects ──▶ Peers (index, validated) ──▶ decide: a route for each ──▶ netlink, nf_tables
//!                                                        ▲                         │
//!                                     interfaces, their addresses ◀── notifications of the kernel
//! ```
//!
//! A peer on a shared link is reached by a route via its address; any other one through a VXLAN tunnel, whose neighbour and
//! forwarding entries follow from Node objects: nothing is learned from the network. See [`Mode`].
//!
//! A crate of its own, because it is a client of the API and of the kernel and of nothing else: the runtime, which makes the
//! bridge of pods, knows no API, and a node whose pods are in another pod network does without this.
//!
//! | module | purpose |
//! |---|---|
//! | [`peers`] | which nodes have which networks, and which of them are believed |
//! | [`plan`] | which routes and tunnels there must be; pure |
//! | `kernel` | what there is, and the changes that make it so |
//! | `rules` | what the machine forwards for other nodes |
//! | [`Config::run`] | the loop |
//! | [`machine`] | namespaces in which several nodes run on one machine |

mod config;
mod kernel;
pub mod machine;
mod monitor;
mod network;
pub mod peers;
pub mod plan;
mod rules;
mod watch;

pub use config::{Config, Mode, Names, UnknownMode, Vxlan};
pub use kernel::pod_mtu;
pub use network::{clear, wait_for_pod_network};
