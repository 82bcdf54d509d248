//! The decisions about Jobs in the frame of workloads.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::PropagationPolicy;
use plumb_follow::place;

use super::{FINALIZER, NAME, Seen, decide, end, expires_at, is_managed_elsewhere, is_tracked, let_go};
use crate::workload::claim::claims;
use crate::workload::{Action, Around, Ref, Shelves, Wiring, Workload, controller_of, owner};

/// Runs the pods of Jobs.
pub struct Jobs;

impl Workload for Jobs {
    const NAME: &'static str = NAME;
    const KEEPS: Option<&'static str> = Some(FINALIZER);
    type Kind = Job;
    type State = (Arc<Job>, Vec<Arc<Pod>>);

    fn wire(&self, wiring: &Wiring<Job>) {
        wiring.owned::<Pod>(selector);
    }

    fn claims(&self, job: &Job, shelves: &Shelves) -> Vec<Action> {
        if end(job).is_some() || is_managed_elsewhere(job) {
            return Vec::new();
        }
        claims(job, selector(job).as_ref(), &shelves.pods)
    }

    fn gather(&self, job: &Arc<Job>, shelves: &Shelves) -> Self::State {
        (job.clone(), shelves.pods.controlled_by(job.metadata.uid.as_deref().unwrap_or_default()))
    }

    fn decide(&self, (job, pods): &Self::State, around: &Around) -> Vec<Action> {
        decide(Seen { job, pods, now: around.now })
    }
}

fn selector(job: &Job) -> Option<LabelSelector> {
    job.spec.as_ref()?.selector.clone()
}

/// Lets pods go whose Job is gone or has come to its end: nobody counts them any more.
pub struct Strays;

impl Workload for Strays {
    const NAME: &'static str = NAME;
    const TASK: &'static str = "job-controller/strays";
    type Kind = Pod;
    type State = (Arc<Pod>, Option<Arc<Job>>);

    fn minds(pod: &Pod) -> bool {
        is_tracked(pod)
    }

    fn wire(&self, wiring: &Wiring<Pod>) {
        let (queue, pods) = (wiring.queue.clone(), wiring.shelves.pods.clone());
        wiring.shelves.jobs.listen(move |change| {
            let ended = change.now.is_none_or(|job| end(job).is_some());
            let uid = change.last().filter(|_| ended).and_then(|job| job.metadata.uid.as_deref());
            for pod in uid.into_iter().flat_map(|uid| pods.controlled_by(uid)) {
                queue.touch(place(&*pod));
            }
        });
    }

    fn claims(&self, _: &Pod, _: &Shelves) -> Vec<Action> {
        Vec::new()
    }

    fn gather(&self, pod: &Arc<Pod>, shelves: &Shelves) -> Self::State {
        (pod.clone(), owner::<Job>(&**pod).and_then(|at| shelves.jobs.get(&at)))
    }

    fn decide(&self, (pod, job): &Self::State, _: &Around) -> Vec<Action> {
        if is_tracked(pod) && is_stray(pod, job.as_deref()) { vec![let_go(pod)] } else { Vec::new() }
    }
}

/// Whether no Job counts a pod. `job` is the one of the name that the pod's controller has.
fn is_stray(pod: &Pod, job: Option<&Job>) -> bool {
    let Some(controller) = controller_of(&pod.metadata) else { return true };
    if owner::<Job>(pod).is_none() {
        // Somebody else controls it, and may have a use for the finalizer.
        return false;
    }
    let job = job.filter(|job| job.metadata.uid.as_ref() == Some(&controller.uid));
    job.is_none_or(|job| end(job).is_some() && !is_managed_elsewhere(job))
}

/// Deletes Jobs some time after their end, where that was asked for.
pub struct Expiry;

impl Workload for Expiry {
    const NAME: &'static str = "ttl-after-finished-controller";
    type Kind = Job;
    type State = Arc<Job>;

    fn minds(job: &Job) -> bool {
        expires_at(job).is_some()
    }

    fn wire(&self, _: &Wiring<Job>) {}

    fn claims(&self, _: &Job, _: &Shelves) -> Vec<Action> {
        Vec::new()
    }

    fn gather(&self, job: &Arc<Job>, _: &Shelves) -> Self::State {
        job.clone()
    }

    fn decide(&self, job: &Self::State, around: &Around) -> Vec<Action> {
        if job.metadata.deletion_timestamp.is_some() {
            return Vec::new();
        }
        match expires_at(job) {
            // Its pods first: nobody should find them without it.
            Some(at) if at <= around.now => {
                vec![Action::Delete(Ref::to(&**job), Some(PropagationPolicy::Foreground))]
            }
            Some(at) => vec![Action::LookAgainAt(at)],
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_are_let_go_when_no_job_counts_them() {
        let job = |uid: &str, ended: bool| -> Job {
            let conditions = json!([{ "type": "Failed", "status": if ended { "True" } else { "False" } }]);
            serde_json::from_value(
                json!({ "metadata": { "name": "j", "uid": uid }, "status": { "conditions": conditions } }),
            )
            .unwrap()
        };
        let pod = |kind: Option<&str>| -> Pod {
            let owners: Vec<_> = kind
                .iter()
                .map(|kind| json!({ "apiVersion": "batch/v1", "kind": kind, "name": "j", "uid": "u", "controller": true }))
                .collect();
            serde_json::from_value(json!({ "metadata": { "name": "p", "ownerReferences": owners } })).unwrap()
        };
        for (kind, job, stray) in [
            (None, None, true),
            (Some("Job"), None, true),
            (Some("Job"), Some(job("u", false)), false),
            (Some("Job"), Some(job("u", true)), true),
            // Another of the same name.
            (Some("Job"), Some(job("v", false)), true),
            (Some("Other"), None, false),
        ] {
            assert_eq!(is_stray(&pod(kind), job.as_ref()), stray, "{kind:?} {job:?}");
        }
    }
}
