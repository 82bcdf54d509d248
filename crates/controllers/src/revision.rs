//! The history of a workload, as actions: see [`plumb_controller_runtime::revision`].

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
pub use plumb_controller_runtime::revision::{Settled, Subject, name, settle, sort, spelled, template};

use crate::workload::{Action, Ref};

/// The revision, or the write that makes it the latest.
pub fn there(settled: Settled) -> Result<Arc<ControllerRevision>, Box<Action>> {
    match settled {
        Settled::There(revision) => Ok(revision),
        Settled::Missing(revision) => Err(Box::new(Action::Create((*revision).into()))),
        Settled::Former(revision) => Err(Box::new(Action::Replace((*revision).into()))),
    }
}

/// Deletes the revisions beyond the history limit, see [`plumb_controller_runtime::revision::expired`].
pub fn forgotten(
    revisions: &[Arc<ControllerRevision>],
    is_past: impl Fn(&ControllerRevision) -> bool,
    is_used: impl Fn(&ControllerRevision) -> bool,
    limit: i32,
) -> Vec<Action> {
    let expired = plumb_controller_runtime::revision::expired(revisions, is_past, is_used, limit);
    expired.into_iter().map(|one| Action::Delete(Ref::to(&*one), None)).collect()
}
