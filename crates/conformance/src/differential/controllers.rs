//! The same happens in two clusters, and their controllers have to make the same of it.
//!
//! ```text
//!              ┌─▶ kube-controller-manager ─▶ portrait ─┐
//!   a step ────┤                                        ├─▶ compare ▸ kept? ── no, and it stays ──▶ report
//!     ▲        └─▶ plumb's controllers     ─▶ portrait ─┘       │ the same
//!     └── nothing is left to do ◀── the hand: what a node would do next, on both ◀┘
//! ```
//!
//! A scenario is a list of steps: objects are made, changed, deleted. Nodes and scheduler are played by a hand that does
//! one thing at a time, the same in both clusters, and only when both have come to rest and look the same. So not only
//! what a rollout comes to is compared, but each of its moves, however fast either side is.
//!
//! A portrait is what a namespace has, with everything masked that nobody can foresee: times, revisions, and names and
//! uids by whom they stand for. What we do differently on purpose is listed in `differential/controllers/kept.yaml`.

mod acts;
mod hand;
mod kept;
mod kinds;
mod nodes;
mod play;
mod portrait;
mod run;
mod scenario;
mod view;

pub use kept::Kept;
pub use play::Finding;
pub use run::{Options, Outcome, print, run};
pub use scenario::{Act, Scenario, Step, scenarios};
