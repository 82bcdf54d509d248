//! Performs a plan: resizes, evicts, records, and emits events.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::SignedDuration;
use plumb_controller_runtime::{ObjectRef, Write};
use plumb_vpa_api::VerticalPodAutoscaler;
use tokio::time::Instant;

use super::{Inner, OBSERVED_WITHIN, recommendation_of};
use crate::actuate::{InPlaceActuator, RecreatingActuator};
use crate::attempt::{ANNOTATION, Accepted, IN_PLACE_UPDATED, Infeasible, Record, Rejected};
use crate::decide::{Plan, Subject};
use crate::in_place::{Backoff, Cause, InPlace, Recreating};
use crate::index::Gathered;
use crate::refusal::{Refusal, RefusalAction};
use crate::shrink_first::NodeDecision;

/// For how long a plan is valid while a pod waits for the rate limit.
const PLAN_VALID_FOR: Duration = Duration::from_secs(1);

/// A pod that something is done about.
struct Task<'a> {
    key: &'a ObjectRef,
    vpa: &'a VerticalPodAutoscaler,
    subject: &'a Subject,
    object: &'a Pod,
    /// Whether each accepted resize is recorded, because its timeouts may lead to an eviction.
    records_accepted: bool,
}

impl Inner {
    /// Performs the actions for several pods at a time, and waits until the store has observed them. Returns whether
    /// an action was refused that is retried later, or not performed because the VPA has changed: then the plan does
    /// not have what pods wait for.
    pub(super) async fn perform(&self, key: &ObjectRef, gathered: &Gathered, plan: &Plan) -> bool {
        let concurrent = self.config.options.concurrent_updates.max(1);
        let task = |position: usize, records_accepted: bool| Task {
            key,
            vpa: &gathered.vpa,
            subject: &gathered.subjects[position],
            object: &gathered.pods[position],
            records_accepted,
        };
        let tasks: Vec<BoxFuture<'_, bool>> = match plan {
            Plan::None(_) => return false,
            // No function that is called from here has an evictor.
            Plan::InPlace(decided) => decided
                .iter()
                .filter(|one| self.is_work(&task(one.position, false), &one.decision))
                .map(|one| {
                    let future =
                        self.perform_in_place(&self.in_place, task(one.position, false), &one.decision);
                    Box::pin(future) as BoxFuture<'_, bool>
                })
                .collect(),
            Plan::Recreating(decided) => decided
                .iter()
                .filter(|one| match &one.decision {
                    Recreating::InPlace(decision) => self.is_work(&task(one.position, true), decision),
                    Recreating::Evict(_) => true,
                })
                .map(|one| {
                    let future =
                        self.perform_recreating(&self.recreating, task(one.position, true), &one.decision);
                    Box::pin(future) as BoxFuture<'_, bool>
                })
                .collect(),
        };
        let performed = stream::iter(tasks).buffer_unordered(concurrent);
        performed.fold(false, |any, refused| std::future::ready(any | refused)).await
    }

    /// Whether a decision needs anything but an event, which is emitted here.
    fn is_work(&self, task: &Task<'_>, decision: &InPlace) -> bool {
        let Task { key, vpa, subject, .. } = task;
        match decision {
            InPlace::Updated => false,
            InPlace::Wait(wait) => {
                self.emit_wait(vpa, &subject.pod, wait);
                false
            }
            InPlace::Infeasible { record: None } => {
                if self.emit_infeasible(vpa, &subject.pod) {
                    self.config.updater_metrics.skipped(key);
                }
                false
            }
            InPlace::Resize { .. } | InPlace::Infeasible { record: Some(_) } => true,
        }
    }

    async fn perform_in_place(&self, actuator: &InPlaceActuator, task: Task<'_>, decision: &InPlace) -> bool {
        match decision {
            InPlace::Resize { costs_budget } => self.resize(actuator, &task, *costs_budget).await,
            InPlace::Infeasible { record: Some(record) } => {
                self.config.updater_metrics.update_failed(task.key, "InPlaceUpdateInfeasible");
                let record = Record { infeasible: Some(record.clone()), ..task.subject.pod.record.clone() };
                self.record(actuator, &task, record).await;
                false
            }
            InPlace::Updated | InPlace::Wait(_) | InPlace::Infeasible { record: None } => false,
        }
    }

    async fn perform_recreating(
        &self,
        actuator: &RecreatingActuator,
        task: Task<'_>,
        decision: &Recreating,
    ) -> bool {
        match decision {
            Recreating::InPlace(decision) => self.perform_in_place(&actuator.in_place, task, decision).await,
            Recreating::Evict(cause) => self.evict(actuator, &task, cause).await,
        }
    }

    async fn resize(&self, actuator: &InPlaceActuator, task: &Task<'_>, costs_budget: bool) -> bool {
        let pod = &*task.subject.pod;
        let Some(recommendation) = &task.subject.recommendation else { return false };
        if !self.is_current(task) {
            return true;
        }
        let planned = self.config.clock.monotonic();
        actuator.resizer.acquire().await;
        if !self.is_current(task) || (costs_budget && !self.is_still_planned(task, planned).await) {
            return true;
        }
        let sent = self.config.clock.monotonic();
        match actuator.resizer.resize(pod, recommendation).await {
            Ok(resized) => {
                let generation = resized.metadata.generation.unwrap_or_default();
                tracing::debug!(pod = %pod.object, generation, "resized a pod");
                if let Some(memory) = self.index.lock().memory(&pod.object, &pod.uid) {
                    (memory.backoff, memory.failures) = (None, 0);
                    memory.sent = Some((generation, sent));
                }
                self.config.updater_metrics.updated(task.key);
                self.emit_resized(task.vpa, pod);
                if task.subject.node_decision == NodeDecision::ShrinkFirst {
                    self.emit_shrunk_first(pod);
                }
                // A condition without a generation is not about this resize for a while.
                let is_recorded = task.records_accepted || pod.stage_condition.without_generation;
                let accepted = is_recorded.then(|| Accepted { generation, at: self.config.clock.now() });
                self.observed(&Write::updated(&resized.metadata)).await;
                // The timeouts of this resize must not lead to the eviction that a failed unboost must not lead to.
                let unboost = pod.record.unboost.clone();
                self.record(actuator, task, Record { accepted, unboost, ..Record::default() }).await;
                false
            }
            Err(refusal) => {
                let reason = match &refusal {
                    Refusal::NodeCapacity(_) => "InPlaceUpdateInfeasible",
                    _ => "InPlaceUpdateError",
                };
                self.refused(actuator, task, "an in-place update", &refusal, |metrics, key| {
                    metrics.update_failed(key, reason);
                })
                .await
            }
        }
    }

    async fn evict(&self, actuator: &RecreatingActuator, task: &Task<'_>, cause: &Cause) -> bool {
        let pod = &*task.subject.pod;
        if !self.is_current(task) {
            return true;
        }
        let planned = self.config.clock.monotonic();
        actuator.evictor.acquire().await;
        if !self.is_current(task) || !self.is_still_planned(task, planned).await {
            return true;
        }
        match actuator.evictor.evict(pod).await {
            Ok(()) => {
                tracing::debug!(pod = %pod.object, %cause, "evicted a pod");
                self.config.updater_metrics.evicted(task.key);
                self.emit_evicted(task.vpa, pod, cause);
                self.observed(&Write::deleted(pod.object.clone(), &*pod.uid)).await;
                false
            }
            Err(refusal) => {
                self.refused(&actuator.in_place, task, "an eviction", &refusal, |metrics, key| {
                    metrics.eviction_failed(key, "EvictionError");
                })
                .await
            }
        }
    }

    /// Whether the VPA of a pod has the same settings and recommendation as at the decision.
    fn is_current(&self, task: &Task<'_>) -> bool {
        self.index.lock().vpa(task.key).is_some_and(|vpa| {
            vpa.spec == task.vpa.spec && recommendation_of(vpa) == recommendation_of(task.vpa)
        })
    }

    /// Whether a pod would be disrupted by a plan of now, after it has waited for the rate limit: other pods of the workload may
    /// have been lost since the plan was made.
    async fn is_still_planned(&self, task: &Task<'_>, planned: Instant) -> bool {
        if self.since(planned) < PLAN_VALID_FOR {
            return true;
        }
        let Some(prepared) = self.prepare(task.key).await else { return false };
        let is_resize = |decision: &InPlace| matches!(decision, InPlace::Resize { .. });
        let positions: Vec<usize> = match &prepared.plan {
            Plan::None(_) => Vec::new(),
            Plan::InPlace(all) => {
                all.iter().filter(|one| is_resize(&one.decision)).map(|one| one.position).collect()
            }
            Plan::Recreating(all) => all
                .iter()
                .filter(|one| match &one.decision {
                    Recreating::InPlace(decision) => is_resize(decision),
                    Recreating::Evict(_) => true,
                })
                .map(|one| one.position)
                .collect(),
        };
        positions.into_iter().any(|at| prepared.gathered.subjects[at].pod.uid == task.subject.pod.uid)
    }

    /// Takes note of a refusal. Whether the request is made again after a while.
    async fn refused(
        &self,
        actuator: &InPlaceActuator,
        task: &Task<'_>,
        what: &str,
        refusal: &Refusal,
        count: impl FnOnce(&crate::UpdaterMetrics, &ObjectRef),
    ) -> bool {
        let pod = &*task.subject.pod;
        let failures = self.index.lock().memory(&pod.object, &pod.uid).map_or(0, |memory| memory.failures);
        let next = refusal.next(failures);
        tracing::debug!(pod = %pod.object, %refusal, ?next, "{what} was refused");
        if matches!(next, RefusalAction::ReadAgain | RefusalAction::Forget) {
            // The pod has changed or is gone, which the watch reports; should it not, the VPA is reconciled again.
            self.queue.add_after(super::Key::Vpa(task.key.clone()), super::super::refusal::backoff(0));
            return false;
        }
        count(&self.config.updater_metrics, task.key);
        self.emit_refused(task.vpa, pod, what, refusal);
        let Some(recommendation) = &task.subject.recommendation else { return false };
        let mut record = pod.record.clone();
        let is_retried = matches!(next, RefusalAction::Retry(_));
        match next {
            RefusalAction::RecordInfeasible => {
                let (requests, allocatable) = (recommendation.targets(), task.subject.allocatable);
                record.infeasible = Some(Infeasible { requests, allocatable });
                self.record(actuator, task, record).await;
            }
            RefusalAction::RecordRejected => {
                record.rejected = Some(Rejected {
                    resources: pod.with(recommendation),
                    generation: pod.generation,
                    message: refusal.to_string(),
                });
                self.record(actuator, task, record).await;
            }
            RefusalAction::Retry(wait) => {
                let until = SignedDuration::try_from(wait).ok();
                let until = until.and_then(|wait| self.config.clock.now().checked_add(wait).ok());
                let backoff = until.map(|until| Backoff {
                    until,
                    reason: refusal.reason(),
                    message: refusal.to_string(),
                });
                if let Some(memory) = self.index.lock().memory(&pod.object, &pod.uid) {
                    memory.failures = memory.failures.saturating_add(1);
                    memory.backoff = backoff;
                }
                self.queue.add_after(super::Key::Vpa(task.key.clone()), wait);
            }
            RefusalAction::ReadAgain | RefusalAction::Forget => {}
        }
        is_retried
    }

    /// Records something about a pod: at once in memory, and in its annotations.
    async fn record(&self, actuator: &InPlaceActuator, task: &Task<'_>, record: Record) {
        let pod = &*task.subject.pod;
        let annotations = task.object.metadata.annotations.as_ref();
        let annotation = |name: &str| annotations.and_then(|all| all.get(name));
        let is_marked = annotation(IN_PLACE_UPDATED).is_some_and(|value| value == "true");
        let resized = record.infeasible.is_none() && record.rejected.is_none();
        let mut changes: BTreeMap<&str, Option<String>> = BTreeMap::new();
        if resized && !is_marked {
            changes.insert(IN_PLACE_UPDATED, Some("true".to_owned()));
        }
        if annotation(ANNOTATION) != record.annotation().as_ref() {
            changes.insert(ANNOTATION, record.annotation());
        }
        self.index.lock().record(&pod.object, &pod.uid, record);
        if changes.is_empty() {
            return;
        }
        match actuator.resizer.annotate(pod, &changes).await {
            Ok(annotated) => self.observed(&Write::updated(&annotated.metadata)).await,
            // It counts in this process until the pod is gone.
            Err(refusal) => tracing::debug!(pod = %pod.object, %refusal, "cannot annotate a pod"),
        }
    }

    /// Waits until the store has observed a write, for a while: the next decision must not be from before it.
    pub(super) async fn observed(&self, write: &Write) {
        if tokio::time::timeout(OBSERVED_WITHIN, self.config.informers.pods.wait_for_write(write))
            .await
            .is_err()
        {
            tracing::warn!(?write, "a write is not observed");
        }
    }
}
