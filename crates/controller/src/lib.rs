//! What Kubernetes controllers are built from.
//!
//! ```text
//!   list + watch ──▶ reflector ──▶ store, indexes ──▶ work queue ──▶ reconcile: gather ▸ decide ▸ write
//!                                        ▲                                                      │
//!                                        └──────── own writes are awaited in the store ◀────────┘
//! ```
//!
//! A controller reaches the cluster only through a [`kube::Client`], so the same code runs beside an embedded API server
//! and against any Kubernetes.

pub mod metrics;

pub use plumb_supervise::{Backoff, Exponential, Random, system_random};
