//! The admission webhook: new pods get the recommended resources and the CPU start-up boost; VPAs are validated.
//!
//! ```text
//!   API server ── AdmissionReview ──▶ plumb_webhook ──▶ webhook ─┬▶ pod: JSON patch
//!                                     (TLS, certificates,        └▶ vpa: errors, warnings, default mode
//!                                      registration)
//! ```
//!
//! [`pod`] and [`vpa`] are pure. A pod is always admitted: after an error, it is created unchanged.

pub mod limits;
pub mod metrics;
pub mod pod;
pub mod registration;
mod run;
pub mod status_lease;
pub mod vpa;
mod webhook;

pub use run::{Admission, Environment, Options};
pub use webhook::{RecentMessages, Webhook};
