//! The Vertical Pod Autoscaler, compatible with Kubernetes' own: recommender, updater and admission webhook.
//!
//! ```text
//!   metrics.k8s.io, Prometheus,        ┌─────────────┐  status.recommendation  ┌─────────┐  /resize, eviction
//!   OOM kills, checkpoints        ───▶ │ recommender │ ──────────────────────▶ │ updater │ ───────────────────▶ pods
//!                                      └─────────────┘            │            └─────────┘
//!                                                                 │            ┌───────────┐  patch of new pods
//!                                                                 └──────────▶ │ admission │ ───────────────────▶ pods
//!                                                                              └───────────┘
//! ```
//!
//! The three share [`api`] (the custom resources), [`informers`], [`target`] (the pods that a VPA's targetRef
//! selects), [`vpas`] (which VPA controls a pod), [`node_groups`], [`recommendation`] (the recommendation for a pod)
//! and [`boost`] (the CPU start-up boost).

pub mod admission;
pub mod boost;
pub mod explain;
pub mod features;
pub mod informers;
pub mod install;
pub mod namespaces;
pub mod node_groups;
pub mod offline;
pub mod recommendation;
pub mod recommender;
pub mod target;
pub mod updater;
pub mod vpas;

pub use plumb_vpa_api as api;
