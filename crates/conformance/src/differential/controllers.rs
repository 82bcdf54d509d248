//! Performs the same steps in two clusters, and compares the results of their controllers.
//!
//! ```text
//!              ┌─▶ kube-controller-manager ─▶ objects ─┐
//!   a step ────┤                                       ├─▶ compare ▸ allowed? ── no, and it stays ──▶ report
//!     ▲        └─▶ plumb's controllers     ─▶ objects ─┘       │ the same
//!     └── no action is left ◀── simulated scheduler and nodes, on both ◀──────────┘
//! ```
//!
//! A scenario is a list of steps, which create, update and delete objects. A simulated scheduler and simulated nodes
//! perform one action at a time, the same in both clusters, and only when both are stable and equal. So not only the
//! end of a rollout is compared, but each of its steps, however fast either side is.
//!
//! The objects of a namespace are compared in a normalized form, with all unpredictable values masked: times,
//! revisions, and generated names and uids by their objects. Deliberate differences are listed in
//! `differential/controllers/kept.yaml`.

mod acts;
mod kept;
mod kinds;
mod metrics;
mod nodes;
mod normalized;
mod play;
mod run;
mod scenario;
mod simulated;
mod view;

pub use kept::AllowedDifferences;
pub use play::Finding;
pub use run::{Options, ScenarioSummary, print, run};
pub use scenario::{Act, Scenario, Step, scenarios};
