//! The reconcile of one workload with a rollout: decision and writes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use plumb_controller_runtime::{Clock, Reconciler, Requeue};
use plumb_resize::rules::Rules;

use super::condition::Progress;
use super::informers::Informers;
use super::kind::WorkloadKind;
use super::object::Workload;
use super::prepare::{Prepared, Ready};
use super::record::WorkloadRecord;
use super::report::{self, Reporter};
use super::state::{self, RolloutState};
use super::tracker::{Epoch, Key, TrackerState, Trackers};
use super::write;
use super::{STATUS_ANNOTATION, condition};
use crate::commands;
use crate::engine::{
    self, Action, Decision, Desired, Heading, ResizeOnly, RolloutStatus, Settings, State, decide, select,
};
use crate::metrics::RolloutMetrics;
use crate::quotas::Quotas;
use crate::request::RequestError;

/// After which time a condition that could not be set is set again.
const CONDITION_RETRY: Duration = Duration::from_secs(10);

/// Rolls out what changed in templates.
pub(super) struct Rollouts {
    pub(super) client: Client,
    pub(super) informers: Informers,
    pub(super) trackers: Arc<Trackers>,
    pub(super) reporter: Reporter,
    pub(super) metrics: RolloutMetrics,
    pub(super) clock: Clock,
    pub(super) rules: Rules,
    pub(super) enabled: bool,
    pub(super) quotas: Quotas,
}

impl Reconciler for Rollouts {
    type Key = Key;
    type Error = RequestError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, RequestError> {
        let workload = self.informers.workload(key);
        let Some((workload, record)) = workload.and_then(|workload| {
            let record = workload.record()?;
            Some((workload, record))
        }) else {
            self.trackers.forget(key);
            if key.kind == WorkloadKind::Deployment {
                self.unmark_orphan(&key.object).await?;
            }
            return Ok(Requeue::AwaitChange);
        };
        let settings = self.settings(&workload, &record);
        let surroundings = state::Surroundings {
            enabled: self.enabled,
            enforces_drift: settings.pod.enforce_drift,
            now: self.clock.now(),
        };
        match state::decide(&workload, &record, surroundings) {
            RolloutState::Terminating => {
                self.unmark_orphans_of(&workload).await?;
                Ok(Requeue::AwaitChange)
            }
            RolloutState::Abandoned(why) => self.leave(&workload, record, why).await,
            RolloutState::Overtaken(record) => {
                self.patch(&workload, "recording", write::recording(&record)).await?;
                Ok(Requeue::Now)
            }
            RolloutState::Ended => self.release(&workload, record).await,
            RolloutState::Replaced(record) => self.supersede(&workload, &record).await,
            RolloutState::Recreated(superseded) => {
                self.trackers.forget(key);
                self.restore_replica_sets(&workload, &record).await?;
                self.supersede(&workload, &superseded).await
            }
            RolloutState::Closed => {
                self.trackers.forget(key);
                self.restore_replica_sets(&workload, &record).await?;
                match commands::status(workload.metadata()) {
                    Some(status) => _ = self.set_condition(&workload, &status).await,
                    None => self.set_recreated(&workload).await,
                }
                Ok(Requeue::AwaitChange)
            }
            RolloutState::Active => self.roll_out(key, &workload, record, &settings).await,
        }
    }
}

impl Rollouts {
    /// The settings that bind a workload.
    fn settings(&self, workload: &Workload, record: &WorkloadRecord) -> Settings {
        let metadata = workload.metadata();
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let policies = self.informers.policies.in_namespace(namespace);
        let bound = select(&policies, &workload.selected()).bound;
        let mut settings = bound.map_or_else(Settings::default, |policy| Settings::from(&policy.spec));
        settings.pod.quotas_changed_at = self.quotas.changed_at(namespace);
        settings.pod.min_ready = workload.min_ready();
        // The partition of a StatefulSet binds, too.
        if let Some(hold) = &record.hold {
            let (own, total) = (workload.kind().own_partition(&hold.restored), workload.replicas());
            if own.rounded_up(total) > settings.partition.rounded_up(total) {
                settings.partition = own;
            }
        }
        settings
    }

    /// The resources of a template without those that a VPA owns, and those.
    fn left_to_autoscalers(&self, workload: &Workload, desired: Desired) -> (Desired, Vec<String>) {
        let owners = self.informers.vpas.owners(&workload.selected());
        let autoscaled = owners.named(&desired);
        (owners.without(desired), autoscaled)
    }

    /// Writes a record that is superseded, and removes the status of its rollout, which is obsolete.
    async fn supersede(&self, workload: &Workload, record: &WorkloadRecord) -> Result<Requeue, RequestError> {
        let patch = engine::merged(write::recording(record), Some(write::unreporting()));
        self.patch(workload, "recording", patch).await?;
        Ok(Requeue::Now)
    }

    async fn roll_out(
        &self,
        key: &Key,
        workload: &Workload,
        record: WorkloadRecord,
        settings: &Settings,
    ) -> Result<Requeue, RequestError> {
        if let Workload::Deployment(deployment) = workload
            && record.is_open()
        {
            let progress = Progress::before(deployment, record.rollout.started_at, self.clock.now());
            if let Progress::Patch(_) = self.set_progress(workload, progress).await {
                return Ok(Requeue::Now);
            }
        }
        let Ready { owner, label, observed, sets } = match self.prepare(key, workload, &record).await? {
            Prepared::Ready(ready) => ready,
            Prepared::Wait => return Ok(Requeue::AwaitChange),
            // Its controller is active, and the workload is not held.
            Prepared::Release(_) if !record.is_open() => return Ok(Requeue::AwaitChange),
            Prepared::Release(why) => return self.leave(workload, record, &why).await,
        };
        let Some(template) = workload.template() else { return Ok(Requeue::AwaitChange) };
        // Once a rollout has ended, the label is up to the workload's controller.
        let label = label.filter(|_| record.is_open());
        // An object that the API server has admitted can be read.
        let desired = Desired::of(template, &self.rules).unwrap_or_default();
        let (desired, autoscaled) = self.left_to_autoscalers(workload, desired);
        let hooks = ResizeOnly {
            revision: record.rollout.pod_revision(),
            base: record.rollout.base.clone(),
            desired,
            back: record.rollout.heading == Heading::Back,
            revision_label: label,
            rules: self.rules.clone(),
        };
        let epoch = Epoch { hooks, policy: settings.pod, owner: owner.clone() };
        let tracker = self.trackers.track(key, &owner);
        if let Some(sets) = sets {
            tracker.set_prepared(sets, &owner);
        }
        let mut state = tracker.state.lock().await;
        if !state.is_of(&epoch)
            && let Some(label) = &epoch.hooks.revision_label
            && let Some(pod) = self.pod_of_other_template(&owner, label, template)
        {
            drop(state);
            let why = format!("pod {pod} is of a revision that differs in more than resources");
            return self.leave(workload, record, &why).await;
        }
        let now = self.clock.now();
        state.refresh(&tracker, epoch, &self.informers.pods, |pod| workload.order(pod), now);
        let restored = record.hold.as_ref().map(|hold| &hold.restored);
        let (backing_off, missing_since) =
            (state.backing_off(now), state.missing_since(workload.replicas(), now));
        let mut decision = decide(&State {
            pods: &state.pods,
            settings,
            record: &record.rollout,
            backing_off: &backing_off,
            is_ordered: workload.is_ordered(),
            replicas: workload.replicas(),
            max_unavailable: workload.max_unavailable(restored),
            others: 0,
            others_unavailable: 0,
            missing_since,
            now,
        });
        decision.status.autoscaled = autoscaled;
        let wrote = self.write_pods(workload, &mut state, &decision.actions, now).await;
        state.add_refused(&mut decision.status);
        self.reporter.announce(workload, &record, &decision.status, &mut state, now);
        let mut deadline = None;
        // A resize that was refused and is sent again is no progress yet.
        if let Workload::Deployment(deployment) = workload
            && !wrote
            && record.is_open()
        {
            let progress = Progress::of(deployment, &decision.status, record.rollout.started_at, now);
            match self.set_progress(workload, progress).await {
                Progress::Current => {}
                Progress::Due(at) => deadline = Some(at),
                // The workload is another version now.
                Progress::Patch(_) => return Ok(Requeue::Now),
            }
        }
        if let Some(requeue) = self.advance(workload, &record, &decision, observed, &mut state).await? {
            return Ok(requeue);
        }
        if wrote {
            return Ok(Requeue::Now);
        }
        let due = state.next_due(&decision).into_iter().chain(deadline).min();
        // A template that the workload's controller has rolled out is not reported on, and an outcome not before the release.
        let awaits_release = record.is_open() && decision.status.phase.is_outcome();
        let is_reportable = !record.superseded && !awaits_release;
        let report_due = report::due(&state, &decision.status, now).filter(|_| is_reportable);
        if report_due == Some(Duration::ZERO) {
            self.report(workload, &decision.status).await?;
            self.set_condition(workload, &decision.status).await;
            // Only now: a write that another writer overtook is repeated.
            state.reported = Some((decision.status.clone(), now));
        }
        drop(state);
        let due = due.map(|due| Duration::try_from(due.duration_since(now)).unwrap_or(Duration::ZERO));
        let wait = due.into_iter().chain(report_due.filter(|wait| !wait.is_zero())).min();
        Ok(wait.map_or(Requeue::AwaitChange, |wait| Requeue::After(wait.max(Duration::from_millis(10)))))
    }

    /// Performs the action that is about the rollout as a whole, if there is one.
    async fn advance(
        &self,
        workload: &Workload,
        record: &WorkloadRecord,
        decision: &Decision,
        observed: bool,
        state: &mut TrackerState,
    ) -> Result<Option<Requeue>, RequestError> {
        let is_whole =
            |action: &&Action| !matches!(action, Action::Update(_) | Action::RollBack(..) | Action::Evict(_));
        let Some(action) = decision.actions.iter().find(is_whole) else { return Ok(None) };
        let (mut record, now) = (record.clone(), self.clock.now());
        match action {
            Action::Finish(_) if !observed => return Ok(None),
            Action::Finish(outcome) => {
                self.label_pods(workload, state, now).await?;
                // The outcome is written before the release: whichever write is the last one of this process, the
                // next process continues from it. The status is reported with the release.
                record.rollout.outcome = Some(*outcome);
                record.ended = Some(Box::new(decision.status.clone()));
                self.patch(workload, "recording", write::recording(&record)).await?;
                self.metrics.finished(*outcome, now.duration_since(record.rollout.started_at));
            }
            Action::RollBackAll(failure) => {
                let Some(template) = workload.template() else { return Ok(None) };
                record.rollout.heading = Heading::Back;
                (record.rollout.step, record.rollout.step_done_at) = (0, None);
                record.rollout.failure = Some(failure.clone());
                let (client, informers) = (&self.client, &self.informers);
                write::restore_template(client, informers, workload, "rolling back", template, &record)
                    .await?;
            }
            Action::RecreateAll(failure) => {
                let why = format!("{} is stuck: {}", failure.pod, failure.message);
                record.rollout.failure = Some(failure.clone());
                return self.leave(workload, record, &why).await.map(Some);
            }
            Action::Choose(canaries) => {
                record.rollout.canaries = canaries.clone();
                self.patch(workload, "recording", write::recording(&record)).await?;
            }
            Action::StepDone => {
                record.rollout.step_done_at = Some(now);
                self.patch(workload, "recording", write::recording(&record)).await?;
            }
            Action::NextStep => {
                record.rollout.step += 1;
                record.rollout.step_done_at = None;
                self.patch(workload, "recording", write::recording(&record)).await?;
            }
            Action::Update(_) | Action::RollBack(..) | Action::Evict(_) => return Ok(None),
        }
        Ok(Some(Requeue::Now))
    }

    async fn report(&self, workload: &Workload, status: &RolloutStatus) -> Result<(), RequestError> {
        let text = report::text(status);
        if workload.annotation(STATUS_ANNOTATION) == Some(&text) {
            return Ok(());
        }
        self.patch(workload, "reporting on", write::reporting(&text)).await
    }

    /// Sets the condition of a workload, and returns whether that changed the workload. If it fails, the next change of the
    /// workload sets it.
    pub(super) async fn set_condition(&self, workload: &Workload, status: &RolloutStatus) -> bool {
        let Some(patch) = condition::patch(workload, status, self.clock.now()) else { return false };
        self.patch_status(workload, patch).await
    }

    /// Has the condition of a workload say that its controller has recreated the pods, if it says that it does.
    async fn set_recreated(&self, workload: &Workload) {
        if let Some(patch) = condition::patch_recreated(workload, self.clock.now()) {
            self.patch_status(workload, patch).await;
        }
    }

    async fn patch_status(&self, workload: &Workload, patch: serde_json::Value) -> bool {
        let written = write::patch_status(&self.client, &self.informers, workload, patch).await;
        if let Err(error) = &written {
            tracing::debug!(%error, workload = ?workload.metadata().name, "cannot set the condition of a workload");
        }
        written.is_ok()
    }

    /// Sets the condition `Progressing` of a Deployment, if it is to be set. If that fails, it is due again.
    async fn set_progress(&self, workload: &Workload, progress: Progress) -> Progress {
        let Progress::Patch(patch) = &progress else { return progress };
        if self.patch_status(workload, patch.clone()).await {
            return progress;
        }
        Progress::Due(self.clock.now().checked_add(CONDITION_RETRY).unwrap_or(Timestamp::MAX))
    }

    pub(super) async fn patch(
        &self,
        workload: &Workload,
        operation: &'static str,
        patch: serde_json::Value,
    ) -> Result<(), RequestError> {
        write::patch_workload(&self.client, &self.informers, workload, operation, patch).await
    }
}
