//! The differences between the kinds of workloads.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::change::{Change, compare_desired};
use super::desired::Desired;
use super::pod_state::ready_since;
use super::reason::Reason;
use super::record::PodRecord;

/// Why a pod is not done, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotDone(pub String);

/// The differences between the kinds of workloads (`UpdateOptions` of OpenKruise's proposal). The controller creates
/// one value per workload and revision. The default methods are those of a workload whose pods differ in cpu and
/// memory alone.
pub trait Hooks {
    /// The name of the revision that pods follow (`GetRevision`). It is recorded on pods, so it must be the same after a
    /// restart of the controller, and another one for another template.
    fn revision(&self) -> &str;

    /// The name of the revision that the workload had before the rollout. An undo returns to it.
    fn base(&self) -> &str;

    /// Whether pods return to their resources before the rollout ([`change_back`]).
    fn is_back(&self) -> bool {
        false
    }

    /// The resources that pods should have.
    fn desired(&self) -> &Desired;

    /// The rules of the API server.
    fn rules(&self) -> &Rules;

    /// How a pod gets these resources (`CalculateSpec`): those of the revision, or those before the rollout.
    fn change(&self, pod: &Pod, desired: &Desired) -> Change {
        compare_desired(desired, pod, self.rules())
    }

    /// Whether a pod that has the resources of the revision is marked as being of it. One that is not is confirmed, so that
    /// [`Hooks::on_done`] marks it.
    fn follows(&self, pod: &Pod) -> bool {
        let _ = pod;
        true
    }

    /// A strategic merge patch that is written with the intent, before the resize (`PatchSpecToPod`, `AdditionalFuncs`): a lifecycle
    /// state, a new image. Resources are not in it: they go through `/resize`.
    fn on_begin(&self, pod: &Pod) -> Option<Value> {
        let _ = pod;
        None
    }

    /// Whether a container is not resized with the intent. A later write of the workload's controller resizes it.
    fn resizes_later(&self, container: &str) -> bool {
        let _ = container;
        false
    }

    /// A strategic merge patch that is written once a pod is done: the label with the revision, for example.
    fn on_done(&self, pod: &Pod) -> Option<Value> {
        let _ = pod;
        None
    }

    /// Since when a pod is ready after its update; none if it is not.
    fn ready_since(&self, pod: &Pod) -> Option<Timestamp> {
        ready_since(pod)
    }

    /// A strategic merge patch that is written once a pod was resized back: the label with its former revision, for example.
    fn on_back(&self, pod: &Pod, record: &PodRecord) -> Option<Value> {
        let _ = (pod, record);
        None
    }

    /// Whether containers are done beyond the resize (`CheckContainersUpdateCompleted`): they run a new image, for
    /// example. The engine calls it once the resize is applied.
    fn containers_done(&self, pod: &Pod, record: &PodRecord) -> Result<(), NotDone> {
        let _ = (pod, record);
        Ok(())
    }

    /// Whether the pod is done beyond its containers (`CheckPodUpdateCompleted`): its lifecycle hooks have run, for
    /// example. The engine calls it after [`Hooks::containers_done`].
    fn pod_done(&self, pod: &Pod) -> Result<(), NotDone> {
        let _ = pod;
        Ok(())
    }
}

/// The change that gives a pod its resources from before the rollout: those in its record, or else those of the previous
/// template. A resize cannot remove requests and limits that the rollout added; if only they are left, they are the reason of
/// [`Change::Other`].
pub fn change_back(pod: &Pod, base: &str, template: &Desired, rules: &Rules) -> Change {
    let record = PodRecord::read(pod).filter(|record| record.base == base);
    let desired = record.as_ref().map(|record| &record.previous).filter(|previous| !previous.is_empty());
    match compare_desired(desired.unwrap_or(template), pod, rules) {
        Change::None => match record.map(|record| record.added).filter(|added| !added.is_empty()) {
            Some(added) => Change::Other(vec![Reason::Removed { container: None, field: added.join(", ") }]),
            None => Change::None,
        },
        change => change,
    }
}

/// The label of a pod with its revision, which the controllers of StatefulSets and DaemonSets read.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// The hooks of a workload whose pods differ in cpu and memory alone.
#[derive(Clone, Debug, PartialEq)]
pub struct ResizeOnly {
    /// The name of the revision that pods follow.
    pub revision: String,
    /// The name of the revision before.
    pub base: String,
    /// The resources of the revision, or on the way back those of the template before the rollout.
    pub desired: Desired,
    /// Whether pods return to their former resources.
    pub back: bool,
    /// The value that the label `controller-revision-hash` of a pod has once it follows; none if the kind has no such label.
    pub revision_label: Option<String>,
    /// The rules of the API server.
    pub rules: Rules,
}

impl Hooks for ResizeOnly {
    fn revision(&self) -> &str {
        &self.revision
    }

    fn is_back(&self) -> bool {
        self.back
    }

    fn base(&self) -> &str {
        &self.base
    }

    fn desired(&self) -> &Desired {
        &self.desired
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn follows(&self, pod: &Pod) -> bool {
        let Some(revision) = &self.revision_label else { return true };
        pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION_LABEL)) == Some(revision)
    }

    fn on_done(&self, _pod: &Pod) -> Option<Value> {
        let revision = self.revision_label.as_ref()?;
        Some(json!({ "metadata": { "labels": { REVISION_LABEL: revision } } }))
    }

    fn change(&self, pod: &Pod, desired: &Desired) -> Change {
        if self.back {
            change_back(pod, &self.base, desired, &self.rules)
        } else {
            compare_desired(desired, pod, &self.rules)
        }
    }
}
