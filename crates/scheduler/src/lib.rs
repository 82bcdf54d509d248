//! The scheduler: assigns pods to nodes, accounting for resizes.
//!
//! ```text
//!   nodes, pods, claims, volumes, …                             ┌──▶ bind
//!            │ informers                                        ├──▶ report unschedulable pods (condition, event)
//!            ▼                                                  ├──▶ preempt
//!   Cache (sums, counts, terms)     ◀── Planner::next ──────────┘
//!            ▲                             ▲
//!            └── filter ▸ score ▸ preempt  └── queue: active, backing off, unschedulable by class
//! ```
//!
//! [`Planner`] is the scheduler without a clock or a client: watch events in, decisions out. [`run`] is the thin loop around it.
//! What a pod is accounted for is decided by [`plumb_resize::accounting`]: on a node the larger of desired, allocated and actual
//! resources, as the dialect says, so that a resize in progress always counts.
//!
//! | question | module |
//! |---|---|
//! | what is read of a pod? | `pod_state`, `requirements` |
//! | which pods are where, and how much is free? | `cache`, `free_index`, `topology_counts`, `existing_terms` |
//! | which nodes are feasible, and which has the highest score? | `algorithm`, `filter`, `volumes`, `score` |
//! | which pods are preempted? | `preempt` |
//! | which pod is next, and which pods does a change help? | `queue`, `planner` |

mod algorithm;
mod cache;
mod events;
mod existing_terms;
pub mod features;
mod filter;
mod free_index;
mod informers;
mod metrics;
pub mod planner;
mod pod_state;
mod preempt;
mod queue;
mod requests;
mod requirements;
mod resources;
mod run;
mod score;
mod topology_counts;
mod volumes;

pub use metrics::{Attempt, Metrics};
pub use planner::{Decision, Planner, PodRef, Preemption, Settings};
pub use queue::Depths;
pub use run::{Config, USER, run};
pub use volumes::VolumeBinding;
