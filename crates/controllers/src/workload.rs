//! The frame of the workload controllers.
//!
//! ```text
//!   the API ──▶ informers: one watch per kind, indexes ──▶ work queue ──▶ gather ▸ decide ▸ perform ──┐
//!      ▲                                                       ▲                                       │
//!      │                                                       └── at a time, or after a failure ◀─────┤
//!      └───────────────────────────── own writes are awaited in the informers ◀───────────────────────┘
//! ```
//!
//! A [`Workload`] is a pure decision over one object and what belongs to it: plain data in, [`Action`]s out, time is a
//! value. A change of a pod enqueues its controller and nothing else. A workload is not reconciled again before the
//! informers have observed its own writes, so that nothing is created twice.

pub mod action;
pub mod claim;
pub mod kinds;
mod perform;
pub(crate) mod recorder;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use plumb_controller_runtime::clock::whole_seconds;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{
    Backoff, Clock, Controller, InformerFactory, ObjectRef, Reconciler, Requeue, WorkQueue, adoption,
    controller_of, controller_of_kind, controller_reference,
};
use plumb_supervise::Supervisor;
use tokio::task::JoinSet;

pub use action::{Action, Failure, Note, Verb, WriteOutcome};
pub use plumb_controller_runtime::pods;

pub use kinds::{Informed, Informers, Kind, Object, Ref, Written};

use perform::{Performed, Performer};
use recorder::Recorder;

/// How many workloads of a kind are reconciled at a time.
const WORKERS: usize = 16;

/// The input of a decision besides the state.
#[derive(Clone, Debug)]
pub struct Context {
    /// The time of the decision.
    pub now: Timestamp,
    /// Why the last reconcile failed. It is forgotten once a reconcile succeeds, which is then repeated.
    pub failure: Option<Failure>,
}

impl Context {
    /// The time in whole seconds, as conditions have it.
    pub fn time(&self) -> Time {
        Time(whole_seconds(self.now))
    }
}

/// A kind of workload.
pub trait Workload: Send + Sync + 'static {
    /// The name of its controller, and of the user that this writes as.
    const NAME: &'static str;
    /// The name of the task that runs it, in health checks and metrics.
    const TASK: &'static str = Self::NAME;
    /// The component that its events name as their source.
    const EVENT_SOURCE: &'static str = Self::NAME;
    /// The finalizer that the controller adds to objects that it adopts and removes from objects that it releases, if
    /// it counts them.
    const FINALIZER: Option<&'static str> = None;
    /// The kind.
    type Kind: Written + Into<Object>;
    /// An object with everything that a decision about it reads.
    type State: Send;

    /// Whether a change of an object needs a reconcile. It is called for every change of the kind, so it has to be
    /// quick.
    fn filter(object: &Self::Kind) -> bool {
        let _ = object;
        true
    }

    /// Registers which changes of other objects enqueue which workloads. A change of a workload enqueues it anyway.
    fn watch(&self, watches: &Watches<Self::Kind>);

    /// The objects to adopt and to release. As long as there are any, the controller decides nothing else.
    fn claims(&self, object: &Self::Kind, informers: &Informers) -> Vec<Action>;

    /// Gathers the state of a workload from the informers.
    fn gather(&self, object: &Arc<Self::Kind>, informers: &Informers) -> Self::State;

    /// Decides the actions. Pure.
    fn decide(&self, state: &Self::State, context: &Context) -> Vec<Action>;

    /// The event about the result of a write. Pure.
    fn event_for(&self, owner: &Self::Kind, outcome: &WriteOutcome<'_>) -> Option<Note> {
        let _ = owner;
        event_for_pod(outcome)
    }
}

/// The events that most controllers emit about the pods that they create and delete.
pub fn event_for_pod(outcome: &WriteOutcome<'_>) -> Option<Note> {
    let WriteOutcome { verb, object, error } = outcome;
    if object.kind != Kind::Pod {
        return None;
    }
    match (verb, error) {
        (Verb::Create, None) => {
            Some(Note::normal("SuccessfulCreate", format!("Created pod: {}", object.name)))
        }
        (Verb::Create, Some(error)) => {
            Some(Note::warning("FailedCreate", format!("Error creating: {error}")))
        }
        (Verb::Delete, None) => {
            Some(Note::normal("SuccessfulDelete", format!("Deleted pod: {}", object.name)))
        }
        (Verb::Delete, Some(error)) => {
            Some(Note::warning("FailedDelete", format!("Error deleting: {error}")))
        }
        (Verb::Change, _) => None,
    }
}

/// Which changes enqueue which workloads.
pub struct Watches<W> {
    /// The informers.
    pub informers: Arc<Informers>,
    /// The queue of the workloads.
    pub queue: Arc<WorkQueue>,
    kind: std::marker::PhantomData<fn() -> W>,
}

impl<W: Written> Watches<W> {
    /// A change of an object enqueues the workload that controls it, and the one that did before. A change of an object
    /// without a controller enqueues the workloads that select it.
    pub fn owned<K: Informed>(&self, selector: fn(&W) -> Option<LabelSelector>) {
        let queue = self.queue.clone();
        let informers = self.informers.clone();
        K::informer(&self.informers).add_handler(move |change| {
            let before = change.before.and_then(|object| controller_of_kind::<W>(&**object));
            let after = change.after.and_then(|object| controller_of_kind::<W>(&**object));
            if let Some(before) = before.filter(|before| Some(before) != after.as_ref()) {
                queue.add(before);
            }
            if let Some(after) = after {
                queue.add(after);
            } else if let Some(orphan) = change.after.filter(|after| controller_of(after.meta()).is_none()) {
                let namespace = orphan.meta().namespace.as_deref().unwrap_or_default();
                for workload in W::informer(&informers).in_namespace(namespace) {
                    let selector = adoption::selector(selector(&workload).as_ref());
                    if selector.is_some_and(|selector| adoption::matches(&selector, &**orphan)) {
                        queue.add(ObjectRef::of(&*workload));
                    }
                }
            }
        });
    }
}

/// The workload controllers of a cluster, on shared informers.
pub struct Manager {
    informers: Arc<Informers>,
    factory: InformerFactory,
    clock: Clock,
    reconciles: Arc<AtomicU64>,
    supervisor: Supervisor,
    metrics: Metrics,
    /// Lists what the informers may not have observed yet; set when they start.
    watcher: Arc<OnceLock<Client>>,
    running: JoinSet<()>,
}

impl Manager {
    /// A manager without controllers.
    pub fn new(clock: Clock, supervisor: Supervisor, metrics: Metrics) -> Self {
        let factory = InformerFactory::with_metrics(&metrics);
        Self {
            informers: Arc::new(Informers::new(&factory)),
            factory,
            clock,
            reconciles: Arc::default(),
            supervisor,
            metrics,
            watcher: Arc::default(),
            running: JoinSet::new(),
        }
    }

    /// The informers of the workload controllers.
    pub fn informers(&self) -> &Arc<Informers> {
        &self.informers
    }

    /// The factory of the informers: it also watches the kinds that other callers request before the manager runs.
    pub fn factory(&self) -> &InformerFactory {
        &self.factory
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How often a workload was reconciled, from now on.
    pub fn reconciles(&self) -> Arc<AtomicU64> {
        self.reconciles.clone()
    }

    /// Adds a controller, which writes by this client. It starts when the informers have synced.
    pub fn add<W: Workload>(&mut self, workload: W, client: Client) {
        let queue = Arc::new(WorkQueue::new(self.clock.clone()));
        workload.watch(&Watches {
            informers: self.informers.clone(),
            queue: queue.clone(),
            kind: std::marker::PhantomData::<fn() -> W::Kind>,
        });
        let recorder = Recorder::start(client.clone(), W::EVENT_SOURCE, &self.supervisor, &self.metrics);
        let reconciler = WorkloadReconciler {
            recorder: recorder.clone(),
            workload,
            client,
            queue: queue.clone(),
            informers: self.informers.clone(),
            clock: self.clock.clone(),
            reconciles: self.reconciles.clone(),
            watcher: self.watcher.clone(),
            failures: Mutex::default(),
        };
        let controller = Controller::new(W::TASK, reconciler, &self.supervisor)
            .with_metrics(&self.metrics)
            .with_panic_events(move || recorder.0.clone())
            .with_queue(queue)
            .with_workers(WORKERS)
            .reconciles_if(W::Kind::informer(&self.informers), W::filter)
            .awaits(self.informers.clone());
        self.running.spawn(controller.run());
    }

    /// Runs the controllers with the watches of this client, until it is dropped.
    pub fn run(self, client: Client) -> BoxFuture<'static, ()> {
        Box::pin(self.run_all(client))
    }

    async fn run_all(mut self, client: Client) {
        // Only the first counts, and this is called once.
        let _ = self.watcher.set(client.clone());
        let mut informing = self.factory.start(&client, &self.supervisor);
        tokio::join!(async { while informing.join_next().await.is_some() {} }, async {
            while self.running.join_next().await.is_some() {}
        });
    }
}

/// Why a workload could not be reconciled.
#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error("{} failed: {}", match .0.verb { Verb::Create => "a creation", Verb::Delete => "a deletion", Verb::Change => "an update" }, .0.message)]
    Write(Failure),
    #[error("conflict: the object was modified concurrently")]
    Conflict,
    #[error("an object to adopt or release was deleted, which is not observed yet")]
    NotObserved,
}

/// Reconciles the workloads of a kind.
struct WorkloadReconciler<W> {
    workload: W,
    client: Client,
    queue: Arc<WorkQueue>,
    informers: Arc<Informers>,
    recorder: Recorder,
    clock: Clock,
    reconciles: Arc<AtomicU64>,
    watcher: Arc<OnceLock<Client>>,
    /// Why the last reconcile of a workload failed.
    failures: Mutex<HashMap<ObjectRef, Failure>>,
}

impl<W: Workload> WorkloadReconciler<W> {
    fn take_failure(&self, key: &ObjectRef) -> Option<Failure> {
        self.failures.lock().remove(key)
    }

    fn keep_failure(&self, key: &ObjectRef, failure: Failure) {
        self.failures.lock().insert(key.clone(), failure);
    }

    /// Performs the actions of a decision. Returns whether they were adoptions or releases.
    async fn perform(&self, object: &Arc<W::Kind>, context: &Context) -> (Performed, bool) {
        let claims = self.workload.claims(object, &self.informers);
        let claimed = !claims.is_empty();
        let actions = if claimed {
            claims
        } else {
            let state = self.workload.gather(object, &self.informers);
            self.workload.decide(&state, context)
        };
        let event_for = |outcome: &WriteOutcome<'_>| self.workload.event_for(object, outcome);
        let performer = Performer {
            client: &self.client,
            informers: &self.informers,
            recorder: &self.recorder,
            owner: Ref::to(&**object),
            reference: controller_reference(&**object),
            finalizer: W::FINALIZER,
            now: context.now,
            event_for: &event_for,
        };
        (performer.perform(actions).await, claimed)
    }
}

impl<W: Workload> Reconciler for WorkloadReconciler<W> {
    type Key = ObjectRef;
    type Error = ReconcileError;

    async fn reconcile(&self, key: &ObjectRef) -> Result<Requeue, ReconcileError> {
        self.reconciles.fetch_add(1, Ordering::Relaxed);
        let context = Context { now: self.clock.now(), failure: self.take_failure(key) };
        let Some(object) = W::Kind::informer(&self.informers).get(key) else {
            return Ok(Requeue::AwaitChange);
        };
        let (performed, claimed) = self.perform(&object, &context).await;
        if let Some(when) = performed.requeue_at {
            // This applies even if a write failed, whose backoff may be longer.
            self.queue.add_at(key.clone(), when);
        }
        let wrote_nothing = performed.wrote_nothing();
        if let Some(failure) = performed.failure {
            self.keep_failure(key, failure.clone());
            return Err(ReconcileError::Write(failure));
        }
        if performed.conflict {
            return Err(ReconcileError::Conflict);
        }
        if claimed && wrote_nothing {
            return Err(ReconcileError::NotObserved);
        }
        // The status with the reason of the last failure has to be updated, and adopted objects have to be counted.
        let repeat = context.failure.is_some() || claimed;
        Ok(if repeat { Requeue::Now } else { Requeue::AwaitChange })
    }

    async fn recover(&self) {
        let Some(watcher) = self.watcher.get() else { return };
        let mut backoff = Backoff::default();
        while let Err(error) = self.informers.catch_up(watcher).await {
            tracing::debug!(%error, controller = W::NAME, "cannot list the objects that were written, will retry");
            backoff.wait().await;
        }
    }
}
