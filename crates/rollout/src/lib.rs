//! In-place vertical scaling of workloads: when the resources of a pod template change, the running pods are resized.
//!
//! ```text
//!   Deployment ─┐
//!   StatefulSet ├─▶ hooks of the workload ─▶ engine: compare, pace, resize, evaluate ─▶ pods/resize
//!   DaemonSet   │                                   ▲
//!   CloneSet   ─┘                                   └── RolloutPolicy: pace, canary, soak, failure
//! ```

mod activation;
mod advanced_sets;
pub mod api;
pub mod cloneset;
pub mod commands;
mod defined;
pub mod engine;
pub mod features;
pub mod install;
pub mod metrics;
pub mod policies;
mod progress;
mod quotas;
mod request;
pub mod run;
pub mod vpas;
pub mod webhook;
pub mod workloads;

pub use request::RequestError;
pub use run::{Config, Rollout, release_all};
