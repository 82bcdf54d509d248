//! Network policies: which connections the pods of this node may have.
//!
//! ```text
//!   NetworkPolicies ─┐
//!   Namespaces ──────┼──▶ State (synchronous index) ──▶ desired Table ──▶ changes ──▶ one transaction of the kernel
//!   Pods ────────────┤                                     ▲
//!   the runtime ─────┘ addresses of this node's pods       └── applied Table
//! ```
//!
//! # What the kernel has
//!
//! ```text
//!   table ip plumb-<hash>-policies
//!     map egress-pods, ingress-pods   address of a pod that policies select ──▶ goto a chain of rules
//!     chain forward-egress            hook forward   the pod that has begun the connection ▸ egress-pods
//!     chain forward-ingress           hook forward   the pod that the connection is to     ▸ ingress-pods
//!     chain input-egress              hook input     to the machine itself: as forward-egress
//!     chain e-<hash>, i-<hash>        a rule for each combination of peers and ports ▸ accept; at last ▸ drop
//!     set p-<hash>                    addresses of the pods that a peer selects, in the whole cluster
//!     set b-<hash>, t-<hash>          addresses of ipBlocks; protocols and ports
//!     set n-<hash>                    addresses, protocols and ports of a named port
//!     set self                        address . address of each pod that policies select: it reaches itself
//! ```
//!
//! Chains and the sets of blocks and ports are named by their content, and never changed: a changed policy is a new chain that
//! the elements of the maps refer to, in one transaction. Pods with the same policies share a chain.
//!
//! # Connections, not packets
//!
//! Rules read the connection that a packet belongs to: the source of its first packet, and the destination after translations,
//! which is where its answers come from. So the packets of both directions get the verdict that the connection gets by the
//! policies of now: a connection that is no longer allowed ends, whichever side sends, and an answer needs no rule. Nothing
//! has to be remembered about connections that were accepted, and nothing is lost when the rules are replaced. ICMP errors
//! belong to the connection that they are about. A packet that belongs to no connection is dropped if its pod has policies.
//!
//! The machine itself always reaches its pods: what it sends passes neither hook, and the input hook has the answers by their
//! connection, which no pod has begun.

mod encode;
mod engine;
mod local;
mod policy;
mod selector;
mod state;
mod table;

pub use encode::{removal, replacement, update};
pub use engine::{Config, Policies};
pub use local::{LocalPods, NotCovered, PodKey, StartedPod};
pub use policy::{Policy, Rule};
pub use selector::PodSelector;
pub use state::{ServedPeer, State};
pub use table::{
    Allow, Chain, ChainName, Change, Direction, Element, NamedPort, PeerKey, Peers, Ports, SetContent,
    SetKey, SetName, Table, Touched, changes,
};
