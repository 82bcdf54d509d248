//! What the components of the Vertical Pod Autoscaler share.
//!
//! ```text
//!   metrics.k8s.io, Prometheus,        ┌─────────────┐  status.recommendation  ┌─────────┐  /resize, eviction
//!   OOM kills, checkpoints        ───▶ │ recommender │ ──────────────────────▶ │ updater │ ───────────────────▶ pods
//!                                      └─────────────┘            │            └─────────┘
//!                                                                 │            ┌───────────────┐  patch of new pods
//!                                                                 └──────────▶ │ vpa-admission │ ───────────────────▶ pods
//!                                                                              └───────────────┘
//! ```
//!
//! Each box is a crate. They share [`informers`], [`target`] (the pods that a VPA's targetRef selects), [`vpas`] (which VPA
//! controls a pod), [`node_groups`], [`recommendation`] (the recommendation for a pod), [`boost`] (the CPU start-up
//! boost) and [`growth`] (how far a node may raise limits). The custom resources are in `plumb_vpa_api`.

pub mod annotations;
pub mod boost;
pub mod features;
pub mod growth;
pub mod informers;
pub mod install;
pub mod namespaces;
pub mod node_groups;
pub mod recommendation;
pub mod target;
pub mod vpas;
