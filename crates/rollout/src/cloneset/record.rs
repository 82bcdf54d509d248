//! The record of a rollout on a set: the step of a canary, and whether it is undone or recreates pods after a
//! failure.

use serde_json::{Value, json};

use crate::api::cloneset::CloneSet;
use crate::engine::RolloutRecord;

/// The annotation with the [`RolloutRecord`].
pub const ROLLOUT_ANNOTATION: &str = "rollout.plumb.dev/rollout";

/// The record on a set. A record that cannot be read counts as none.
pub(super) fn read(set: &CloneSet) -> Option<RolloutRecord> {
    let text = set.metadata.annotations.as_ref()?.get(ROLLOUT_ANNOTATION)?;
    serde_json::from_str(text).ok()
}

/// The merge patch that records it, on this very version of the set.
pub(super) fn patch(set: &CloneSet, record: &RolloutRecord) -> Value {
    // A record is plain data: it can be written.
    let text = serde_json::to_string(record).unwrap_or_default();
    json!({ "metadata": {
        "resourceVersion": set.metadata.resource_version,
        "annotations": { ROLLOUT_ANNOTATION: text },
    } })
}
