//! How fast pods of a VPA are evicted while the pods that replace them come up without the recommendation.
//!
//! The lease of the admission controller says that it runs, not that the API server reaches it. If the API server does not,
//! and the webhook's `failurePolicy` is `Ignore`, a new pod has the resources of its template and is due again as soon as it
//! runs. A pod that appeared after the last evictions and is due is evidence of that: the next evictions wait until the
//! updater interval has passed, as they do with upstream's updater, which looks at a workload once per interval.
//!
//! Resizes do not wait: they need no admission.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use plumb_vpa_api::RecommendedPodResources;

use crate::decide::{Subject, Triage};

/// The last evictions of pods of a VPA.
#[derive(Clone, Debug)]
pub struct LastEvictions {
    /// Pods that arrived later replace evicted ones, or are as new.
    pub arrivals: u64,
    /// When the pods were evicted.
    pub at: Timestamp,
    /// What was recommended.
    pub recommendation: Option<RecommendedPodResources>,
}

/// Why and until when evictions wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When pods may be evicted again. It may have passed.
    pub until: Timestamp,
    /// The pods that arrived up to here are not the ones that came up without the recommendation.
    pub arrivals: u64,
    /// Whether the admission controller has changed the pods that came up without the recommendation.
    pub are_admitted: bool,
}

impl LastEvictions {
    /// The pause because of pods that are due though they came up after these evictions; none if there are no such pods.
    ///
    /// Pods that the admission controller has changed do not count once another recommendation is known: they may have
    /// what was recommended when they were created.
    pub fn pause(
        &self,
        subjects: &[Subject],
        triage: &Triage,
        recommendation: Option<&RecommendedPodResources>,
        interval: SignedDuration,
    ) -> Option<Pause> {
        let is_same = self.recommendation.as_ref() == recommendation;
        let due = triage.due.iter().map(|position| &subjects[*position]);
        let mut replacements = due
            .filter(|subject| subject.arrival > self.arrivals && (is_same || !subject.pod.admitted))
            .peekable();
        replacements.peek()?;
        Some(Pause {
            until: self.at.checked_add(interval).unwrap_or(Timestamp::MAX),
            arrivals: self.arrivals,
            are_admitted: replacements.all(|subject| subject.pod.admitted),
        })
    }
}
