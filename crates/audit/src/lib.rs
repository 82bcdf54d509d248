//! The audit log of the API server: which requests it records, in which detail, and the files that it is written to.
//!
//! ```text
//!   attributes of a request ─┐
//!   rules of the policy ─────┴▶ Policy::decide ──▶ Decision: level, omitted stages
//!                                                     │
//!   stages of the request ──▶ Event ──────────────────┴▶ Auditor::emit ──▶ one line of JSON
//!                                                                              │ bounded buffer, never blocks
//!                                                                              ▼
//!                                                     LogBackend: a thread that writes and rotates the file
//! ```
//!
//! | question | answer |
//! |---|---|
//! | which policy is in a file? | [`Policy::open`] |
//! | in which detail is a request recorded? | [`Policy::decide`] |
//! | what does a line of the log look like? | [`Event`] |
//! | where do lines go, and what if that is slow? | [`LogBackend`] |
//!
//! Policies and events are those of `audit.k8s.io/v1`. The crate knows no request: `plumb-apiserver` calls it at each stage.

mod auditor;
mod event;
mod level;
mod log;
mod metrics;
mod policy;

pub use auditor::{Auditor, Backend};
pub use event::{Event, MicroTime, ObjectReference, ResponseStatus, UserInfo};
pub use level::{Level, Stage, Stages};
pub use log::{Clock, LogBackend, LogOptions, OpenLogError};
pub use metrics::Metrics;
pub use policy::{Attributes, Decision, Policy, PolicyError, Resource, Subject};
