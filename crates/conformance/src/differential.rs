//! Sends the same requests to two API servers, and compares their responses.
//!
//! ```text
//!   seed ▸ generate: a step ─┬─▶ reference ─▶ response ─┐
//!             ▲              └─▶ subject   ─▶ response ─┴─▶ compare ▸ allowed? ── no ──▶ shrink ▸ report
//!             └──── the current object ◀──────────────────────┘
//! ```
//!
//! A case is the lifecycle of one object: create, update by every verb, delete. Each step is sent to both servers;
//! code, reason, message, causes, warnings and the resulting object are compared, after unpredictable values (uids,
//! times, allocated addresses) are masked. The reference is kube-apiserver; deliberate differences are listed in
//! `differential/kept.yaml`, each with its reason and with a case that shows it. Any other difference is a failure,
//! and is shrunk to the smallest case that still shows it.

pub mod authorization;
mod case;
mod compare;
pub mod controllers;
mod edit;
pub mod expressions;
mod generate;
mod kept;
mod kinds;
mod mask;
mod patch;
mod play;
mod random;
mod response;
mod run;
mod sent;
mod setup;
mod shrink;
mod words;

pub use case::{Case, Step, Verb};
pub use compare::Difference;
pub use kept::{AllowedDifference, AllowedDifferences, MatchedPattern};
pub use play::{Finding, Servers};
pub use response::Response;
pub use run::{Options, RunSummary, replay, run};
