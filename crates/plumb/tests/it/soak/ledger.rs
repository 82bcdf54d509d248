//! What is there, as far as it was told: pods by who controls them, and what workloads ask for and asked for lately.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use parking_lot::Mutex;
use plumb_resize::Quantity;

use super::zoo::GUEST;

/// For how long what was asked for before may still be acted upon: nobody hears of things at once.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// A number that changes, and what it was lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent(VecDeque<(Duration, i64)>);

impl Recent {
    pub(super) fn tell(&mut self, now: Duration, value: i64) {
        if self.0.back().is_none_or(|(_, last)| *last != value) {
            self.0.push_back((now, value));
        }
    }

    /// All that it was within the grace: the first of them was so before already.
    fn lately(&self, now: Duration) -> impl Iterator<Item = i64> {
        let since = now.saturating_sub(GRACE);
        let first = self.0.iter().rposition(|(when, _)| *when <= since).unwrap_or(0);
        self.0.iter().skip(first).map(|(_, value)| *value)
    }

    pub(super) fn most(&self, now: Duration) -> i64 {
        self.lately(now).max().unwrap_or(0)
    }

    pub(super) fn least(&self, now: Duration) -> i64 {
        self.lately(now).min().unwrap_or(0)
    }

    pub(super) fn last(&self) -> i64 {
        self.0.back().map_or(0, |(_, value)| *value)
    }
}

/// The uids of pods that were deleted by hand.
pub(super) type ByHand = Arc<Mutex<HashSet<String>>>;

/// Pods, by uid and by who controls them.
#[derive(Default)]
pub(super) struct Pods {
    all: HashMap<String, Pod>,
    owned: HashMap<String, BTreeSet<String>>,
    /// When a pod of this place was last ready, if it is not any more.
    was_ready: HashMap<(String, String), Duration>,
    by_hand: ByHand,
}

/// What happened to a pod.
pub(super) struct Turn {
    pub(super) before: Option<Pod>,
    pub(super) now: Option<Pod>,
}

impl Turn {
    /// The pod, whichever there is.
    pub(super) fn pod(&self) -> &Pod {
        self.now.as_ref().or(self.before.as_ref()).expect("a turn is of a pod")
    }

    fn turned(&self, is: fn(&Pod) -> bool) -> (bool, bool) {
        (self.before.as_ref().is_some_and(is), self.now.as_ref().is_some_and(is))
    }

    /// Whether it counts from now on.
    pub(super) fn came(&self) -> bool {
        self.turned(is_active) == (false, true)
    }

    /// Whether it serves no more.
    pub(super) fn left(&self) -> bool {
        self.turned(serves) == (true, false)
    }

    /// Whether it is to go, since now.
    pub(super) fn is_condemned(&self) -> bool {
        self.turned(is_going) == (false, true)
            || (self.now.is_none() && self.before.as_ref().is_some_and(|pod| !is_going(pod)))
    }
}

impl Pods {
    pub(super) fn new(by_hand: ByHand) -> Self {
        Self { by_hand, ..Self::default() }
    }

    pub(super) fn take(&mut self, pod: Pod, gone: bool, now: Duration) -> Turn {
        let uid = uid(&pod.metadata).to_owned();
        let before = self.all.get(&uid).cloned();
        if before.as_ref().is_some_and(serves) && (gone || !serves(&pod)) {
            self.was_ready.insert(place(&pod.metadata), now);
        }
        if let Some(owner) = before.as_ref().and_then(|pod| controller(&pod.metadata)) {
            self.owned.entry(owner.uid.clone()).or_default().remove(&uid);
        }
        if gone {
            self.all.remove(&uid);
            return Turn { before, now: None };
        }
        if let Some(owner) = controller(&pod.metadata) {
            self.owned.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        self.all.insert(uid, pod.clone());
        Turn { before, now: Some(pod) }
    }

    pub(super) fn of(&self, owner: &str) -> impl Iterator<Item = &Pod> {
        self.owned.get(owner).into_iter().flatten().filter_map(|uid| self.all.get(uid))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Pod> {
        self.all.values()
    }

    pub(super) fn within(&self, namespace: &str) -> impl Iterator<Item = &Pod> {
        self.all.values().filter(move |pod| pod.metadata.namespace.as_deref() == Some(namespace))
    }

    /// Whether the pod of a place served within the grace.
    pub(super) fn served_lately(&self, at: &(String, String), now: Duration) -> bool {
        self.was_ready.get(at).is_some_and(|when| *when + GRACE >= now)
    }

    /// Whether somebody deleted a pod, itself or with its namespace.
    pub(super) fn is_by_hand(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        namespace.starts_with(GUEST) || self.by_hand.lock().contains(uid(&pod.metadata))
    }
}

pub(super) fn uid(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

pub(super) fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

pub(super) fn place(metadata: &ObjectMeta) -> (String, String) {
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

pub(super) fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether it counts as one of its workload's.
pub(super) fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && !is_going(pod)
}

/// Whether it is ready, and stays.
pub(super) fn serves(pod: &Pod) -> bool {
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

/// What it asks for, in thousandths of a core.
pub(super) fn cpu(pod: &Pod) -> i64 {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let asked = containers.filter_map(|container| {
        container.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0.parse::<Quantity>().ok()
    });
    asked.map(Quantity::saturating_milli).sum()
}

/// A number, or a share of one in percent.
pub(super) fn share(of: i64, value: Option<&IntOrString>, usual: &str, up: bool) -> i64 {
    let usual = IntOrString::String(usual.to_owned());
    match value.unwrap_or(&usual) {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap();
            (of * percent + if up { 99 } else { 0 }) / 100
        }
    }
}
