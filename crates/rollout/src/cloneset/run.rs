//! The controller: informers, work queue, and the reconciler that decides and performs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim, Pod, ResourceQuota};
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::adoption::{self, Claim, adoption_patch, release_patch};
use plumb_controller_runtime::api_error::{is_conflict, is_settled};
use plumb_controller_runtime::events::{EventRecorder, EventType, NewEvent, RecorderConfig};
use plumb_controller_runtime::{
    Backoff, Change, Controller, Informer, InformerFactory, ObjectRef, Reconciler, Requeue, Store, Watchable,
    WorkQueue, Write, controller_of, controller_of_kind, controller_reference, revision,
};

use super::action::{Action, Note};
use super::decide::{Context, Failures, State, decide};
use super::dry_run::{DryRuns, Verdict};
use super::openkruise::{OpenKruise, Sign};
use super::over_quota::measured;
use super::perform::{PerformError, Performed, Performer};
use crate::api::RolloutPolicy;
use crate::api::cloneset::{CloneSet, GROUP, validate};
use crate::engine::{self, Selected};
use crate::quotas::Quotas;
use crate::request::RequestError;
use crate::run::Config;
use crate::vpas::Vpas;

/// The name of the controller, in events and metrics.
pub const NAME: &str = "cloneset-controller";
/// How many sets are reconciled at a time.
const WORKERS: usize = 16;
/// How long adopted objects are awaited.
const OBSERVED_WITHIN: Duration = Duration::from_secs(30);

/// The informers that the controller reads.
pub(super) struct Informers {
    pub(super) sets: Informer<CloneSet>,
    pub(super) pods: Informer<Pod>,
    pub(super) revisions: Informer<ControllerRevision>,
    pub(super) claims: Informer<PersistentVolumeClaim>,
    pub(super) policies: Informer<RolloutPolicy>,
    pub(super) quotas: Informer<ResourceQuota>,
}

/// Runs the controller on informers of a factory, which is started afterwards, until the future is dropped.
pub(crate) fn run(config: &Config, factory: &InformerFactory, vpas: &Vpas) -> BoxFuture<'static, ()> {
    let informers = Arc::new(Informers {
        sets: factory.informer(),
        pods: factory.informer(),
        revisions: factory.informer(),
        claims: factory.informer(),
        policies: factory.informer(),
        quotas: factory.informer(),
    });
    let openkruise = OpenKruise::default();
    let dry_runs = DryRuns::default();
    let queue = Arc::new(WorkQueue::new(config.clock.clone()));
    let recorder = EventRecorder::start(RecorderConfig {
        metrics: config.metrics.clone(),
        ..RecorderConfig::new(config.write.clone(), NAME, &config.supervisor)
    });
    let reconciler = CloneSets {
        informers: informers.clone(),
        openkruise: openkruise.clone(),
        queue: queue.clone(),
        recorder: recorder.clone(),
        failures: Mutex::default(),
        dry_runs: dry_runs.clone(),
        stopped_by: Mutex::default(),
        vpas: vpas.clone(),
        quotas: Quotas::default(),
        config: config.clone(),
    };
    let (quotas, clock) = (reconciler.quotas.clone(), config.clock.clone());
    let by_vpas = queue.clone();
    vpas.add_handler(move |target| {
        if target.kind == CloneSet::kind(&()) {
            by_vpas.add(target.object);
        }
    });
    let (by_orphans, by_policies, by_quotas) = (informers.clone(), informers.clone(), informers.clone());
    let (by_definition, by_webhooks) = (informers.clone(), informers.clone());
    let panics = recorder;
    let controller = Controller::new(NAME, reconciler, &config.supervisor)
        .with_metrics(&config.metrics)
        .with_panic_events(move || panics.clone())
        .with_queue(queue)
        .with_workers(WORKERS)
        .awaits(Arc::new(vpas.clone()))
        .reconciles(&informers.sets)
        .watches(&informers.pods, move |change, queue| pod_changed(&by_orphans.sets, change, queue))
        .owns::<CloneSet, _>(&informers.revisions)
        .owns::<CloneSet, _>(&informers.claims)
        .watches(&informers.policies, move |change, queue| {
            let namespace = change.latest().and_then(|policy| policy.metadata.namespace.clone());
            let sets = by_policies.sets.in_namespace(&namespace.unwrap_or_default());
            for set in sets {
                queue.add(ObjectRef::of(&*set));
            }
        })
        .watches(&informers.quotas, move |change, queue| {
            let has_other_limits = quotas.note(change, clock.now()).is_some();
            let namespace = change.latest().and_then(|quota| quota.metadata.namespace.as_deref());
            for set in by_quotas.sets.in_namespace(namespace.unwrap_or_default()) {
                let key = ObjectRef::of(&*set);
                // Less may be used, so that pods can be recreated.
                if has_other_limits || dry_runs.is_over_quota(&key) {
                    queue.add(key);
                }
            }
        })
        .watches(openkruise.definitions(), move |_, queue| all(&by_definition.sets, queue))
        .watches(openkruise.webhooks(), move |_, queue| all(&by_webhooks.sets, queue));
    let watching = openkruise.run(&config.watch, &config.supervisor);
    let running = controller.run();
    async move { _ = tokio::join!(watching, running) }.boxed()
}

fn all(sets: &Store<CloneSet>, queue: &WorkQueue) {
    for set in sets.all() {
        queue.add(ObjectRef::of(&*set));
    }
}

/// A change of a pod enqueues the set that controls it, and the one that did before; a change of a pod without a
/// controller the sets that select it.
fn pod_changed(sets: &Store<CloneSet>, change: &Change<'_, Pod>, queue: &WorkQueue) {
    let before = change.before.and_then(|pod| controller_of_kind::<CloneSet>(&**pod));
    let after = change.after.and_then(|pod| controller_of_kind::<CloneSet>(&**pod));
    if let Some(before) = before.filter(|before| Some(before) != after.as_ref()) {
        queue.add(before);
    }
    if let Some(after) = after {
        queue.add(after);
    } else if let Some(orphan) = change.after.filter(|pod| controller_of(&pod.metadata).is_none()) {
        for set in sets.in_namespace(orphan.metadata.namespace.as_deref().unwrap_or_default()) {
            let selector = adoption::selector(Some(&set.spec.selector));
            if selector.is_some_and(|selector| adoption::matches(&selector, &**orphan)) {
                queue.add(ObjectRef::of(&*set));
            }
        }
    }
}

/// A set as policies and autoscalers select it.
fn selected(set: &CloneSet) -> Selected<'_> {
    Selected { group: GROUP, kind: "CloneSet", metadata: &set.metadata }
}

/// Why a set could not be reconciled.
#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error(transparent)]
    Perform(#[from] PerformError),
    #[error("{0}")]
    Scale(String),
    #[error("another writer was faster")]
    Conflict,
    #[error("cannot adopt or release a pod")]
    Claim(#[source] kube::Error),
    #[error(transparent)]
    DryRun(#[from] RequestError),
}

struct CloneSets {
    config: Config,
    vpas: Vpas,
    quotas: Quotas,
    informers: Arc<Informers>,
    openkruise: OpenKruise,
    queue: Arc<WorkQueue>,
    recorder: EventRecorder,
    /// The writes that failed, by set.
    failures: Mutex<HashMap<ObjectRef, Failures>>,
    /// Whether the API server would admit pods of the templates.
    dry_runs: DryRuns,
    /// Why the controller is inactive, as it was logged last.
    stopped_by: Mutex<Option<Sign>>,
}

impl CloneSets {
    /// Whether OpenKruise runs. It is logged when that changes.
    fn is_stopped(&self) -> bool {
        let sign = self.openkruise.sign();
        let mut before = self.stopped_by.lock();
        if *before != sign {
            if let Some(sign) = sign {
                tracing::info!(%sign, "OpenKruise runs: its controller takes care of CloneSets");
            } else {
                tracing::info!("OpenKruise does not run any more: taking care of CloneSets");
            }
            *before = sign;
        }
        sign.is_some()
    }

    fn failures(&self, key: &ObjectRef) -> Failures {
        let failures = self.failures.lock();
        failures.get(key).cloned().unwrap_or_default()
    }

    fn set_failures(&self, key: &ObjectRef, new: Failures) {
        let mut failures = self.failures.lock();
        if new == Failures::default() {
            failures.remove(key);
        } else {
            failures.insert(key.clone(), new);
        }
    }

    /// The settings of resizes: those of the policy that binds the set, or the defaults.
    fn policy(&self, set: &CloneSet) -> engine::Settings {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let policies = self.informers.policies.in_namespace(namespace);
        let bound = engine::select(&policies, &selected(set)).bound;
        let mut settings = bound.map_or_else(engine::Settings::default, |policy| (&policy.spec).into());
        settings.pod.quotas_changed_at = self.quotas.changed_at(namespace);
        let min_ready = set.spec.min_ready_seconds.unwrap_or(0).max(0);
        settings.pod.min_ready = jiff::SignedDuration::from_secs(min_ready.into());
        settings
    }

    fn gather(&self, set: &Arc<CloneSet>) -> State {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        State {
            set: set.clone(),
            pods: self.informers.pods.controlled_by(uid),
            revisions: self.informers.revisions.controlled_by(uid),
            taken: BTreeSet::new(),
            claims: self.informers.claims.controlled_by(uid),
            policy: self.policy(set),
            owners: self.vpas.owners(&selected(set)),
            quotas: Vec::new(),
        }
    }

    /// The quotas that matter for a set: those of its namespace, if a further pod exceeds one.
    fn quotas(&self, set: &CloneSet, verdict: Option<&Verdict>, now: Timestamp) -> Vec<ResourceQuota> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        match verdict {
            Some(Verdict::OverQuota(_)) => {
                let pods = self.informers.pods.in_namespace(namespace);
                measured(&self.informers.quotas.in_namespace(namespace), &pods, &self.config.rules, now)
            }
            _ => Vec::new(),
        }
    }

    /// The names of all revisions in the namespace of a set.
    fn revision_names(&self, set: &CloneSet) -> BTreeSet<String> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let revisions = self.informers.revisions.in_namespace(namespace);
        revisions.iter().map(|one| revision::name(one).to_owned()).collect()
    }

    fn emit(&self, set: &CloneSet, note: Note, at: Timestamp) {
        let Note { warning, reason, message } = note;
        let type_ = if warning { EventType::Warning } else { EventType::Normal };
        let regarding = ObjectReference {
            api_version: Some(CloneSet::api_version(&()).into_owned()),
            kind: Some(CloneSet::kind(&()).into_owned()),
            namespace: set.metadata.namespace.clone(),
            name: set.metadata.name.clone(),
            uid: set.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        self.recorder.record(regarding, NewEvent::new(type_, reason, message), at);
    }

    /// Adopts and releases objects of a kind. Whether there was something to do.
    async fn claim<K>(&self, set: &CloneSet, store: &Store<K>) -> Result<bool, ReconcileError>
    where
        K: Watchable + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let claims = adoption::claims(set, Some(&set.spec.selector), store);
        if claims.is_empty() {
            return Ok(false);
        }
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let adopts = claims.iter().any(|claim| matches!(claim, Claim::Adopt(_)));
        // By the API itself: the store may be behind.
        let sets: Api<CloneSet> = Api::namespaced(self.config.write.clone(), namespace);
        let exists = !adopts || {
            let now = sets.get_metadata_opt(&set.name_any()).await.map_err(ReconcileError::Claim)?;
            now.is_some_and(|now| {
                now.metadata.uid == set.metadata.uid && now.metadata.deletion_timestamp.is_none()
            })
        };
        let api: Api<K> = Api::namespaced(self.config.write.clone(), namespace);
        let owner = controller_reference(set);
        for claim in claims {
            let (object, patch) = match &claim {
                Claim::Adopt(_) if !exists => continue,
                Claim::Adopt(object) => {
                    (object, adoption_patch(&owner, object.meta().uid.as_deref().unwrap_or_default(), None))
                }
                Claim::Release(object) => {
                    (object, release_patch(&owner, object.meta().uid.as_deref().unwrap_or_default(), None))
                }
            };
            match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Strategic(&patch)).await {
                Ok(patched) => {
                    let write = Write::updated(patched.meta());
                    // An elapsed timeout costs another attempt, which the API refuses or repeats.
                    let _ = tokio::time::timeout(OBSERVED_WITHIN, store.wait_for_write(&write)).await;
                }
                Err(error) if is_settled(&error) || is_conflict(&error) => {}
                Err(error) => return Err(ReconcileError::Claim(error)),
            }
        }
        Ok(true)
    }
}

impl Reconciler for CloneSets {
    type Key = ObjectRef;
    type Error = ReconcileError;

    async fn reconcile(&self, key: &ObjectRef) -> Result<Requeue, ReconcileError> {
        if self.is_stopped() {
            return Ok(Requeue::AwaitChange);
        }
        let Some(set) = self.informers.sets.get(key) else {
            self.set_failures(key, Failures::default());
            self.dry_runs.forget(key);
            return Ok(Requeue::AwaitChange);
        };
        let claimed = self.claim(&set, &self.informers.pods).await?;
        if claimed | self.claim(&set, &self.informers.revisions).await? {
            return Ok(Requeue::Now);
        }
        let now = self.config.clock.now();
        let mut state = self.gather(&set);
        let before = self.failures(key);
        let known = self.dry_runs.known(key, &set, now);
        let mut context = Context {
            now,
            seed: (self.config.random)().to_bits(),
            rules: &self.config.rules,
            vertical: self.config.enabled,
            failures: &before,
            verdict: known.as_ref().map(|(verdict, _)| verdict),
        };
        state.quotas = self.quotas(&set, context.verdict, now);
        let mut decision = decide(&state, &context);
        if decision.actions.iter().any(|action| matches!(action, Action::CreateRevision(_))) {
            // Its name must be free.
            state.taken = self.revision_names(&set);
            decision = decide(&state, &context);
        }
        let mut dry_run_error = None;
        let unanswered;
        let checked = match validate(&set) {
            Ok(template) if decision.unchecked => {
                let checked = self.dry_runs.check(&self.config.write, key, &set, &template, now).await;
                // No update begins until the dry run has an answer. Scaling, updates under way and the status do not wait.
                let checked = checked.map_err(|error| dry_run_error = Some(error)).ok();
                if let Some((Verdict::Refused(message), _)) = &checked {
                    let message =
                        format!("the API server would reject pods created from this template: {message}");
                    self.emit(&set, Note { warning: true, reason: "InvalidTemplate", message }, now);
                }
                checked
            }
            _ => None,
        };
        if let Some((verdict, _)) = &checked {
            context.verdict = Some(verdict);
            state.quotas = self.quotas(&set, context.verdict, now);
            decision = decide(&state, &context);
        }
        let why = dry_run_error.as_ref().map(ToString::to_string);
        if why.is_some() {
            // The status and an event tell.
            unanswered = Failures { dry_run: why.clone(), ..before.clone() };
            context.failures = &unanswered;
            decision = decide(&state, &context);
        }
        if let Some((_, until)) = checked.as_ref().or(known.as_ref()) {
            // A refusal may end without a change of the set or its pods.
            decision.wake_at(*until);
        }
        for note in decision.notes {
            self.emit(&set, note, now);
        }
        // Once for each pod and reason, not for each decision.
        for (_, why) in decision.stuck.iter().filter(|(uid, why)| before.stuck.get(*uid) != Some(why)) {
            let message = format!("failed to update pod in place: {why}");
            self.emit(&set, Note { warning: true, reason: "FailedUpdatePodInPlace", message }, now);
        }
        let mut failures = Failures { stuck: decision.stuck, dry_run: why, ..before.clone() };
        // Pods that are gone cannot fail.
        if !failures.pods.is_empty() {
            let uids: BTreeSet<&str> =
                state.pods.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
            failures.pods.retain(|uid, _| uids.contains(uid.as_str()));
        }
        let emit = |note: Note| self.emit(&set, note, now);
        let performer =
            Performer { client: &self.config.write, informers: &self.informers, set: &set, now, emit: &emit };
        let Performed { errors, conflict } =
            performer.perform(decision.actions, decision.status, &mut failures).await;
        if let Some(due) = decision.due {
            // Even if a write failed, whose backoff may be longer.
            self.queue.add_at(key.clone(), due);
        }
        let changed = failures != before;
        let scale = failures.scale.clone();
        self.set_failures(key, failures);
        if let Some(error) = errors.into_iter().next() {
            return Err(error.into());
        }
        if conflict {
            return Err(ReconcileError::Conflict);
        }
        if changed {
            // The status has the failed writes.
            self.queue.add(key.clone());
        }
        match (dry_run_error, scale) {
            (Some(error), _) => Err(error.into()),
            (None, Some(message)) => Err(ReconcileError::Scale(message)),
            (None, None) => Ok(Requeue::AwaitChange),
        }
    }

    async fn recover(&self) {
        let client = || self.config.watch.clone();
        let Informers { sets, pods, revisions, claims, .. } = &*self.informers;
        let catch_up = || async {
            sets.catch_up(Api::all(client())).await?;
            pods.catch_up(Api::all(client())).await?;
            revisions.catch_up(Api::all(client())).await?;
            claims.catch_up(Api::all(client())).await
        };
        let mut backoff = Backoff::default();
        while let Err(error) = catch_up().await {
            tracing::debug!(%error, controller = NAME, "cannot list what was written, will retry");
            backoff.wait().await;
        }
    }
}
