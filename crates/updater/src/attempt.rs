//! The updater's record of its attempts to resize a pod, in an annotation of the pod.
//!
//! AEP-8818 has the updater remember which values a node found infeasible, by pod UID and in memory. Here the record is an
//! annotation of the pod itself: it survives a restart and a fail-over, it is removed with the pod, and its size is bounded by
//! the number of the pod's containers.
//!
//! ```text
//!   status Infeasible            ──▶ the spec's requests ─┐
//!   403 with cause NodeCapacity  ──▶ the requests sent   ─┴─▶ infeasible, with the node's allocatable
//!   422, unsupported platform    ──▶ the requests sent   ───▶ rejected
//!
//!   cleared: the resize was accepted; any recommended value is lower; the node's allocatable grew;
//!            for a rejected one, any other recommendation or generation
//!
//!   unboost refused, Infeasible or Deferred ──▶ its CPU ──▶ unboost: not evicted for as much CPU alone (AEP-7862)
//!
//!   void: less CPU is recommended; the node's allocatable CPU grew; the containers have that CPU
//! ```

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use plumb_resize::resource::{Amounts, Declared, Requirements, Resource};
use serde::{Deserialize, Serialize};

/// The annotation of a pod that has the [`Record`], as JSON.
pub const ANNOTATION: &str = "plumb.dev/vpa-resize";
/// Upstream's annotation of a pod that was resized in place.
pub const IN_PLACE_UPDATED: &str = "vpaInPlaceUpdated";
/// How many containers an attempt is recorded for at most. A pod with more is attempted again after a restart of the updater.
const LONGEST: usize = 64;
/// How much of a message is recorded.
const LONGEST_MESSAGE: usize = 256;
/// How long the text of a record may be. Any longer one was not written by an updater.
const LONGEST_TEXT: usize = 16 * 1024;

/// Requests by container.
pub type Requests = BTreeMap<String, Declared>;
/// Requests and limits by container.
pub type Resources = BTreeMap<String, Requirements>;

/// The record of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Record {
    /// The last resize that the API server accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Accepted>,
    /// The resources that the node found infeasible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infeasible: Option<Infeasible>,
    /// The resources that the API server rejected as invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// The last end of a CPU start-up boost that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unboost: Option<FailedUnboost>,
}

/// A resize that the API server accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The generation of the pod since then. Another generation is another attempt, of this or of another client.
    pub generation: i64,
    /// When it was accepted.
    pub at: Timestamp,
}

/// Requests that a node cannot hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Infeasible {
    /// The requests.
    pub requests: Requests,
    /// The allocatable resources of the node then.
    #[serde(default)]
    pub allocatable: Declared,
}

/// Resources that the API server rejected as invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// The desired resources of the containers.
    pub resources: Resources,
    /// The generation of the pod.
    pub generation: i64,
    /// Why.
    #[serde(default)]
    pub message: String,
}

/// The CPU that containers did not get when their start-up boost ended: the node or the API server refused it, or the node
/// deferred it. They got back to their own CPU instead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedUnboost {
    /// The CPU requests, in millicores, by container.
    pub cpu: BTreeMap<String, i64>,
    /// The allocatable resources of the node then.
    #[serde(default)]
    pub allocatable: Declared,
}

impl FailedUnboost {
    /// Whether a recommendation needs at least as much CPU as the pod did not get, and the node has not grown. A container
    /// without a recommendation counts as before.
    pub fn applies_to(&self, recommended: &Requests, allocatable: Declared) -> bool {
        let recommended_cpu = |container: &str| recommended.get(container).and_then(|requests| requests.cpu);
        let has_grown = self.allocatable.cpu.zip(allocatable.cpu).is_some_and(|(before, now)| now > before);
        !has_grown && self.total_with(recommended_cpu) >= self.total_with(|_| None)
    }

    /// Whether containers with these requests have the CPU that they did not get then.
    pub fn is_applied(&self, requests: &Requests) -> bool {
        let cpu = |container: &str| requests.get(container).map(|requests| requests.cpu.unwrap_or_default());
        self.total_with(cpu) >= self.total_with(|_| None)
    }

    /// The sum of the CPU of the containers, with other amounts where there are any.
    fn total_with(&self, other: impl Fn(&str) -> Option<i64>) -> i64 {
        let amounts = self.cpu.iter().map(|(container, cpu)| other(container).unwrap_or(*cpu));
        amounts.fold(0, i64::saturating_add)
    }
}

impl Record {
    /// The record of a pod; an empty one if the annotation is missing or cannot be read.
    pub fn of(metadata: &ObjectMeta) -> Self {
        let annotation = metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION));
        let text = annotation.filter(|text| text.len() <= LONGEST_TEXT);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The value of the annotation; none if the record is empty.
    pub fn annotation(&self) -> Option<String> {
        let mut bounded = self.clone();
        bounded.infeasible = bounded.infeasible.filter(|infeasible| infeasible.requests.len() <= LONGEST);
        bounded.rejected = bounded.rejected.filter(|rejected| rejected.resources.len() <= LONGEST);
        bounded.unboost = bounded.unboost.filter(|unboost| unboost.cpu.len() <= LONGEST);
        if bounded == Self::default() {
            return None;
        }
        if let Some(rejected) = &mut bounded.rejected {
            rejected.message.truncate(rejected.message.floor_char_boundary(LONGEST_MESSAGE));
        }
        // A record has no value that JSON lacks.
        serde_json::to_string(&bounded).ok()
    }

    /// Since when the attempt lasts that made the pod's present generation: by the record, or else by when this updater first
    /// observed that generation. A node may report a state since a time before the attempt.
    pub fn attempt_since(&self, generation: i64, observed: Timestamp, stage: Option<Timestamp>) -> Timestamp {
        let accepted = self.accepted.as_ref().filter(|accepted| accepted.generation == generation);
        let began = accepted.map_or(observed, |accepted| accepted.at);
        stage.map_or(began, |stage| stage.max(began))
    }
}

impl Infeasible {
    /// Whether a recommendation is worth an attempt though this one was infeasible: any of its values is lower, or the node
    /// has grown. A value that only one of the two names is not lower.
    pub fn is_void(&self, recommended: &Requests, allocatable: Declared) -> bool {
        is_any_lower(recommended, &self.requests) || has_grown(self.allocatable, allocatable)
    }
}

impl Rejected {
    /// Whether these resources are the ones that were rejected, for the same generation of the pod.
    pub fn applies_to(&self, resources: &Resources, generation: i64) -> bool {
        self.generation == generation && self.resources == *resources
    }
}

/// Whether any value is lower than the same one of another list.
pub fn is_any_lower(requests: &Requests, than: &Requests) -> bool {
    requests.iter().any(|(container, new)| {
        than.get(container).is_some_and(|old| {
            Resource::ALL.into_iter().any(|r| new[r].zip(old[r]).is_some_and(|(new, old)| new < old))
        })
    })
}

/// Whether a node has more of any resource than before. An unknown amount has not grown.
fn has_grown(before: Declared, now: Declared) -> bool {
    Resource::ALL.into_iter().any(|r| before[r].zip(now[r]).is_some_and(|(before, now)| now > before))
}

/// The amounts of a node as a record has them.
pub fn allocatable(amounts: Option<Amounts>) -> Declared {
    amounts.map_or(Declared::NONE, |amounts| Declared::of(|r| Some(amounts[r])))
}
