//! An admission webhook without its decisions: an HTTPS server, its certificates, and its registration.
//!
//! ```text
//!   API server ── AdmissionReview ──▶ server: TLS, body limit ──▶ Reviewer (of the component)
//!        ▲
//!        └── MutatingWebhookConfiguration ◀── registration ◀── trust: a CA in a Secret, shared by replicas
//! ```
//!
//! Several replicas serve at once. They share one certificate authority, which is in a Secret, and apply the same
//! `MutatingWebhookConfiguration`.

pub mod authority;
pub mod patch;
pub mod registration;
pub mod review;
mod run;
pub mod server;
pub mod trust;

pub use registration::{Endpoint, Registration};
pub use run::{Certificates, Options, SetupError, WebhookServer};
pub use server::{MinTls, Reviewer, TlsSettings, Transfer};
