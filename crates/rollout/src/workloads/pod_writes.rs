//! The writes for single pods: resizes, evictions, labels.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, Patch, Preconditions};
use plumb_client::Api;
use plumb_controller_runtime::ObjectRef;
use plumb_supervise::Exponential;
use serde_json::json;

use super::object::Workload;
use super::reconcile::Rollouts;
use super::tracker::{Retry, TrackerState};
use crate::engine::{self, Action, Hooks as _, Plan, Refusal, patch_params};
use crate::metrics::RolloutMetrics;
use crate::request::RequestError;

/// How many pods are written at a time for one workload.
const WRITES_AT_A_TIME: usize = 32;
/// The delays after writes of a pod that failed, and nothing of that is recorded on it.
const BACKOFF: Exponential = Exponential::new(Duration::from_millis(200), Duration::from_secs(30));

impl Rollouts {
    /// Performs the actions that are about one pod each. Whether anything was written.
    pub(super) async fn write_pods(
        &self,
        workload: &Workload,
        state: &mut TrackerState,
        actions: &[Action],
        now: Timestamp,
    ) -> bool {
        let Some(hooks) = state.hooks().cloned() else { return false };
        let namespace = workload.metadata().namespace.clone().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        state.backoff.retain(|_, retry| retry.until > now - BACKOFF.ceiling);
        let mut writes: Vec<PodAction> = Vec::new();
        for action in actions {
            let (Action::Update(name) | Action::RollBack(name, _) | Action::Evict(name)) = action else {
                continue;
            };
            if state.backoff.get(name).is_some_and(|retry| retry.until > now) {
                continue;
            }
            let Some(pod) = state.pod(&namespace, name, &self.informers.pods) else { continue };
            let plan = match action {
                Action::Update(_) => {
                    let Some(view) = state.pods.get(name) else { continue };
                    engine::plan(&pod, &view.evaluation.next, &hooks, now)
                }
                Action::RollBack(_, failure) => engine::plan_back(&pod, Some(failure.clone()), &hooks, now),
                _ => None,
            };
            match (plan, action) {
                (_, Action::Evict(_)) => writes.push(PodAction::Evict(pod)),
                (Some(plan), _) => writes.push(PodAction::Write(pod, Box::new(plan))),
                (None, _) => {}
            }
        }
        let wrote = !writes.is_empty();
        let results: Vec<Performed> = stream::iter(writes)
            .map(|action| {
                let (api, metrics) = (api.clone(), &self.metrics);
                async move { perform(&api, action, metrics, now).await }
            })
            .buffer_unordered(WRITES_AT_A_TIME)
            .collect()
            .await;
        let mut succeeded = false;
        for Performed { name, pod, evicted, error } in results {
            if let Some(pod) = pod {
                state.wrote(*pod, &|pod: &Pod| workload.order(pod), now);
            }
            match error {
                None => {
                    succeeded = true;
                    state.backoff.remove(&name);
                    if evicted {
                        state.pods.remove(&name);
                    }
                }
                Some(refusal) => {
                    tracing::debug!(pod = name, ?refusal, "cannot write a pod, will retry");
                    let failures = state.backoff.get(&name).map_or(0, |retry| retry.failures) + 1;
                    let until = now.checked_add(BACKOFF.after(failures)).unwrap_or(Timestamp::MAX);
                    let refused = match refusal {
                        Refusal::Refused(reason, message) => Some((reason, message)),
                        Refusal::Gone | Refusal::Transient(_) => None,
                    };
                    state.backoff.insert(name, Retry { failures, until, refused });
                }
            }
        }
        wrote && succeeded
    }

    /// Labels the pods that do not follow, because they were resized back or could not be, with the revision of their
    /// workload: its own controller would recreate them. Fails with the first of the errors, once all writes were answered.
    pub(super) async fn label_pods(
        &self,
        workload: &Workload,
        state: &mut TrackerState,
        now: Timestamp,
    ) -> Result<(), RequestError> {
        let hooks = state.hooks().cloned().filter(|hooks| hooks.revision_label.is_some());
        let Some(hooks) = hooks else { return Ok(()) };
        let namespace = workload.metadata().namespace.clone().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let names: Vec<String> = state.pods.iter().map(|(name, _)| name.to_owned()).collect();
        let mut pods = Vec::new();
        for name in names {
            let pod = state.pod(&namespace, &name, &self.informers.pods);
            pods.extend(pod.filter(|pod| !hooks.follows(pod)));
        }
        let results: Vec<Result<Pod, RequestError>> =
            stream::iter(pods)
                .map(|pod| {
                    let (api, patch) = (api.clone(), hooks.on_done(&pod).unwrap_or_default());
                    let patch =
                        engine::merged(patch, Some(json!({ "metadata": { "uid": pod.metadata.uid } })));
                    let name = pod.metadata.name.clone().unwrap_or_default();
                    let failed = RequestError::of("labelling", "Pod", ObjectRef::of(&*pod));
                    async move {
                        api.patch(&name, &patch_params(), &Patch::Strategic(patch)).await.map_err(failed)
                    }
                })
                .buffer_unordered(WRITES_AT_A_TIME)
                .collect()
                .await;
        let mut labelled = Ok(());
        for result in results {
            match result {
                Ok(pod) => state.wrote(pod, &|pod: &Pod| workload.order(pod), now),
                // One that is gone needs no label.
                Err(error) if Refusal::of(&error.source) == Refusal::Gone => {}
                Err(error) => labelled = labelled.and(Err(error)),
            }
        }
        labelled
    }
}

enum PodAction {
    Write(Arc<Pod>, Box<Plan>),
    Evict(Arc<Pod>),
}

/// The result of an action about one pod.
struct Performed {
    name: String,
    /// The pod after the last write that was accepted.
    pod: Option<Box<Pod>>,
    evicted: bool,
    /// Why the rest is to be tried again.
    error: Option<Refusal>,
}

/// Performs an action about one pod.
async fn perform(api: &Api<Pod>, action: PodAction, metrics: &RolloutMetrics, now: Timestamp) -> Performed {
    match action {
        PodAction::Write(pod, plan) => {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let result = engine::update(api, &pod, &plan, now).await;
            metrics.updated(&result);
            // A refusal in the pod's record is part of its state, and retried as the record has it.
            let recorded = result.pod.is_some() && matches!(result.error, Some(Refusal::Refused(..)));
            Performed { name, pod: result.pod, evicted: false, error: result.error.filter(|_| !recorded) }
        }
        PodAction::Evict(pod) => {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
            let delete_options =
                Some(DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() });
            let params = EvictParams { delete_options, ..EvictParams::default() };
            let error = api.evict(&name, &params).await.err().map(|error| Refusal::of(&error));
            if error.is_none() {
                metrics.evicted();
            }
            Performed { name, pod: None, evicted: error.is_none(), error }
        }
    }
}
