//! The Job controller as a [`Workload`](crate::workload::Workload).

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::PropagationPolicy;
use plumb_controller_runtime::{ObjectRef, controller_of, controller_of_kind};

use super::{FINALIZER, JobState, NAME, decide, end, expires_at, is_managed_elsewhere, is_tracked, release};
use crate::workload::claim::claims;
use crate::workload::{Action, Context, Informers, Ref, Watches, Workload};

/// The Job controller.
pub struct Jobs;

impl Workload for Jobs {
    const NAME: &'static str = NAME;
    const FINALIZER: Option<&'static str> = Some(FINALIZER);
    type Kind = Job;
    type State = (Arc<Job>, Vec<Arc<Pod>>);

    fn watch(&self, watches: &Watches<Job>) {
        watches.owned::<Pod>(selector);
    }

    fn claims(&self, job: &Job, informers: &Informers) -> Vec<Action> {
        if end(job).is_some() || is_managed_elsewhere(job) {
            return Vec::new();
        }
        claims(job, selector(job).as_ref(), &informers.pods)
    }

    fn gather(&self, job: &Arc<Job>, informers: &Informers) -> Self::State {
        (job.clone(), informers.pods.controlled_by(job.metadata.uid.as_deref().unwrap_or_default()))
    }

    fn decide(&self, (job, pods): &Self::State, context: &Context) -> Vec<Action> {
        decide(JobState { job, pods, now: context.now })
    }
}

fn selector(job: &Job) -> Option<LabelSelector> {
    job.spec.as_ref()?.selector.clone()
}

/// Removes the tracking finalizer of orphan pods: those whose Job is gone or finished, so that they are not counted any more.
pub struct Strays;

impl Workload for Strays {
    const NAME: &'static str = NAME;
    const TASK: &'static str = "job-controller/strays";
    type Kind = Pod;
    type State = (Arc<Pod>, Option<Arc<Job>>);

    fn filter(pod: &Pod) -> bool {
        is_tracked(pod)
    }

    fn watch(&self, watches: &Watches<Pod>) {
        let queue = watches.queue.clone();
        let pods = watches.informers.pods.clone();
        watches.informers.jobs.add_handler(move |change| {
            let ended = change.after.is_none_or(|job| end(job).is_some());
            let uid = change.latest().filter(|_| ended).and_then(|job| job.metadata.uid.as_deref());
            for pod in uid.into_iter().flat_map(|uid| pods.controlled_by(uid)) {
                queue.add(ObjectRef::of(&*pod));
            }
        });
    }

    fn claims(&self, _: &Pod, _: &Informers) -> Vec<Action> {
        Vec::new()
    }

    fn gather(&self, pod: &Arc<Pod>, informers: &Informers) -> Self::State {
        (pod.clone(), controller_of_kind::<Job>(&**pod).and_then(|at| informers.jobs.get(&at)))
    }

    fn decide(&self, (pod, job): &Self::State, _: &Context) -> Vec<Action> {
        if is_tracked(pod) && is_stray(pod, job.as_deref()) { vec![release(pod)] } else { Vec::new() }
    }
}

/// Whether no Job counts a pod. `job` is the one of the name that the pod's controller has.
fn is_stray(pod: &Pod, job: Option<&Job>) -> bool {
    let Some(controller) = controller_of(&pod.metadata) else { return true };
    if controller_of_kind::<Job>(pod).is_none() {
        // Another controller controls it, and may need the finalizer.
        return false;
    }
    let job = job.filter(|job| job.metadata.uid.as_ref() == Some(&controller.uid));
    job.is_none_or(|job| end(job).is_some() && !is_managed_elsewhere(job))
}

/// Deletes Jobs `ttlSecondsAfterFinished` after their end.
pub struct Expiry;

impl Workload for Expiry {
    const NAME: &'static str = "ttl-after-finished-controller";
    type Kind = Job;
    type State = Arc<Job>;

    fn filter(job: &Job) -> bool {
        expires_at(job).is_some()
    }

    fn watch(&self, _: &Watches<Job>) {}

    fn claims(&self, _: &Job, _: &Informers) -> Vec<Action> {
        Vec::new()
    }

    fn gather(&self, job: &Arc<Job>, _: &Informers) -> Self::State {
        job.clone()
    }

    fn decide(&self, job: &Self::State, context: &Context) -> Vec<Action> {
        if job.metadata.deletion_timestamp.is_some() {
            return Vec::new();
        }
        match expires_at(job) {
            // Its pods are deleted before it.
            Some(at) if at <= context.now => {
                vec![Action::Delete(Ref::to(&**job), Some(PropagationPolicy::Foreground))]
            }
            Some(at) => vec![Action::RequeueAt(at)],
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finalizers_are_removed_from_pods_that_no_job_counts() {
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
            // Another Job with the same name.
            (Some("Job"), Some(job("v", false)), true),
            (Some("Other"), None, false),
        ] {
            assert_eq!(is_stray(&pod(kind), job.as_ref()), stray, "{kind:?} {job:?}");
        }
    }
}
