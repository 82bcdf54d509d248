//! The pods that were observed, by uid and by controller, and recent values of fields.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use parking_lot::Mutex;
use plumb_resize::Quantity;

use super::workloads::TEMPORARY;

/// For how long a component may act on an older value: watch events arrive late.
pub(super) const LAG_TOLERANCE: Duration = Duration::from_secs(5);

/// The values of a number within [`LAG_TOLERANCE`].
#[derive(Clone, Debug, Default)]
pub(super) struct RecentValues(VecDeque<(Duration, i64)>);

impl RecentValues {
    pub(super) fn record(&mut self, now: Duration, value: i64) {
        if self.0.back().is_none_or(|(_, last)| *last != value) {
            self.0.push_back((now, value));
        }
    }

    /// The recent values; the first one may be older.
    fn recent(&self, now: Duration) -> impl Iterator<Item = i64> {
        let since = now.saturating_sub(LAG_TOLERANCE);
        let first = self.0.iter().rposition(|(when, _)| *when <= since).unwrap_or(0);
        self.0.iter().skip(first).map(|(_, value)| *value)
    }

    pub(super) fn max(&self, now: Duration) -> i64 {
        self.recent(now).max().unwrap_or(0)
    }

    pub(super) fn min(&self, now: Duration) -> i64 {
        self.recent(now).min().unwrap_or(0)
    }

    pub(super) fn last(&self) -> i64 {
        self.0.back().map_or(0, |(_, value)| *value)
    }
}

/// The uids of pods that the editor deleted itself.
pub(super) type DeletedByEditor = Arc<Mutex<HashSet<String>>>;

/// Pods by uid and by controller.
#[derive(Default)]
pub(super) struct Pods {
    all: HashMap<String, Pod>,
    by_owner: HashMap<String, BTreeSet<String>>,
    /// When the pod of a name was last available, if it is not any more.
    last_available: HashMap<(String, String), Duration>,
    deleted_by_editor: DeletedByEditor,
}

/// A change of a pod.
pub(super) struct PodChange {
    pub(super) before: Option<Pod>,
    pub(super) after: Option<Pod>,
}

impl PodChange {
    /// The pod after the change, or before it if it was deleted.
    pub(super) fn pod(&self) -> &Pod {
        self.after.as_ref().or(self.before.as_ref()).expect("a change has a pod")
    }

    fn transition(&self, is: fn(&Pod) -> bool) -> (bool, bool) {
        (self.before.as_ref().is_some_and(is), self.after.as_ref().is_some_and(is))
    }

    /// Whether it is active since this change.
    pub(super) fn became_active(&self) -> bool {
        self.transition(is_active) == (false, true)
    }

    /// Whether it is unavailable since this change.
    pub(super) fn became_unavailable(&self) -> bool {
        self.transition(is_available) == (true, false)
    }

    /// Whether it is terminating or deleted since this change.
    pub(super) fn became_terminating(&self) -> bool {
        self.transition(is_terminating) == (false, true)
            || (self.after.is_none() && self.before.as_ref().is_some_and(|pod| !is_terminating(pod)))
    }
}

impl Pods {
    pub(super) fn new(deleted_by_editor: DeletedByEditor) -> Self {
        Self { deleted_by_editor, ..Self::default() }
    }

    pub(super) fn apply(&mut self, pod: Pod, deleted: bool, now: Duration) -> PodChange {
        let uid = uid(&pod.metadata).to_owned();
        let before = self.all.get(&uid).cloned();
        if before.as_ref().is_some_and(is_available) && (deleted || !is_available(&pod)) {
            self.last_available.insert(namespaced_name(&pod.metadata), now);
        }
        if let Some(owner) = before.as_ref().and_then(|pod| controller(&pod.metadata)) {
            self.by_owner.entry(owner.uid.clone()).or_default().remove(&uid);
        }
        if deleted {
            self.all.remove(&uid);
            return PodChange { before, after: None };
        }
        if let Some(owner) = controller(&pod.metadata) {
            self.by_owner.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        self.all.insert(uid, pod.clone());
        PodChange { before, after: Some(pod) }
    }

    pub(super) fn of_owner(&self, owner: &str) -> impl Iterator<Item = &Pod> {
        self.by_owner.get(owner).into_iter().flatten().filter_map(|uid| self.all.get(uid))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Pod> {
        self.all.values()
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Pod> {
        self.all.values().filter(move |pod| pod.metadata.namespace.as_deref() == Some(namespace))
    }

    /// Whether the pod of a name was available recently.
    pub(super) fn was_available_recently(&self, name: &(String, String), now: Duration) -> bool {
        self.last_available.get(name).is_some_and(|when| *when + LAG_TOLERANCE >= now)
    }

    /// Whether the editor deleted a pod, or its namespace.
    pub(super) fn is_deleted_by_editor(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        namespace.starts_with(TEMPORARY) || self.deleted_by_editor.lock().contains(uid(&pod.metadata))
    }
}

pub(super) fn uid(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

pub(super) fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn namespaced_name(metadata: &ObjectMeta) -> (String, String) {
    (metadata.namespace.clone().unwrap_or_default(), name(metadata).to_owned())
}

pub(super) fn label<'a>(metadata: &'a ObjectMeta, label: &str) -> &'a str {
    metadata.labels.as_ref().and_then(|labels| labels.get(label)).map_or("", String::as_str)
}

pub(super) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(super) fn has_succeeded(pod: &Pod) -> bool {
    phase(pod) == "Succeeded"
}

pub(super) fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(super) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether it neither has ended nor is terminating.
pub(super) fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && !is_terminating(pod)
}

/// Whether it is active and ready.
pub(super) fn is_available(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    is_active(pod)
        && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether it was evicted through the API.
pub(super) fn is_evicted(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| {
        condition.type_ == "DisruptionTarget"
            && condition.reason.as_deref() == Some("EvictionByEvictionAPI")
            && condition.status == "True"
    })
}

/// Its cpu requests in millicores.
pub(super) fn cpu(pod: &Pod) -> i64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests = containers.filter_map(|container| {
        container.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0.parse::<Quantity>().ok()
    });
    requests.map(Quantity::saturating_milli).sum()
}

/// An `IntOrString` of a number of replicas.
pub(super) fn share(of: i64, value: Option<&IntOrString>, default: &str, up: bool) -> i64 {
    let default = IntOrString::String(default.to_owned());
    match value.unwrap_or(&default) {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap();
            (of * percent + if up { 99 } else { 0 }) / 100
        }
    }
}
