//! Job tracking with finalizers: which pods of a Job succeeded and failed, each counted once.
//!
//! ```text
//!   a pod ends ──▶ its UID is uncounted ──▶ finalizer removed ──▶ counted, its UID is removed
//!                  (status, observed)       (pod, observed)       (status)
//! ```
//!
//! A pod has a finalizer until the status that names its UID was *observed*, and is counted only after the removal of the
//! finalizer was observed. A controller that is killed in between finds in the API how far it came, and the sum of counted
//! pods, uncounted UIDs and pods with the finalizer is right at every moment. Indexes need no UIDs: they are a set.

use std::collections::HashSet;

use k8s_openapi::api::batch::v1::{JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;

use super::policy::Meaning;
use super::state::{JobState, index_of, uid};
use crate::workload::pods as pod;

/// The maximum number of UIDs in a status, so that it stays small.
const MOST_UNCOUNTED: usize = 500;

/// Which pods have ended, and which of them are counted.
pub(super) struct PodTracking<'a> {
    state: JobState<'a>,
    uncounted_succeeded: HashSet<&'a str>,
    uncounted_failed: HashSet<&'a str>,
    /// Pods that succeeded and whose UID is not in the status yet.
    pub(super) succeeded: Vec<&'a Pod>,
    /// Pods that failed and whose UID is not in the status yet.
    pub(super) failed: Vec<&'a Pod>,
}

/// How a Job ends, as far as its pods are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It continues.
    No,
    /// It has failed, and so have the pods that still run.
    Failure,
    /// It has succeeded; `known` if the informer has observed that in its status. Pods that still run have neither
    /// succeeded nor failed.
    Success {
        /// Whether its status has the condition.
        known: bool,
    },
    /// It is deleted: finalizers are removed from pods in any phase.
    Deleted,
}

impl<'a> PodTracking<'a> {
    pub(super) fn new(state: JobState<'a>) -> Self {
        let status = state.job.status.as_ref();
        let uncounted = status.and_then(|status| status.uncounted_terminated_pods.as_ref());
        let set = |uids: Option<&'a Vec<String>>| uids.into_iter().flatten().map(String::as_str).collect();
        let uncounted_succeeded: HashSet<&str> =
            set(uncounted.and_then(|uncounted| uncounted.succeeded.as_ref()));
        let uncounted_failed: HashSet<&str> = set(uncounted.and_then(|uncounted| uncounted.failed.as_ref()));
        let is_new = |pod: &Pod| {
            let uid = uid(pod);
            !uncounted_succeeded.contains(uid) && !uncounted_failed.contains(uid) && state.is_in_range(pod)
        };
        let new = || state.tracked().map(|pod| &**pod).filter(|pod| is_new(pod));
        let succeeded = new().filter(|pod| pod::phase(pod) == "Succeeded").collect();
        let failed = new().filter(|pod| state.has_failed(pod)).collect();
        Self { state, uncounted_succeeded, uncounted_failed, succeeded, failed }
    }

    /// How many pods succeeded, or indexes where there are some.
    pub(super) fn total_succeeded(&self) -> i32 {
        if self.state.is_indexed() {
            return self.state.successes().total();
        }
        let counted = self.state.job.status.as_ref().and_then(|status| status.succeeded).unwrap_or(0);
        counted + size(self.succeeded.len() + self.uncounted_succeeded.len())
    }

    /// The number of pods whose failure counts.
    pub(super) fn total_failed(&self) -> i32 {
        let counted = self.state.job.status.as_ref().and_then(|status| status.failed).unwrap_or(0);
        let new = self.failed.iter().filter(|pod| self.state.meaning(pod) != Meaning::Ignored).count();
        counted + size(new + self.uncounted_failed.len())
    }

    /// Updates a status, and returns the pods whose finalizer may be removed. `keep` are not among them, though they
    /// failed.
    pub(super) fn update(
        &self,
        status: &mut JobStatus,
        ending: Ending,
        keep: &HashSet<&str>,
    ) -> Vec<&'a Pod> {
        let state = &self.state;
        let mut tracked: Vec<&Pod> = state.tracked().map(|pod| &**pod).collect();
        // Low indexes first, so that a partial count is easy to read.
        tracked.sort_by_key(|pod| index_of(pod));
        let kept: HashSet<&str> = tracked.iter().map(|pod| uid(pod)).collect();
        let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
        count(&mut uncounted.succeeded, &mut status.succeeded, &kept);
        count(&mut uncounted.failed, &mut status.failed, &kept);
        let known = state.known_successes();
        let mut release = Vec::new();
        for pod in tracked {
            let uid = uid(pod);
            // The other UIDs are added once these are counted.
            let is_full = listed(&uncounted) >= MOST_UNCOUNTED;
            let has_failed = state.has_failed(pod);
            let succeeded = pod::phase(pod) == "Succeeded" && !self.uncounted_failed.contains(uid);
            if succeeded {
                let index = index_of(pod).filter(|_| state.is_indexed());
                let is_known = match index {
                    Some(index) => known.has(index) || !state.is_in_range(pod),
                    None => state.is_indexed() || self.uncounted_succeeded.contains(uid),
                };
                if is_known {
                    release.push(pod);
                } else if !state.is_indexed() && !is_full {
                    uncounted.succeeded.get_or_insert_default().push(uid.to_owned());
                }
                continue;
            }
            if has_failed && keep.contains(uid) && ending == Ending::No {
                continue;
            }
            if self.uncounted_failed.contains(uid) {
                // The phase does not matter: the pod may have succeeded after it was deleted.
                release.push(pod);
                continue;
            }
            if has_failed || ending == Ending::Failure {
                // A pod that is terminated because the Job succeeded has not failed.
                let counts = match ending {
                    Ending::Success { .. } => pod::phase(pod) == "Failed",
                    _ => true,
                };
                let counts = counts && state.is_in_range(pod) && state.meaning(pod) != Meaning::Ignored;
                if !counts {
                    release.push(pod);
                } else if !is_full {
                    uncounted.failed.get_or_insert_default().push(uid.to_owned());
                }
                continue;
            }
            if matches!(ending, Ending::Success { known: true } | Ending::Deleted) {
                release.push(pod);
            }
        }
        status.uncounted_terminated_pods = Some(uncounted);
        if state.is_indexed() {
            let successes = state.successes();
            status.succeeded = Some(successes.total()).filter(|total| *total > 0);
            status.completed_indexes = Some(successes.to_string()).filter(|text| !text.is_empty());
            status.failed_indexes = state.fails_by_index().then(|| state.failures().to_string());
        }
        release
    }
}

/// Counts the pods whose finalizer is removed.
fn count(listed: &mut Option<Vec<String>>, counter: &mut Option<i32>, kept: &HashSet<&str>) {
    let uids = listed.take().unwrap_or_default();
    let before = uids.len();
    let left: Vec<String> = uids.into_iter().filter(|uid| kept.contains(&**uid)).collect();
    let gone = size(before - left.len());
    *listed = Some(left).filter(|left| !left.is_empty());
    if gone > 0 {
        *counter = Some(counter.unwrap_or(0) + gone);
    }
}

fn listed(uncounted: &UncountedTerminatedPods) -> usize {
    let length = |uids: &Option<Vec<String>>| uids.as_ref().map_or(0, Vec::len);
    length(&uncounted.succeeded) + length(&uncounted.failed)
}

/// Whether every pod that ended is counted.
pub(super) fn are_all_counted(status: &JobStatus) -> bool {
    status.uncounted_terminated_pods.as_ref().is_none_or(|uncounted| listed(uncounted) == 0)
}

/// A number of pods, as a status has it.
pub(super) fn size(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
