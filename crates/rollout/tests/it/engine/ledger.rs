//! What the resizes of a rollout have done to pods, noted by the API server and the nodes of a test: no code of the engine
//! decides what counts.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use plumb_rollout::engine::{Direction, PodPolicy, PodRecord};

/// The latest resize of a pod that was sent.
#[derive(Clone)]
struct Sent {
    revision: String,
    /// When its intent was recorded.
    at: Timestamp,
    direction: Direction,
    /// Whether the pod was available when it was sent first.
    available: bool,
    /// Whether its node has deferred it.
    deferred: bool,
}

/// What the resizes of a rollout have done to pods.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    sent: BTreeMap<String, Sent>,
    /// The pods that were available when a resize was sent and when it was applied, and not ready from then on.
    pub(crate) broken: BTreeSet<String>,
    /// Such pods whose resize restarts no container, and was deferred or applied only after its deadline.
    pub(crate) broken_late: BTreeSet<String>,
    /// The pods that were resized to the latest template, those that are gone among them.
    pub(crate) moved: BTreeSet<String>,
    /// The pods whose resize to an earlier template was under way when the latest one came.
    superseded: BTreeSet<String>,
    /// The pods that were restarted, or became unready, after a resize was sent: they may have failed their soak.
    pub(crate) failed: BTreeSet<String>,
}

impl Ledger {
    /// A user has edited the template.
    pub(crate) fn edited(&mut self, pods: &BTreeMap<String, Pod>) {
        self.moved.clear();
        let is_under_way =
            |pod: &Pod| PodRecord::read(pod).is_some_and(|record| record.finished_at.is_none());
        self.superseded =
            pods.iter().filter(|(_, pod)| is_under_way(pod)).map(|(name, _)| name.clone()).collect();
    }

    /// The controller has sent a resize.
    pub(crate) fn sent(&mut self, name: &str, record: &PodRecord, available: bool) {
        let of_revision = self
            .sent
            .get(name)
            .filter(|sent| sent.revision == record.revision && sent.direction == record.direction);
        let (available, deferred) =
            of_revision.map_or((available, false), |sent| (sent.available, sent.deferred));
        if record.direction == Direction::Forward && !self.superseded.contains(name) {
            self.moved.insert(name.to_owned());
        }
        let sent = Sent {
            revision: record.revision.clone(),
            at: record.started_at,
            direction: record.direction,
            available,
            deferred,
        };
        self.sent.insert(name.to_owned(), sent);
    }

    /// A node has deferred a resize.
    pub(crate) fn deferred(&mut self, name: &str) {
        if let Some(sent) = self.sent.get_mut(name) {
            sent.deferred = true;
        }
    }

    /// A node has applied a resize, which made the pod unready if it was available before.
    pub(crate) fn applied(&mut self, name: &str, breaks: bool, restarts: bool, now: Timestamp) {
        let Some(sent) = self.sent.get(name) else { return };
        if sent.direction == Direction::Back && !restarts {
            // With these resources it is not the rollout that makes it unready.
            self.ready(name, true);
            return;
        }
        if !breaks || !sent.available {
            return;
        }
        let is_late = sent.deferred || now >= sent.at + deadline();
        if is_late && !restarts {
            self.broken_late.insert(name.to_owned());
        } else {
            self.broken.insert(name.to_owned());
        }
    }

    /// A pod has become ready, or unready.
    pub(crate) fn ready(&mut self, name: &str, ready: bool) {
        if ready {
            self.broken.remove(name);
            self.broken_late.remove(name);
        } else {
            self.failed(name);
        }
    }

    /// A container was restarted, or killed.
    pub(crate) fn failed(&mut self, name: &str) {
        if self.sent.contains_key(name) {
            self.failed.insert(name.to_owned());
        }
    }

    /// A pod is gone.
    pub(crate) fn remove(&mut self, name: &str) {
        self.ready(name, true);
        self.sent.remove(name);
        self.failed.remove(name);
    }
}

/// The deadline of resizes in all tests.
pub(crate) fn deadline() -> SignedDuration {
    PodPolicy::default().deadline
}
