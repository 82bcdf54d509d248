//! A Job and its pods: the input of a decision.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::indexes::Indexes;
use super::policy::{Meaning, meaning};
use crate::workload::pods as pod;

/// The finalizer of a pod until it is counted.
pub const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The annotation with the completion index of a pod.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// A Job, its pods, and the time.
#[derive(Clone, Copy)]
pub struct JobState<'a> {
    /// The Job.
    pub job: &'a Job,
    /// The pods that it controls.
    pub pods: &'a [Arc<Pod>],
    /// The current time.
    pub now: Timestamp,
}

/// Whether a pod has the tracking finalizer.
pub fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

/// A condition of a Job that is true.
pub(super) fn condition<'a>(job: &'a Job, wanted: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == wanted && condition.status == "True")
}

/// The terminal condition of a finished Job.
pub fn end(job: &Job) -> Option<&JobCondition> {
    condition(job, "Complete").or_else(|| condition(job, "Failed"))
}

/// Whether another controller manages a Job.
pub fn is_managed_elsewhere(job: &Job) -> bool {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.is_some_and(|manager| manager != "kubernetes.io/job-controller")
}

/// The UID of a pod.
pub(super) fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether a pod that has not ended is terminating.
fn is_terminating(pod: &Pod) -> bool {
    !pod::has_ended(pod) && pod::is_terminating(pod)
}

/// The completion index of a pod.
pub(super) fn index_of(pod: &Pod) -> Option<i32> {
    annotation(pod, INDEX)?.parse().ok().filter(|index| *index >= 0)
}

fn count(pod: &Pod, key: &str) -> i32 {
    annotation(pod, key).and_then(|text| text.parse().ok()).filter(|count| *count >= 0).unwrap_or(0)
}

/// How often an index failed before this pod of it, counted or not.
pub(super) fn failures_before(pod: &Pod) -> (i32, i32) {
    (count(pod, FAILURES), count(pod, IGNORED_FAILURES))
}

/// The annotations that tell the next pod of an index how often the pods before it failed.
pub(super) fn failure_annotations(failures: (i32, i32)) -> impl Iterator<Item = (String, String)> {
    let ignored = (failures.1 > 0).then(|| (IGNORED_FAILURES.to_owned(), failures.1.to_string()));
    [(FAILURES.to_owned(), failures.0.to_string())].into_iter().chain(ignored)
}

impl<'a> JobState<'a> {
    /// The spec of the Job.
    pub(super) fn spec(&self) -> &'a JobSpec {
        static NONE: std::sync::LazyLock<JobSpec> = std::sync::LazyLock::new(JobSpec::default);
        self.job.spec.as_ref().unwrap_or(&NONE)
    }

    pub(super) fn is_indexed(&self) -> bool {
        self.spec().completion_mode.as_deref() == Some("Indexed")
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.spec().suspend == Some(true)
    }

    /// Whether the backoff limit is per index.
    pub(super) fn fails_by_index(&self) -> bool {
        self.is_indexed() && self.spec().backoff_limit_per_index.is_some()
    }

    pub(super) fn completions(&self) -> i32 {
        self.spec().completions.unwrap_or(0)
    }

    /// Whether a pod is replaced only after it has failed, and not while it terminates: `podReplacementPolicy` is
    /// `Failed`.
    pub(super) fn replaces_only_failed(&self) -> bool {
        let spec = self.spec();
        spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some()
    }

    /// Whether the index of a pod is in range; always true without indexes.
    pub(super) fn is_in_range(&self, pod: &Pod) -> bool {
        !self.is_indexed() || index_of(pod).is_some_and(|index| index < self.completions())
    }

    /// Whether a pod has failed. A deleted pod counts as failed, since it never reports a phase if its node is lost.
    pub(super) fn has_failed(&self, pod: &Pod) -> bool {
        match pod::phase(pod) {
            "Failed" => true,
            "Succeeded" => false,
            _ => pod::is_terminating(pod) && !self.replaces_only_failed(),
        }
    }

    /// The action of the pod failure policy for a failed pod.
    pub(super) fn meaning(&self, pod: &Pod) -> Meaning {
        meaning(self.spec().pod_failure_policy.as_ref(), pod)
    }

    pub(super) fn active(&self) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.pods.iter().filter(|pod| pod::is_active(pod))
    }

    pub(super) fn terminating(&self) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.pods.iter().filter(|pod| is_terminating(pod))
    }

    pub(super) fn tracked(&self) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.pods.iter().filter(|pod| is_tracked(pod))
    }

    /// The indexes that were known to have succeeded.
    pub(super) fn known_successes(&self) -> Indexes {
        let status = self.job.status.as_ref();
        let text = status.and_then(|status| status.completed_indexes.as_deref()).unwrap_or_default();
        Indexes::parse(text, self.completions())
    }

    /// The indexes that have succeeded.
    pub(super) fn successes(&self) -> Indexes {
        let new = self.tracked().filter(|pod| pod::phase(pod) == "Succeeded" && self.is_in_range(pod));
        self.known_successes().with(&indexes(new))
    }

    /// The indexes that have failed for good.
    pub(super) fn failures(&self) -> Indexes {
        let status = self.job.status.as_ref();
        let text = status.and_then(|status| status.failed_indexes.as_deref()).unwrap_or_default();
        let limit = self.spec().backoff_limit_per_index.unwrap_or(0);
        let new = self.tracked().filter(|pod| {
            let counts = |pod: &Pod| match self.meaning(pod) {
                Meaning::FailsIndex => true,
                Meaning::Ignored => false,
                Meaning::Counts | Meaning::FailsJob(_) => failures_before(pod).0 >= limit,
            };
            self.is_in_range(pod) && self.has_failed(pod) && counts(pod)
        });
        Indexes::parse(text, self.completions()).with(&indexes(new))
    }
}

/// The indexes of pods.
pub(super) fn indexes<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> BTreeSet<i32> {
    pods.filter_map(|pod| index_of(pod)).collect()
}
