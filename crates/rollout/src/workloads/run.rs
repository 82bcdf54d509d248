//! The controller: follows the workloads that have a rollout, and performs what is decided.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, EvictParams, Patch, Preconditions};
use kube::{Client, Resource};
use plumb_client::Api;
use plumb_controller::controller_of_kind;
use plumb_controller::events::{EventRecorder, RecorderConfig};
use plumb_controller::{
    Clock, Controller, Informer, InformerFactory, ObjectRef, Reconciler, Requeue, Watchable, WorkQueue,
};
use plumb_resize::rules::Rules;
use serde_json::json;
use tokio::sync::Notify;

use super::kind::WorkloadKind;
use super::object::Workload;
use super::record::WorkloadRecord;
use super::replica_sets::{self, Live};
use super::report::{self, Reporter};
use super::tracker::{Epoch, Key, TrackerState, Trackers};
use super::write::{self, WriteError};
use crate::api::RolloutPolicy;
use crate::engine::{
    self, Action, Desired, Heading, Hooks as _, Outcome, Plan, REVISION_LABEL, Refusal, ResizeOnly,
    RolloutStatus, Settings, State, can_update, decide, select,
};
use crate::metrics::RolloutMetrics;
use crate::run::Config;
use crate::vpas::{Owners, Vpas};

/// The name of the controller.
pub const NAME: &str = "rollout-controller";
/// How many pods are written at a time for one workload.
const WRITES_AT_A_TIME: usize = 32;
/// The waits after writes of a pod that failed for no reason of its own.
const FIRST_BACKOFF: SignedDuration = SignedDuration::from_millis(200);
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_BACKOFF: SignedDuration = SignedDuration::from_secs(30);
/// How many steps a ReplicaSet may need: each is one write, and there are at most a few.
const MOST_STEPS: usize = 16;

/// The informers of the controller.
#[derive(Clone)]
pub(super) struct Informers {
    pub(super) deployments: Informer<Deployment>,
    pub(super) replica_sets: Informer<ReplicaSet>,
    pub(super) stateful_sets: Informer<StatefulSet>,
    pub(super) daemon_sets: Informer<DaemonSet>,
    pub(super) revisions: Informer<ControllerRevision>,
    pub(super) pods: Informer<Pod>,
    pub(super) policies: Informer<RolloutPolicy>,
    vpas: Vpas,
}

impl Informers {
    fn new(factory: &InformerFactory) -> Self {
        Self {
            deployments: factory.informer(),
            replica_sets: factory.informer(),
            stateful_sets: factory.informer(),
            daemon_sets: factory.informer(),
            revisions: factory.informer(),
            pods: factory.informer(),
            policies: factory.informer(),
            vpas: Vpas::default(),
        }
    }

    /// How many workloads are held.
    fn held(&self) -> usize {
        fn of<K: Resource>(objects: Vec<Arc<K>>) -> usize {
            let held = |object: &&Arc<K>| {
                let metadata = object.meta();
                metadata.deletion_timestamp.is_none()
                    && WorkloadRecord::read(metadata).is_some_and(|record| record.hold.is_some())
            };
            objects.iter().filter(held).count()
        }
        of(self.deployments.all()) + of(self.stateful_sets.all()) + of(self.daemon_sets.all())
    }

    fn workload(&self, key: &Key) -> Option<Workload> {
        match key.kind {
            WorkloadKind::Deployment => self.deployments.get(&key.object).map(Workload::Deployment),
            WorkloadKind::StatefulSet => self.stateful_sets.get(&key.object).map(Workload::StatefulSet),
            WorkloadKind::DaemonSet => self.daemon_sets.get(&key.object).map(Workload::DaemonSet),
        }
    }
}

/// Runs the controller on informers of a factory, which is started afterwards, until the future is dropped.
///
/// Boxed, so that it is compiled with this crate and not with each one that awaits it.
pub fn run(config: &Config, factory: &InformerFactory) -> BoxFuture<'static, ()> {
    let informers = Informers::new(factory);
    let watching = informers.vpas.run(&config.watch, &config.supervisor);
    let running = controller(config, &informers).run();
    Box::pin(async move { _ = tokio::join!(watching, running) })
}

/// Releases every workload that is held, and returns how many there were, see [`release_all`](crate::release_all).
pub(crate) fn release_all(config: Config) -> BoxFuture<'static, usize> {
    let factory = InformerFactory::with_metrics(&config.metrics);
    let informers = Informers::new(&factory);
    let controller = controller(&Config { enabled: false, ..config.clone() }, &informers);
    let watching = informers.vpas.run(&config.watch, &config.supervisor);
    let changed = Arc::new(Notify::new());
    notify(&informers.deployments, &changed);
    notify(&informers.stateful_sets, &changed);
    notify(&informers.daemon_sets, &changed);
    Box::pin(async move {
        let _informing = factory.start(&config.watch, &config.supervisor);
        factory.wait_for_sync().await;
        // Counted before the controller runs: it starts to release at once.
        let held = informers.held();
        let released = async {
            while informers.held() > 0 {
                changed.notified().await;
            }
            held
        };
        tokio::select! {
            // They run for good.
            () = controller.run() => 0,
            () = watching => 0,
            held = released => held,
        }
    })
}

/// Notifies when a workload changes that has, or had, a record.
fn notify<K: Watchable>(informer: &Informer<K>, changed: &Arc<Notify>) {
    let changed = changed.clone();
    informer.add_handler(move |change| {
        if [change.before, change.after].into_iter().flatten().any(|object| is_recorded(object.meta())) {
            changed.notify_one();
        }
    });
}

/// The controller, which fills its queue from informers.
fn controller(config: &Config, informers: &Informers) -> Controller<Rollouts> {
    let mut recorder = RecorderConfig::new(config.write.clone(), NAME, &config.supervisor);
    recorder.metrics = config.metrics.clone();
    let trackers: Arc<Trackers> = Arc::default();
    let rollouts = Rollouts {
        client: config.write.clone(),
        informers: informers.clone(),
        trackers: trackers.clone(),
        reporter: Reporter::new(EventRecorder::start(recorder), config.rollout_metrics.clone()),
        metrics: config.rollout_metrics.clone(),
        clock: config.clock.clone(),
        rules: config.rules.clone(),
        enabled: config.enabled,
    };
    let policies = informers.clone();
    let controller = Controller::new(NAME, rollouts, &config.supervisor)
        .with_clock(config.clock.clone())
        .with_workers(4)
        .with_metrics(&config.metrics)
        .watches(&informers.deployments, enqueue(WorkloadKind::Deployment))
        .watches(&informers.stateful_sets, enqueue(WorkloadKind::StatefulSet))
        .watches(&informers.daemon_sets, enqueue(WorkloadKind::DaemonSet))
        .watches(&informers.replica_sets, |change, queue| {
            let deployment = change.latest().and_then(|set| controller_of_kind::<Deployment>(&**set));
            queue_key(queue, WorkloadKind::Deployment, deployment);
        })
        .watches(&informers.revisions, |change, queue| {
            let set = change.latest().and_then(|revision| controller_of_kind::<DaemonSet>(&**revision));
            queue_key(queue, WorkloadKind::DaemonSet, set);
        })
        .watches(&informers.pods, move |change, queue| {
            for pod in [change.before, change.after].into_iter().flatten() {
                if let Some(key) = trackers.pod_changed(pod) {
                    queue.add(key);
                }
            }
        })
        .awaits(Arc::new(informers.vpas.clone()))
        .watches(&informers.policies, move |change, queue| {
            let Some(namespace) = change.latest().and_then(|policy| policy.metadata.namespace.clone()) else {
                return;
            };
            for key in with_records(&policies, &namespace) {
                queue.add(key);
            }
        });
    let queue = controller.queue().clone();
    informers.vpas.objects().add_handler(move |change| {
        for vpa in [change.before, change.after].into_iter().flatten() {
            let target = &vpa.spec.target_ref;
            let kind = WorkloadKind::ALL.into_iter().find(|kind| kind.name() == target.kind);
            if let Some(kind) = kind {
                let namespace = vpa.metadata.namespace.clone().unwrap_or_default();
                let object = ObjectRef::namespaced(namespace, target.name.clone());
                queue_key(&queue, kind, Some(object));
            }
        }
    });
    controller
}

/// Whether a workload has a record.
fn is_recorded(metadata: &ObjectMeta) -> bool {
    metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(super::RECORD_ANNOTATION))
}

/// Enqueues the workloads of a kind that have a record.
fn enqueue<K>(
    kind: WorkloadKind,
) -> impl Fn(&plumb_controller::Change<'_, K>, &WorkQueue<Key>) + Send + Sync + 'static
where
    K: Resource,
{
    move |change, queue| {
        let recorded = |object: &Arc<K>| is_recorded(object.meta());
        let before = change.before.is_some_and(recorded);
        if let Some(object) = change.latest().filter(|object| before || recorded(object)) {
            queue_key(queue, kind, Some(ObjectRef::of(&**object)));
        }
    }
}

fn queue_key(queue: &WorkQueue<Key>, kind: WorkloadKind, object: Option<ObjectRef>) {
    if let Some(object) = object {
        queue.add(Key { kind, object });
    }
}

/// The workloads of a namespace that have a record.
fn with_records(informers: &Informers, namespace: &str) -> Vec<Key> {
    fn of<K: Resource>(kind: WorkloadKind, objects: Vec<Arc<K>>) -> impl Iterator<Item = Key> {
        let recorded = |object: &Arc<K>| is_recorded(object.meta());
        objects.into_iter().filter(recorded).map(move |object| Key { kind, object: ObjectRef::of(&*object) })
    }
    of(WorkloadKind::Deployment, informers.deployments.in_namespace(namespace))
        .chain(of(WorkloadKind::StatefulSet, informers.stateful_sets.in_namespace(namespace)))
        .chain(of(WorkloadKind::DaemonSet, informers.daemon_sets.in_namespace(namespace)))
        .collect()
}

/// Rolls out what changed in templates.
struct Rollouts {
    client: Client,
    informers: Informers,
    trackers: Arc<Trackers>,
    reporter: Reporter,
    metrics: RolloutMetrics,
    clock: Clock,
    rules: Rules,
    enabled: bool,
}

/// What a workload is ready for.
enum Prepared {
    /// Its pods, which the object with this uid controls, can be resized; they get this label, and whether what creates
    /// pods has observed the new template.
    Ready { owner: String, label: Option<String>, observed: bool },
    /// Its controller has not observed the edit yet.
    Wait,
    /// Its controller has to do it.
    Release(String),
}

impl Reconciler for Rollouts {
    type Key = Key;
    type Error = WriteError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, WriteError> {
        let workload = self.informers.workload(key);
        let Some((workload, record)) = workload.and_then(|workload| {
            let record = workload.record()?;
            Some((workload, record))
        }) else {
            self.trackers.forget(key);
            return Ok(Requeue::AwaitChange);
        };
        if workload.metadata().deletion_timestamp.is_some() {
            return Ok(Requeue::AwaitChange);
        }
        let held = record.hold.is_some();
        if held && !self.enabled {
            return self.leave(&workload, record, "the feature gate is off").await;
        }
        if held && workload.opts() == Some(false) {
            return self.leave(&workload, record, "the workload opted out").await;
        }
        let generation = workload.metadata().generation.unwrap_or(0);
        let overtaken =
            workload.template().and_then(|template| record.overtaken(template, generation, self.clock.now()));
        if let Some(record) = overtaken {
            self.patch(&workload, "recording", write::recording(&record), false).await?;
            return Ok(Requeue::Now);
        }
        let settings = self.settings(&workload, &record);
        let enforces = settings.pod.enforce_drift && record.rollout.outcome == Some(Outcome::Complete);
        if !record.is_open() && held {
            self.release(&workload, record).await?;
            return Ok(Requeue::Now);
        }
        if !record.is_open() && !enforces {
            self.trackers.forget(key);
            self.restore_replica_sets(&workload, &record).await?;
            return Ok(Requeue::AwaitChange);
        }
        self.roll_out(key, &workload, record, &settings).await
    }
}

impl Rollouts {
    /// The settings that bind a workload.
    fn settings(&self, workload: &Workload, record: &WorkloadRecord) -> Settings {
        let metadata = workload.metadata();
        let policies =
            self.informers.policies.in_namespace(metadata.namespace.as_deref().unwrap_or_default());
        let bound = select(&policies, &workload.selected()).bound;
        let mut settings = bound.map_or_else(Settings::default, |policy| Settings::from(&policy.spec));
        // The partition of a StatefulSet binds, too.
        if let Some(hold) = &record.hold {
            let own = u32::try_from(workload.kind().own_partition(&hold.restored)).unwrap_or(u32::MAX);
            let total = workload.replicas();
            if crate::api::Share::Count(own).rounded_up(total) > settings.partition.rounded_up(total) {
                settings.partition = crate::api::Share::Count(own);
            }
        }
        settings
    }

    /// What a template says without the resources that a VPA owns, and which those are.
    fn left_to_autoscalers(&self, workload: &Workload, desired: Desired) -> (Desired, Vec<String>) {
        let metadata = workload.metadata();
        let vpas = self.informers.vpas.objects();
        let vpas = vpas.in_namespace(metadata.namespace.as_deref().unwrap_or_default());
        let owners = Owners::of(&vpas, &workload.selected());
        let autoscaled = desired
            .named()
            .filter_map(|(container, field, resource)| {
                let owner = owners.owner(container, field, resource)?;
                Some(format!("{container}: {field}.{resource} (VerticalPodAutoscaler {owner})"))
            })
            .collect();
        let left = |container: &str, field, resource| owners.owner(container, field, resource).is_some();
        (desired.without(left), autoscaled)
    }

    async fn roll_out(
        &self,
        key: &Key,
        workload: &Workload,
        record: WorkloadRecord,
        settings: &Settings,
    ) -> Result<Requeue, WriteError> {
        let (owner, label, observed) = match self.prepare(key, workload, &record).await? {
            Prepared::Ready { owner, label, observed } => (owner, label, observed),
            Prepared::Wait => return Ok(Requeue::AwaitChange),
            // Its controller is at work, and nothing is held.
            Prepared::Release(_) if !record.is_open() => return Ok(Requeue::AwaitChange),
            Prepared::Release(why) => return self.leave(workload, record, &why).await,
        };
        let Some(template) = workload.template() else { return Ok(Requeue::AwaitChange) };
        // Once a rollout has ended, the label is up to the workload's controller.
        let label = label.filter(|_| record.is_open());
        // What the API server has admitted can be read.
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
        let epoch =
            Epoch { hooks, policy: settings.pod, min_ready: workload.min_ready(), owner: owner.clone() };
        let tracker = self.trackers.track(key, &owner);
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
        let mut decision = decide(&State {
            pods: &state.pods,
            settings,
            record: &record.rollout,
            replicas: workload.replicas(),
            max_unavailable: workload.max_unavailable(restored),
            now,
        });
        decision.status.autoscaled = autoscaled;
        let wrote = self.write_pods(workload, &mut state, &decision.actions, now).await;
        self.reporter.announce(workload, &record, &decision.status, &mut state, now);
        for action in decision.actions.iter().cloned() {
            let mut record = record.clone();
            match action {
                Action::Finish(_) if !observed => {}
                Action::Finish(outcome) => {
                    if !self.label_pods(workload, &mut state, now).await {
                        return Ok(Requeue::After(FIRST_RETRY));
                    }
                    // The outcome comes before the release: whatever write is the last one of this process, the next
                    // goes on from it.
                    record.rollout.outcome = Some(outcome);
                    let status = write::reporting(&report::text(&decision.status));
                    let patch = engine::merged(write::recording(&record), Some(status));
                    self.patch(workload, "recording", patch, false).await?;
                    self.metrics.finished(outcome, now.duration_since(record.rollout.started_at));
                    return Ok(Requeue::Now);
                }
                Action::RollBackAll(failure) => {
                    record.rollout.heading = Heading::Back;
                    (record.rollout.step, record.rollout.step_done_at) = (0, None);
                    record.rollout.failure = Some(failure);
                    let spec = record.previous_template.patch(template);
                    let mut patch = write::recording(&record);
                    patch["spec"] = json!({ "template": { "spec": spec } });
                    self.patch(workload, "rolling back", patch, true).await?;
                    return Ok(Requeue::Now);
                }
                Action::RecreateAll(failure) => {
                    let why = format!("{} is stuck: {}", failure.pod, failure.message);
                    record.rollout.failure = Some(failure);
                    drop(state);
                    return self.leave(workload, record, &why).await;
                }
                Action::StepDone => {
                    record.rollout.step_done_at = Some(now);
                    self.patch(workload, "recording", write::recording(&record), false).await?;
                    return Ok(Requeue::Now);
                }
                Action::NextStep => {
                    record.rollout.step += 1;
                    record.rollout.step_done_at = None;
                    self.patch(workload, "recording", write::recording(&record), false).await?;
                    return Ok(Requeue::Now);
                }
                Action::Update(_) | Action::RollBack(..) | Action::Evict(_) => {}
            }
        }
        if wrote {
            return Ok(Requeue::Now);
        }
        let due = state.next_due(&decision);
        let report_due = report::due(&state, &decision.status, now);
        if report_due == Some(Duration::ZERO) {
            self.report(workload, &decision.status).await?;
            // Only now: a write that another writer overtook is repeated.
            state.reported = Some((decision.status.clone(), now));
        }
        drop(state);
        let due = due.map(|due| Duration::try_from(due.duration_since(now)).unwrap_or(Duration::ZERO));
        let wait = due.into_iter().chain(report_due.filter(|wait| !wait.is_zero())).min();
        Ok(wait.map_or(Requeue::AwaitChange, |wait| Requeue::After(wait.max(Duration::from_millis(10)))))
    }

    /// Performs the actions that are about one pod each. Whether anything was written.
    async fn write_pods(
        &self,
        workload: &Workload,
        state: &mut TrackerState,
        actions: &[Action],
        now: Timestamp,
    ) -> bool {
        let Some(hooks) = state.hooks().cloned() else { return false };
        let namespace = workload.metadata().namespace.clone().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        state.backoff.retain(|_, (_, until)| *until > now - LAST_BACKOFF);
        let mut writes: Vec<PodAction> = Vec::new();
        for action in actions {
            let (Action::Update(name) | Action::RollBack(name, _) | Action::Evict(name)) = action else {
                continue;
            };
            if state.backoff.get(name).is_some_and(|(_, until)| *until > now) {
                continue;
            }
            let Some(pod) = state.pod(&namespace, name, &self.informers.pods) else { continue };
            let plan = match action {
                Action::Update(_) => {
                    let Some(view) = state.pods.get(name) else { continue };
                    engine::plan(&pod, &view.judgement.next, &hooks, now)
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
                    let failures = state.backoff.get(&name).map_or(0, |(failures, _)| *failures) + 1;
                    let doubled = 1_i32 << failures.min(10);
                    let wait = FIRST_BACKOFF.checked_mul(doubled).unwrap_or(LAST_BACKOFF).min(LAST_BACKOFF);
                    state.backoff.insert(name, (failures, now.checked_add(wait).unwrap_or(Timestamp::MAX)));
                }
            }
        }
        wrote && succeeded
    }

    /// Labels the pods that do not follow, because they were resized back or could not be, with the revision of their
    /// workload: its own controller would recreate them. Whether all have the label.
    async fn label_pods(&self, workload: &Workload, state: &mut TrackerState, now: Timestamp) -> bool {
        let hooks = state.hooks().cloned().filter(|hooks| hooks.revision_label.is_some());
        let Some(hooks) = hooks else { return true };
        let namespace = workload.metadata().namespace.clone().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let names: Vec<String> = state.pods.iter().map(|(name, _)| name.to_owned()).collect();
        let mut pods = Vec::new();
        for name in names {
            let pod = state.pod(&namespace, &name, &self.informers.pods);
            pods.extend(pod.filter(|pod| !hooks.follows(pod)));
        }
        let results: Vec<kube::Result<Pod>> = stream::iter(pods)
            .map(|pod| {
                let (api, patch) = (api.clone(), hooks.on_done(&pod).unwrap_or_default());
                let patch = engine::merged(patch, Some(json!({ "metadata": { "uid": pod.metadata.uid } })));
                let name = pod.metadata.name.clone().unwrap_or_default();
                async move { api.patch(&name, &write::params(), &Patch::Strategic(patch)).await }
            })
            .buffer_unordered(WRITES_AT_A_TIME)
            .collect()
            .await;
        let mut labelled = true;
        for result in results {
            match result {
                Ok(pod) => state.wrote(pod, &|pod: &Pod| workload.order(pod), now),
                // One that is gone needs no label.
                Err(error) if Refusal::of(&error) == Refusal::Gone => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot label a pod, will retry");
                    labelled = false;
                }
            }
        }
        labelled
    }

    async fn prepare(
        &self,
        key: &Key,
        workload: &Workload,
        record: &WorkloadRecord,
    ) -> Result<Prepared, WriteError> {
        match workload {
            Workload::Deployment(deployment) => self.prepare_deployment(key, deployment, record).await,
            Workload::StatefulSet(set) => {
                let update = set.status.as_ref().and_then(|status| status.update_revision.clone());
                let owner = set.metadata.uid.clone().unwrap_or_default();
                Ok(match update.filter(|_| workload.is_observed()) {
                    Some(update) => Prepared::Ready { owner, label: Some(update), observed: true },
                    None => Prepared::Wait,
                })
            }
            Workload::DaemonSet(set) => {
                let owner = set.metadata.uid.clone().unwrap_or_default();
                Ok(match self.hash_of(set).filter(|_| workload.is_observed()) {
                    Some(hash) => Prepared::Ready { owner, label: Some(hash), observed: true },
                    None => Prepared::Wait,
                })
            }
        }
    }

    /// A pod of a `StatefulSet` or `DaemonSet` whose revision differs from the template in more than resources: its
    /// controller was in the middle of a rollout of its own, which a label must not hide from it.
    fn pod_of_other_template(&self, owner: &str, label: &str, template: &PodTemplateSpec) -> Option<String> {
        let mut equal: BTreeSet<String> = BTreeSet::from([label.to_owned()]);
        for revision in self.informers.revisions.controlled_by(owner) {
            let data = revision.data.as_ref().map(|data| data.0["spec"]["template"].clone());
            let before = data.and_then(|data| plumb_client::decode_template(data).ok());
            let change = before.map(|before| can_update(&before, template, &self.rules));
            if change.is_some_and(|change| change.is_none() || change.is_vertical()) {
                // Pods of a StatefulSet have its name, those of a DaemonSet its hash.
                equal.extend(revision.metadata.name.clone());
                let labels = revision.metadata.labels.as_ref();
                equal.extend(labels.and_then(|labels| labels.get(REVISION_LABEL).cloned()));
            }
        }
        let pods = self.informers.pods.controlled_by(owner);
        let other = pods.iter().find(|pod| {
            let labels = pod.metadata.labels.as_ref();
            let label = labels.and_then(|labels| labels.get(REVISION_LABEL));
            pod.metadata.deletion_timestamp.is_none() && label.is_some_and(|label| !equal.contains(label))
        });
        other.and_then(|pod| pod.metadata.name.clone())
    }

    /// The hash that the pods of a DaemonSet's latest revision are labelled with, once its controller has recorded it.
    fn hash_of(&self, set: &DaemonSet) -> Option<String> {
        let wanted = &set.spec.as_ref()?.template;
        let revisions = self.informers.revisions.controlled_by(set.metadata.uid.as_deref()?);
        let latest = revisions.iter().max_by_key(|revision| revision.revision)?;
        let data = latest.data.as_ref().map(|data| &data.0)?;
        let template = plumb_client::decode_template(data["spec"]["template"].clone()).ok()?;
        if !can_update(&template, wanted, &self.rules).is_none() {
            return None;
        }
        latest.metadata.labels.as_ref()?.get(REVISION_LABEL).cloned()
    }

    async fn prepare_deployment(
        &self,
        key: &Key,
        deployment: &Deployment,
        record: &WorkloadRecord,
    ) -> Result<Prepared, WriteError> {
        let (uid, namespace) = (deployment.metadata.uid.clone().unwrap_or_default(), &key.object.namespace);
        let mut history_done = false;
        for _ in 0..MOST_STEPS {
            let sets = self.informers.replica_sets.controlled_by(&uid);
            let live = match Live::find(deployment, &sets, &self.rules) {
                Live::Found(live) => live,
                Live::None => return Ok(Prepared::Wait),
                Live::Several => {
                    return Ok(Prepared::Release("pods of several ReplicaSets run".to_owned()));
                }
                Live::Different(reasons) => {
                    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                    return Ok(Prepared::Release(reasons.join("; ")));
                }
            };
            let held = record.hold.is_some();
            let step = replica_sets::next_step(deployment, &live, &sets, held, history_done, &self.rules);
            // Once a rollout has ended, pods are compared, and nothing else.
            if step.is_some() && !record.is_open() {
                return Ok(Prepared::Wait);
            }
            let Some(step) = step else {
                let observed = live.status.as_ref().and_then(|status| status.observed_generation);
                return Ok(Prepared::Ready {
                    owner: live.metadata.uid.clone().unwrap_or_default(),
                    label: None,
                    observed: observed >= live.metadata.generation,
                });
            };
            history_done |= matches!(step, replica_sets::Step::CreateHistory(_));
            write::perform_step(&self.client, &self.informers.replica_sets, namespace, &step).await?;
        }
        Ok(Prepared::Wait)
    }

    /// Gives a workload back to its controller once nothing is left to do.
    async fn release(&self, workload: &Workload, mut record: WorkloadRecord) -> Result<(), WriteError> {
        if let Workload::Deployment(deployment) = workload {
            self.step_through(deployment, |sets| match Live::find(deployment, sets, &self.rules) {
                Live::Found(live) => {
                    replica_sets::next_step(deployment, &live, sets, false, true, &self.rules)
                }
                _ => None,
            })
            .await?;
        }
        let hold = record.hold.take();
        let mut patch = write::recording(&record);
        if let Some(hold) = hold {
            patch["spec"] = workload.kind().restoring(&hold.restored);
        }
        self.patch(workload, "releasing", patch, false).await
    }

    /// Leaves the pods of a workload to its controller, which recreates them.
    async fn leave(
        &self,
        workload: &Workload,
        mut record: WorkloadRecord,
        why: &str,
    ) -> Result<Requeue, WriteError> {
        record.rollout.heading = Heading::Recreate;
        record.rollout.outcome = Some(Outcome::Recreated);
        self.restore_replica_sets(workload, &record).await?;
        let now = self.clock.now();
        let hold = record.hold.take();
        let reported = workload.annotation(super::STATUS_ANNOTATION);
        let status = RolloutStatus::recreating(reported, &record.rollout.revision, why);
        let mut patch =
            engine::merged(write::recording(&record), Some(write::reporting(&report::text(&status))));
        if let Some(hold) = hold {
            patch["spec"] = workload.kind().restoring(&hold.restored);
        }
        self.patch(workload, "releasing", patch, false).await?;
        self.metrics.finished(Outcome::Recreated, now.duration_since(record.rollout.started_at));
        self.reporter.released(workload, why, now);
        Ok(Requeue::Now)
    }

    /// Makes the `ReplicaSets` of a Deployment that is left to its controller what they were before the hold.
    async fn restore_replica_sets(
        &self,
        workload: &Workload,
        record: &WorkloadRecord,
    ) -> Result<(), WriteError> {
        let (Workload::Deployment(deployment), Some(Outcome::Recreated)) = (workload, record.rollout.outcome)
        else {
            return Ok(());
        };
        let previous = &record.previous_template;
        self.step_through(deployment, |sets| replica_sets::release_step(sets, previous, &self.rules)).await
    }

    /// Performs one step after the other, each decided upon what the one before has made of the `ReplicaSets`.
    async fn step_through(
        &self,
        deployment: &Deployment,
        next: impl Fn(&[Arc<ReplicaSet>]) -> Option<replica_sets::Step> + Send,
    ) -> Result<(), WriteError> {
        let uid = deployment.metadata.uid.clone().unwrap_or_default();
        let namespace = deployment.metadata.namespace.clone().unwrap_or_default();
        for _ in 0..MOST_STEPS {
            let step = next(&self.informers.replica_sets.controlled_by(&uid));
            let Some(step) = step else { break };
            write::perform_step(&self.client, &self.informers.replica_sets, &namespace, &step).await?;
        }
        Ok(())
    }

    async fn report(&self, workload: &Workload, status: &RolloutStatus) -> Result<(), WriteError> {
        let text = report::text(status);
        if workload.annotation(super::STATUS_ANNOTATION) == Some(&text) {
            return Ok(());
        }
        self.patch(workload, "reporting on", write::reporting(&text), false).await
    }

    async fn patch(
        &self,
        workload: &Workload,
        operation: &'static str,
        patch: serde_json::Value,
        strategic: bool,
    ) -> Result<(), WriteError> {
        write::patch_workload(&self.client, &self.informers, workload, operation, patch, strategic).await
    }
}

enum PodAction {
    Write(Arc<Pod>, Box<Plan>),
    Evict(Arc<Pod>),
}

/// What came of an action about one pod.
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
            // A refusal that is recorded on the pod is part of its state, and retried as that says.
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
