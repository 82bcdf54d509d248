//! The record of a pod's resize, in an annotation of the pod: intent, resize, confirm.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus, ResourceRequirements};
use plumb_resize::list::ResourceList;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::Vertical;
use super::desired::Desired;
use super::failure::Failure;

/// The annotation of a pod that has its [`PodRecord`].
pub const RECORD_ANNOTATION: &str = "rollout.plumb.dev/resize";

/// The suffix of the revision of a rollback, which is a revision of its own.
pub(super) const BACK: &str = "-back";

/// Whether a pod follows its template or is undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// To the resources of the template.
    #[default]
    Forward,
    /// To the resources before the rollout.
    Back,
}

/// The intent to resize a pod, and its progress. The controller writes it before the resize, so that a restarted controller
/// knows the target and the resources before (`VerticalUpdateState` of OpenKruise's proposal).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and a field of the annotation")]
pub struct PodRecord {
    /// The revision that the pod follows.
    pub revision: String,
    /// The revision that the workload had before the rollout, which [`PodRecord::previous`] belongs to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base: String,
    /// Whether it follows or is undone.
    #[serde(default)]
    pub direction: Direction,
    /// The resources before the first resize since `base`: an undo returns to them.
    #[serde(default, skip_serializing_if = "Desired::is_empty")]
    pub previous: Desired,
    /// The requests and limits that the resize adds, which no undo can remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// When the intent was recorded.
    pub started_at: Timestamp,
    /// The restart count that a container may have after the resize: counted when the intent was recorded, and again when the
    /// resize was found to be applied.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub restarts: BTreeMap<String, i32>,
    /// Whether the resize restarts a container.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarting: bool,
    /// Whether the pod requests more of its node than before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub growing: bool,
    /// Whether the containers of the pod were not ready when the intent was recorded, or that of a resize that it supersedes:
    /// then the resize is not why they are not ready afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unready: bool,
    /// Whether a resize that this one supersedes may be why they are not ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unready_by_resize: bool,
    /// When the resize was found to be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<Timestamp>,
    /// When the pod was done with the revision, soaking included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Why the API server refused the resize, or why the pod is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl PodRecord {
    /// The record of a pod. One that cannot be read counts as none: the next intent replaces it.
    pub fn read(pod: &Pod) -> Option<Self> {
        let text = pod.metadata.annotations.as_ref()?.get(RECORD_ANNOTATION)?;
        serde_json::from_str(text).ok()
    }

    /// Whether it is about the rollout of a revision, forward or back.
    pub fn is_of(&self, revision: &str) -> bool {
        self.revision.strip_suffix(BACK).unwrap_or(&self.revision) == revision
    }

    /// The intent to resize a pod.
    ///
    /// If a new template supersedes a rollout that is under way, the record retains the resources from before the first of the
    /// two: `base` is the same then, and an undo returns to it.
    pub fn intent(
        pod: &Pod,
        change: Option<&Vertical>,
        revision: &str,
        base: &str,
        before: Option<&Self>,
        now: Timestamp,
    ) -> Self {
        let (mut previous, mut added) = change.map_or_else(Default::default, |change| {
            let added = change.added().into_iter().map(|(container, field)| match container {
                Some(container) => format!("{container}: {field}"),
                None => field,
            });
            (change.previous(), added.collect::<Vec<_>>())
        });
        if let Some(before) = before.filter(|before| before.base == base && before.revision != base) {
            previous = before.previous.clone().or(previous);
            added.extend(before.added.iter().cloned());
            added.sort();
            added.dedup();
        }
        let ready = are_containers_ready(pod);
        Self {
            revision: revision.to_owned(),
            base: base.to_owned(),
            direction: Direction::Forward,
            previous,
            added,
            started_at: now,
            restarts: allowed_restarts(pod, change),
            restarting: change.is_some_and(|change| change.restarts),
            growing: change.is_some_and(|change| change.grows),
            unready: !ready || before.is_some_and(|before| before.unready && before.finished_at.is_none()),
            // A pod that was done was ready after its resize.
            unready_by_resize: !ready
                && before.is_some_and(|before| {
                    before.unready_by_resize || !before.unready && before.finished_at.is_none()
                }),
            applied_at: None,
            finished_at: None,
            failure: None,
        }
    }

    /// Whether the intent changes resources of the pod. It does not where another client has resized the pod, or the pod was
    /// created with these resources.
    pub fn changes_resources(&self) -> bool {
        !self.previous.is_empty() || !self.added.is_empty()
    }

    /// The intent to resize a pod back to its resources before the rollout, for a reason.
    #[must_use]
    pub fn back(
        &self,
        pod: &Pod,
        change: Option<&Vertical>,
        failure: Option<Failure>,
        now: Timestamp,
    ) -> Self {
        Self {
            direction: Direction::Back,
            started_at: now,
            restarts: allowed_restarts(pod, change),
            restarting: change.is_some_and(|change| change.restarts),
            growing: change.is_some_and(|change| change.grows),
            applied_at: None,
            finished_at: None,
            failure,
            ..self.clone()
        }
    }

    /// The record once the resize is applied. From now on every restart counts as a failure of the soak, but not those between
    /// the intent and now: a container that was OOM-killed in a loop is restarted once more before it runs with the larger
    /// limit, and a rollback would return it to the limit that it was killed with. Where the resize lowers the memory limit, a
    /// restart since the intent may be its effect, and counts.
    #[must_use]
    pub(super) fn applied(&self, pod: &Pod, now: Timestamp) -> Self {
        let mut restarts = allowed_restarts(pod, None);
        for (name, count) in &mut restarts {
            let allowed = self.restarts.get(name).copied().unwrap_or(0);
            *count = if self.lowers_memory_limit(pod, name) { allowed } else { allowed.max(*count) };
        }
        Self { restarts, applied_at: Some(now), failure: None, ..self.clone() }
    }

    /// Whether a container, or the pod, has a lower memory limit than before the resize.
    fn lowers_memory_limit(&self, pod: &Pod, container: &str) -> bool {
        let Some(spec) = &pod.spec else { return false };
        let of = |resources: Option<&ResourceRequirements>| {
            let limits = ResourceList::read(resources?.limits.as_ref()).ok()?;
            limits.get("memory")
        };
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let current =
            containers.filter(|one| one.name == container).find_map(|one| of(one.resources.as_ref()));
        let is_lower =
            |current, before| matches!((current, before), (Some(current), Some(before)) if current < before);
        is_lower(current, of(self.previous.containers.get(container)))
            || is_lower(of(spec.resources.as_ref()), of(self.previous.pod.as_ref()))
    }

    /// The strategic merge patch that writes the record. Its uid prevents that a later pod of the same name gets it.
    pub fn patch(&self, pod: &Pod) -> Value {
        // A record is plain data: it can be written.
        let text = serde_json::to_string(self).unwrap_or_default();
        let mut metadata = json!({ "annotations": { RECORD_ANNOTATION: text } });
        if let Some(uid) = &pod.metadata.uid {
            metadata["uid"] = json!(uid);
        }
        json!({ "metadata": metadata })
    }
}

/// Whether the containers of a pod are ready. A readiness gate that a controller has closed for an update does not count.
fn are_containers_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut conditions = conditions.filter(|one| matches!(one.type_.as_str(), "Ready" | "ContainersReady"));
    conditions.any(|one| one.status == "True")
}

/// The restart counts that containers may have once a resize is applied: one more where it restarts them.
fn allowed_restarts(pod: &Pod, change: Option<&Vertical>) -> BTreeMap<String, i32> {
    let restarted = |name: &str| {
        change.is_some_and(|change| change.containers.iter().any(|c| c.name == name && c.restarts))
    };
    statuses(pod.status.as_ref())
        .map(|status| {
            let count = status.restart_count.saturating_add(i32::from(restarted(&status.name)));
            (status.name.clone(), count)
        })
        .collect()
}

/// The statuses of containers that do not end: sidecars and main ones.
pub(super) fn statuses(status: Option<&PodStatus>) -> impl Iterator<Item = &ContainerStatus> {
    let of =
        |list: fn(&PodStatus) -> Option<&Vec<ContainerStatus>>| status.and_then(list).into_iter().flatten();
    of(|status| status.init_container_statuses.as_ref())
        .chain(of(|status| status.container_statuses.as_ref()))
}
