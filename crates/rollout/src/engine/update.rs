//! The writes for one pod: intent, resize, confirm.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use plumb_client::Api;
use plumb_resize::announced::{self, Announced};
use serde_json::{Value, json};

use super::change::{Change, Vertical};
use super::failure::{Failure, Refusal};
use super::hooks::Hooks;
use super::pod_state::NextWrite;
use super::record::{Direction, PodRecord};

/// The field manager of all writes of the rollout.
pub const FIELD_MANAGER: &str = "plumb-rollout";

/// The parameters of all patches of the rollout.
pub(crate) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// One write for a pod. None replaces a pod: a client that does not know a field would remove it.
#[derive(Clone, Debug, PartialEq)]
pub enum PodWrite {
    /// A strategic merge patch of the pod: containers are merged by name, finalizers are added.
    Patch(Value),
    /// A strategic merge patch of its `/resize`.
    Resize(Value),
}

/// The result of a write (`UpdateResult` of OpenKruise's proposal).
#[derive(Clone, Debug, Default)]
pub struct UpdateResult {
    /// Whether a resize was sent and accepted (`VerticalUpdate`).
    pub vertical: bool,
    /// Why not (`UpdateErr`).
    pub error: Option<Refusal>,
    /// After which time to retry (`DelayDuration`).
    pub delay: Option<SignedDuration>,
    /// The pod after the last write that the API server accepted; its resource version is the proposal's `NewResourceVersion`.
    pub pod: Option<Box<Pod>>,
}

impl UpdateResult {
    /// The resource version after the last write.
    pub fn resource_version(&self) -> Option<&str> {
        self.pod.as_ref()?.metadata.resource_version.as_deref()
    }
}

/// The record and the writes of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The record as it is before the resize.
    pub record: PodRecord,
    /// The writes, in order. The controller sends each only after the API server has accepted the one before.
    pub writes: Vec<PodWrite>,
}

/// Plans the write that [`evaluate`](super::evaluate()) returns, if any.
pub fn plan(pod: &Pod, next: &NextWrite, hooks: &impl Hooks, now: Timestamp) -> Option<Plan> {
    let recorded = PodRecord::read(pod);
    let current = || recorded.clone().filter(|record| record.revision == hooks.revision());
    match next {
        NextWrite::Nothing => None,
        NextWrite::Begin(change) => {
            let (revision, base) = (hooks.revision(), hooks.base());
            let mut record =
                PodRecord::intent(pod, change.as_deref(), revision, base, recorded.as_ref(), now);
            // A pod that was created during the rollout has no resources from before: the record has those that it
            // returns to.
            if let Some(change) = change
                && hooks.is_back()
                && recorded.is_none_or(|recorded| recorded.base != base)
            {
                (record.previous, record.added) = (change.target(), Vec::new());
            }
            let intent = merged(record.patch(pod), hooks.on_begin(pod));
            let now = change.as_deref().map(|change| change.without(|name| hooks.resizes_later(name)));
            Some(Plan { record, writes: patch_and_resize(pod, intent, now.as_ref()) })
        }
        NextWrite::Send(change) => {
            let record = current()?;
            // An accepted resize that the pod does not have afterwards is not sent again at once.
            let sent =
                PodRecord { failure: Some(Failure::resent(record.failure.as_ref(), now)), ..record.clone() };
            let mut writes = resize(pod, change);
            writes.push(PodWrite::Patch(sent.patch(pod)));
            Some(Plan { record, writes })
        }
        NextWrite::MarkApplied => {
            let record = current()?.applied(pod, now);
            let writes = vec![PodWrite::Patch(record.patch(pod))];
            Some(Plan { record, writes })
        }
        NextWrite::Confirm => {
            let record = current()?;
            let back = record.direction == Direction::Back;
            let record = PodRecord {
                applied_at: record.applied_at.or(Some(now)),
                finished_at: Some(now),
                failure: record.failure.filter(|_| back),
                ..record
            };
            let more = if back { hooks.on_back(pod, &record) } else { hooks.on_done(pod) };
            let patch = merged(record.patch(pod), more);
            let writes = vec![PodWrite::Patch(announcing(pod, patch, None))];
            Some(Plan { record, writes })
        }
    }
}

/// Plans a further step of an update that is under way: a patch, and the resize that comes with it.
pub fn plan_next(pod: &Pod, record: &PodRecord, fields: Value, change: Option<&Vertical>) -> Plan {
    let patch = merged(record.patch(pod), Some(fields));
    Plan { record: record.clone(), writes: patch_and_resize(pod, patch, change) }
}

/// The writes of a patch, and of a resize, which the patch announces.
fn patch_and_resize(pod: &Pod, patch: Value, change: Option<&Vertical>) -> Vec<PodWrite> {
    let announced = change.and_then(|change| announcement(&patch, change));
    let mut writes = vec![PodWrite::Patch(announcing(pod, patch, announced))];
    writes.extend(change.into_iter().flat_map(|change| resize(pod, change)));
    writes
}

/// The announcement of a resize, if it restarts containers whose images the intent changes: then the node restarts them once for
/// both.
fn announcement(intent: &Value, change: &Vertical) -> Option<String> {
    let containers = intent["spec"]["containers"].as_array()?;
    let has_new_image = |name: &str| {
        containers.iter().any(|container| container["name"] == name && container["image"].is_string())
    };
    let announced = change.containers.iter().filter(|one| one.restarts && has_new_image(&one.name));
    let announced: Announced = announced.map(|one| (one.name.clone(), one.sent.clone())).collect();
    // Plain data always has a JSON form.
    (!announced.is_empty()).then(|| serde_json::to_string(&announced).unwrap_or_default())
}

/// Adds the announcement of a resize to a patch, and removes that of before.
fn announcing(pod: &Pod, mut patch: Value, announced: Option<String>) -> Value {
    if announced.is_some() || announced::text(pod).is_some() {
        patch["metadata"]["annotations"][announced::ANNOTATION] = json!(announced);
    }
    patch
}

/// Plans the resize of a pod back to its resources before the rollout, for a reason. None if the pod has no intent for this
/// revision: then it was not resized.
pub fn plan_back(pod: &Pod, failure: Option<Failure>, hooks: &impl Hooks, now: Timestamp) -> Option<Plan> {
    let record = PodRecord::read(pod).filter(|record| record.revision == hooks.revision())?;
    let change = match hooks.change(pod, &record.previous) {
        Change::Vertical(change) => Some(change),
        // Once the intent is recorded, the next evaluation reports what cannot be resized back.
        Change::None | Change::Other(_) => None,
    };
    let record = record.back(pod, change.as_deref(), failure, now);
    let mut writes = vec![PodWrite::Patch(record.patch(pod))];
    writes.extend(change.iter().flat_map(|change| resize(pod, change)));
    Some(Plan { record, writes })
}

/// The writes by which a pod is resized: the resize, and then what its boosted containers get back to, so that a resize which
/// the API server refuses does not change that.
fn resize(pod: &Pod, change: &Vertical) -> Vec<PodWrite> {
    let mut writes = Vec::new();
    if change.is_sent() {
        writes.push(PodWrite::Resize(change.patch()));
    }
    if !change.annotations.is_empty() {
        let metadata = json!({ "uid": pod.metadata.uid, "annotations": change.annotations });
        writes.push(PodWrite::Patch(json!({ "metadata": metadata })));
    }
    writes
}

/// Sends the writes of a plan, and records a refused resize on the pod.
pub async fn update(api: &Api<Pod>, pod: &Pod, plan: &Plan, now: Timestamp) -> UpdateResult {
    let mut result = UpdateResult::default();
    let name = pod.name_any();
    for write in &plan.writes {
        match send(api, &name, write).await {
            Ok(pod) => {
                result.vertical |= matches!(write, PodWrite::Resize(_));
                result.pod = Some(Box::new(pod));
            }
            Err(error) => {
                let refusal = match write {
                    PodWrite::Resize(_) => Refusal::of_resize(&error),
                    PodWrite::Patch(_) => Refusal::of(&error),
                };
                if let (Refusal::Refused(reason, message), PodWrite::Resize(_)) = (&refusal, write) {
                    record_refusal(api, pod, plan, (*reason, message), now, &mut result).await;
                }
                result.error = Some(refusal);
                return result;
            }
        }
    }
    result
}

async fn record_refusal(
    api: &Api<Pod>,
    pod: &Pod,
    plan: &Plan,
    (reason, message): (super::failure::StuckReason, &str),
    now: Timestamp,
    result: &mut UpdateResult,
) {
    let before = plan.record.failure.as_ref();
    let failure = Failure::refused(reason, message.to_owned(), before, now);
    result.delay = failure.retry_at.map(|at| at.duration_since(now));
    let record = PodRecord { failure: Some(failure), ..plan.record.clone() };
    let patch = announcing(result.pod.as_deref().unwrap_or(pod), record.patch(pod), None);
    // If this write fails, the controller sends the resize again and the API server refuses it again.
    match send(api, &pod.name_any(), &PodWrite::Patch(patch)).await {
        Ok(pod) => result.pod = Some(Box::new(pod)),
        Err(error) => tracing::debug!(pod = pod.name_any(), %error, "cannot record a refused resize"),
    }
}

async fn send(api: &Api<Pod>, name: &str, write: &PodWrite) -> kube::Result<Pod> {
    let params = patch_params();
    match write {
        PodWrite::Patch(patch) => api.patch(name, &params, &Patch::Strategic(patch)).await,
        PodWrite::Resize(patch) => api.patch_resize(name, &params, &Patch::Strategic(patch)).await,
    }
}

/// One patch that does what both do; the second wins.
pub fn merged(mut patch: Value, more: Option<Value>) -> Value {
    if let Some(more) = more {
        merge(&mut patch, more);
    }
    patch
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
