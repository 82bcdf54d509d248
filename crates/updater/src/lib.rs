//! The updater: applies recommendations to running pods, in place or by eviction, as the update mode says.
//!
//! ```text
//!   pods, VPAs, nodes ──▶ state ──▶ decide ─────────────────────────▶ run
//!      (informers)       (parsed)    mode ▸ priority ▸ in_place ▸      (resize, evict, annotate, events,
//!                                    budget ▸ obstacle                  condition, metrics)
//! ```
//!
//! Every decision is a pure function of plain data:
//!
//! | question | module |
//! |---|---|
//! | what may the updater do to running pods of this VPA? | [`mode`] |
//! | is a pod to be updated, and before which others? | [`priority`] |
//! | is it resized now, does it wait, or is it evicted? | [`in_place`] |
//! | which recommendations did a node find infeasible? | [`attempt`] |
//! | how many pods of a workload may be disrupted at once? | [`budget`] |
//! | may this pod be evicted for this recommendation? | [`requirements`] |
//! | would the API server or the node reject the resize? | [`obstacle`] |
//! | the API server rejected it: what is next? | [`refusal`] |
//! | do evicted pods come back without the recommendation? | [`pace`] |
//! | may memory be lowered so far? | [`memory_guard`] |
//! | is the recommendation from before an OOM kill? | [`oom_hold`] |
//! | does a pod shrink so that another one on its node can grow? | [`shrink_first`] |
//!
//! **Invariant: the update mode `InPlace` never evicts.** It is decided by [`in_place::decide_in_place`], whose answer has
//! no variant for an eviction, and performed by an [`actuate::InPlaceActuator`], which holds no evictor.
//!
//! The [`index`] is fed by watches and returns the VPAs that a change affects; [`run`] reconciles them.

pub mod actuate;
mod admission_status;
pub mod attempt;
pub mod budget;
pub mod decide;
pub mod in_place;
pub mod index;
pub mod memory_guard;
pub mod metrics;
pub mod mode;
pub mod obstacle;
pub mod oom_hold;
pub mod options;
pub mod pace;
mod peaks;
pub mod priority;
pub mod rate_limit;
pub mod refusal;
pub mod report;
pub mod requirements;
pub mod run;
pub mod shrink_first;
pub mod state;
mod unboost;

pub use metrics::UpdaterMetrics;
pub use options::Options;
pub use run::{Config, Updater};
