//! The admission webhook: new pods get the recommended resources and the CPU start-up boost; VPAs are validated.
//!
//! ```text
//!   API server ── AdmissionReview ──▶ server: TLS, body limit ──▶ review ─┬▶ pod: JSON patch
//!                                                                         └▶ vpa: errors, warnings, default mode
//! ```
//!
//! [`pod`] and [`vpa`] are pure. A pod is always admitted: whatever goes wrong, it is created as it is.

pub mod patch;
pub mod pod;
pub mod review;
pub mod vpa;
