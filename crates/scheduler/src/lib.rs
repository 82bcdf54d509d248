//! Pods to nodes, with resizes accounted for.
//!
//! ```text
//!   nodes, pods, budgets, namespaces                            ┌──▶ bind
//!            │ watch                                            ├──▶ say why not (condition, event)
//!            ▼                                                  ├──▶ evict
//!   Cluster (sums, tallies, claims) ◀── Planner::next ──────────┘
//!            ▲                             ▲
//!            └── filter ▸ score ▸ preempt  └── queue: active, backing off, parked by class
//! ```
//!
//! [`Planner`] is the whole of it without a clock or a client: it is told what happens and says what to do. [`run`]
//! is the thin loop around it. What a pod counts for is [`plumb_resize::accounting`]'s to say: on a node the larger
//! of what is desired, allocated and actual, as the rules have it, so that a resize under way is never forgotten.
//!
//! | question | module |
//! |---|---|
//! | what does a pod ask of its node and its neighbours? | `shape`, `facts` |
//! | what is where, and how much is free? | `cluster`, `room`, `tally`, `claims` |
//! | will a node do, and which is best? | `filter`, `score`, `choose` |
//! | who has to leave? | `preempt` |
//! | who is next, and whom do news help? | `queue`, `planner` |

mod choose;
mod claims;
mod cluster;
mod events;
mod facts;
pub mod features;
mod filter;
mod informers;
mod load;
mod metrics;
mod perform;
pub mod planner;
mod preempt;
mod queue;
mod room;
mod run;
mod score;
mod shape;
mod tally;

pub use metrics::{Attempt, Metrics};
pub use planner::{Decision, Eviction, Planner, PodRef, Settings};
pub use queue::Depths;
pub use run::{Config, USER, run};
