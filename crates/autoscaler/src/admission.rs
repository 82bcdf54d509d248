//! The admission webhook: new pods get the recommended resources and the CPU start-up boost; VPAs are validated.
//!
//! ```text
//!   API server ── AdmissionReview ──▶ server: TLS, body limit ──▶ webhook ─┬▶ pod: JSON patch
//!        ▲                                                                 └▶ vpa: errors, warnings, default mode
//!        └── MutatingWebhookConfiguration ◀── registration ◀── trust: an authority in a Secret, shared by replicas
//! ```
//!
//! [`pod`] and [`vpa`] are pure. A pod is always admitted: whatever goes wrong, it is created as it is.

pub mod authority;
pub mod limits;
pub mod metrics;
pub mod patch;
pub mod pod;
pub mod registration;
pub mod review;
mod run;
pub mod server;
pub mod status_lease;
pub mod trust;
pub mod vpa;
mod webhook;

pub use run::{Admission, Certificates, Environment, Options, SetupError};
pub use webhook::{Said, Webhook};
