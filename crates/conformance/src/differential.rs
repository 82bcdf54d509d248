//! Two API servers are asked the same, and have to answer the same.
//!
//! ```text
//!   seed ▸ generate: a step ─┬─▶ reference ─▶ answer ─┐
//!             ▲              └─▶ subject   ─▶ answer ─┴─▶ compare ▸ kept? ── no ──▶ shrink ▸ report
//!             └──── the object as it stands now ◀─────────────┘
//! ```
//!
//! A case is a short life of one object: it is created, changed through every door it has, and deleted. Each step
//! goes to both servers; code, reason, message, causes, warnings and the object that comes of it are compared, after
//! what nobody can foresee (uids, times, allocated addresses) is masked. The reference is kube-apiserver; what we
//! answer differently on purpose is listed in `differential/kept.yaml`, each with its reason and with a case that
//! shows it. Anything else is a failure, and is shrunk to the smallest case that still shows it.

mod answer;
pub mod authorization;
mod case;
mod compare;
pub mod controllers;
mod edit;
pub mod expressions;
mod generate;
mod setup;
mod kept;
mod kinds;
mod mask;
mod patch;
mod play;
mod random;
mod run;
mod sent;
mod shrink;
mod words;

pub use answer::Answer;
pub use case::{Case, Step, Verb};
pub use compare::Difference;
pub use kept::{Kept, Listed, Seen};
pub use play::{Finding, Servers};
pub use run::{Options, Outcome, replay, run};
