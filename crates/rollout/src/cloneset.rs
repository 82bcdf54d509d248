//! The CloneSet controller.
//!
//! ```text
//!   watches ──▶ state: the set, its pods, revisions, claims ──▶ decide (pure) ──▶ run: writes, events, own-write tracking
//! ```
//!
//! It does what OpenKruise's does, under the same labels, annotations and conditions, and where the resources of the
//! template change it resizes pods through the [engine](crate::engine).

pub mod action;
mod batches;
mod command;
pub mod counts;
pub mod decide;
mod dry_run;
mod hooks;
pub mod in_place;
pub mod instances;
pub mod keys;
pub mod lifecycle;
pub mod openkruise;
pub mod order;
mod over_quota;
mod perform;
mod priorities;
mod record;
mod refresh;
pub mod revisions;
mod run;
mod scale;
mod scope;
pub mod status;
mod template_check;
mod update;
pub mod view;

pub use action::{Action, Decision, Note, Purpose};
pub use command::cloneset_command;
pub use decide::{Context, Failures, PodFailure, State, decide};
pub use dry_run::Verdict;
pub use record::ROLLOUT_ANNOTATION;
pub use run::NAME;
pub(crate) use run::run;
pub(crate) use template_check::invalid_fields;
