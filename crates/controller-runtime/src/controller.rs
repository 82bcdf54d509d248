//! The loop of a controller: take a key from the work queue, reconcile it, and requeue or forget the key.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use plumb_supervise::{Panic, Supervisor};
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::events::EventRecorder;
use crate::informer::Synced;
use crate::metrics::{ControllerMetrics, Metrics, ReconcileResult};
use crate::object_ref::{ObjectRef, controller_of_kind};
use crate::panics::PanicEvents;
use crate::reflector::Watchable;
use crate::store::{Change, Store};
use crate::work_queue::{Key, WorkQueue, WorkResult};

/// After this many failures of one object in a row the controller logs a warning, and again after each further
/// hundred: an object that cannot be reconciled for days, because of a quota for example, does not fill the log.
const WARN_AT: u32 = 5;
const WARN_EVERY: u32 = 100;

/// When an object is reconciled again that was reconciled without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// When something changes.
    AwaitChange,
    /// At once.
    Now,
    /// After a while, or earlier if something changes.
    After(Duration),
}

impl From<Requeue> for WorkResult {
    fn from(requeue: Requeue) -> Self {
        match requeue {
            Requeue::AwaitChange => Self::Done,
            Requeue::Now => Self::Requeue,
            Requeue::After(wait) => Self::RequeueAfter(wait),
        }
    }
}

/// Reconciles one object of a controller.
///
/// A reconciler brings the actual state closer to the desired one, and may be called at any time, any number of
/// times: it reads stores, decides, and writes. The controller calls it for one key at a time, for different keys
/// concurrently.
pub trait Reconciler: Send + Sync + 'static {
    /// The key of an object: mostly an [`ObjectRef`].
    type Key: Key;
    /// Why an object could not be reconciled. It is logged, and the object is reconciled again after a backoff.
    type Error: Display + Send;

    /// Reconciles an object, which may not exist any more.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Requeue, Self::Error>> + Send;

    /// The object of a key, for events that the controller itself emits about it
    /// ([`Controller::with_panic_events`]). Objects of kinds that [`Controller::reconciles`] names are found without it.
    fn regarding(&self, key: &Self::Key) -> Option<ObjectReference> {
        let _ = key;
        None
    }

    /// Called before anything is reconciled after a reconcile was interrupted by a panic or by a restart of the controller:
    /// its writes may not be in the stores yet, see [`Store::catch_up`].
    fn recover(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// A reconciler, its work queue, and what fills the queue.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use plumb_controller_runtime::{Controller, InformerFactory, ObjectRef, Reconciler, Requeue};
/// # use plumb_supervise::Supervisor;
/// struct Prints;
///
/// impl Reconciler for Prints {
///     type Key = ObjectRef;
///     type Error = kube::Error;
///
///     async fn reconcile(&self, map: &ObjectRef) -> kube::Result<Requeue> {
///         println!("{map} changed");
///         Ok(Requeue::AwaitChange)
///     }
/// }
///
/// async fn run(client: kube::Client) {
///     let (informers, supervisor) = (InformerFactory::default(), Supervisor::default());
///     let maps = informers.informer::<ConfigMap>();
///     let controller = Controller::new("prints", Prints, &supervisor).reconciles(&maps);
///     let _running = informers.start(&client, &supervisor);
///     controller.run().await;
/// }
/// ```
pub struct Controller<R: Reconciler> {
    name: String,
    reconciler: R,
    queue: Arc<WorkQueue<R::Key>>,
    workers: usize,
    supervisor: Supervisor,
    awaited: Vec<Arc<dyn Synced>>,
    metrics: Option<Metrics>,
    /// Find the objects of keys.
    regarding: Vec<Find<R::Key>>,
    panic_events: Option<PanicEvents>,
    /// Whether it ran before.
    started: AtomicBool,
}

/// Finds the object of a key.
type Find<K> = Box<dyn Fn(&K) -> Option<ObjectReference> + Send + Sync>;

impl<R: Reconciler> Controller<R> {
    /// A controller with one worker. The name is that of its task in health checks and metrics.
    pub fn new(name: impl Into<String>, reconciler: R, supervisor: &Supervisor) -> Self {
        Self {
            name: name.into(),
            reconciler,
            queue: Arc::default(),
            workers: 1,
            supervisor: supervisor.clone(),
            awaited: Vec::new(),
            metrics: None,
            regarding: Vec::new(),
            panic_events: None,
            started: AtomicBool::new(false),
        }
    }

    /// The same with a clock for its queue. It comes before whatever fills the queue.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        self.with_queue(Arc::new(WorkQueue::new(clock)))
    }

    /// The same with a queue that something else fills, too. It comes before whatever else fills the queue.
    #[must_use]
    pub fn with_queue(mut self, queue: Arc<WorkQueue<R::Key>>) -> Self {
        self.queue = queue;
        self
    }

    /// The same with this many concurrent reconciles.
    #[must_use]
    pub fn with_workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// The same, which counts under its name, as controller-runtime and client-go do.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// The same, which emits an event about each object whose reconcile panicked: a warning with the reason
    /// `ReconcilePanicked`. The recorder is started with the first panic, since most controllers have none.
    #[must_use]
    pub fn with_panic_events(mut self, recorder: impl Fn() -> EventRecorder + Send + Sync + 'static) -> Self {
        self.panic_events = Some(PanicEvents::new(recorder));
        self
    }

    /// Waits for a store to sync before anything is reconciled.
    #[must_use]
    pub fn awaits(mut self, store: Arc<dyn Synced>) -> Self {
        self.awaited.push(store);
        self
    }

    /// Adds keys to the queue when objects of a kind change; waits for the store to sync.
    #[must_use]
    pub fn watches<K: Watchable>(
        self,
        store: &Arc<Store<K>>,
        enqueue: impl Fn(&Change<'_, K>, &WorkQueue<R::Key>) + Send + Sync + 'static,
    ) -> Self {
        let queue = self.queue.clone();
        store.add_handler(move |change| enqueue(change, &queue));
        self.awaits(store.clone())
    }

    /// The queue.
    pub fn queue(&self) -> &Arc<WorkQueue<R::Key>> {
        &self.queue
    }

    /// The reconciler.
    pub fn reconciler(&self) -> &R {
        &self.reconciler
    }

    /// Reconciles until the future is dropped, once all stores have synced. Restarts after a panic of the loop itself; the
    /// queue outlives it.
    ///
    /// Boxed, so that it is compiled with the controller and not with each crate that awaits it.
    pub fn run(self) -> BoxFuture<'static, ()> {
        let controller = Arc::new(self);
        let (name, supervisor) = (controller.name.clone(), controller.supervisor.clone());
        Box::pin(supervisor.keep(&name, move || {
            let controller = controller.clone();
            async move { controller.work().await }
        }))
    }

    async fn work(self: Arc<Self>) {
        self.queue.requeue_processing();
        for store in &self.awaited {
            store.synced().await;
        }
        let metrics = self.metrics.as_ref().map(|metrics| {
            self.queue.set_metrics(metrics.work_queue(&self.name));
            let metrics = metrics.controller(&self.name);
            metrics.set_max_concurrent_reconciles(self.workers);
            metrics
        });
        let mut interrupted = self.started.swap(true, Ordering::Relaxed);
        let mut active: JoinSet<bool> = JoinSet::new();
        loop {
            if std::mem::take(&mut interrupted) {
                self.reconciler.recover().await;
            }
            while active.len() < self.workers
                && let Some(key) = self.queue.get()
            {
                let (controller, metrics) = (self.clone(), metrics.clone());
                active.spawn(async move { controller.reconcile(key, metrics).await });
            }
            let is_full = active.len() >= self.workers;
            tokio::select! {
                Some(panicked) = active.join_next() => interrupted = panicked.unwrap_or(true),
                () = self.queue.wait(), if !is_full => {}
            }
        }
    }

    /// Reconciles one object. Whether it panicked.
    async fn reconcile(&self, key: R::Key, metrics: Option<Arc<ControllerMetrics>>) -> bool {
        let reconciling = metrics.as_ref().map(ControllerMetrics::reconciling);
        let reconciled = self.supervisor.guard(&self.name, self.reconciler.reconcile(&key)).await;
        let outcome = match &reconciled {
            Ok(Ok(requeue)) => (*requeue).into(),
            Ok(Err(error)) => {
                self.log(&key, error);
                WorkResult::Failed
            }
            Err(panic) => {
                self.emit(&key, panic);
                WorkResult::Failed
            }
        };
        if let Some(reconciling) = reconciling {
            reconciling.finish(match (&reconciled, outcome) {
                (Err(_), _) => ReconcileResult::Panic,
                (_, WorkResult::Done) => ReconcileResult::Success,
                (_, WorkResult::Requeue) => ReconcileResult::Requeue,
                (_, WorkResult::RequeueAfter(_)) => ReconcileResult::RequeueAfter,
                (_, WorkResult::Failed) => ReconcileResult::Error,
            });
        }
        self.queue.done(key, outcome);
        reconciled.is_err()
    }

    /// Emits an event about the object of a key over which a reconcile panicked.
    fn emit(&self, key: &R::Key, panic: &Panic) {
        let Some(events) = &self.panic_events else { return };
        let found = self.regarding.iter().find_map(|find| find(key));
        if let Some(object) = found.or_else(|| self.reconciler.regarding(key)) {
            events.emit(object, panic, self.queue.clock().now());
        }
    }

    fn log(&self, key: &R::Key, error: &R::Error) {
        let (controller, failures) = (&self.name, self.queue.failures(key).saturating_add(1));
        if failures == WARN_AT || failures.is_multiple_of(WARN_EVERY) {
            tracing::warn!(controller, ?key, %error, failures, "cannot reconcile, will retry");
        } else {
            tracing::debug!(controller, ?key, %error, failures, "cannot reconcile, will retry");
        }
    }
}

impl<R: Reconciler<Key = ObjectRef>> Controller<R> {
    /// Reconciles each object of a kind that is created or changed.
    #[must_use]
    pub fn reconciles<K>(self, store: &Arc<Store<K>>) -> Self
    where
        K: Watchable + Resource<DynamicType = ()>,
    {
        self.reconciles_if(store, |_| true)
    }

    /// Reconciles each object of a kind that is created or changed, if a filter accepts it. The filter is called for
    /// every change, so it has to be quick.
    #[must_use]
    pub fn reconciles_if<K>(
        mut self,
        store: &Arc<Store<K>>,
        filter: impl Fn(&K) -> bool + Send + Sync + 'static,
    ) -> Self
    where
        K: Watchable + Resource<DynamicType = ()>,
    {
        let objects = store.clone();
        self.regarding.push(Box::new(move |key| objects.get(key).map(|object| object.object_ref(&()))));
        self.watches(store, move |change, queue| {
            if let Some(object) = change.after.filter(|object| filter(object)) {
                queue.add(ObjectRef::of(&**object));
            }
        })
    }

    /// Reconciles the controller, of kind `Owner`, of each object that is created, changed or deleted, and the one that was
    /// its controller before the change.
    #[must_use]
    pub fn owns<Owner, K>(self, store: &Arc<Store<K>>) -> Self
    where
        Owner: Resource<DynamicType = ()>,
        K: Watchable,
    {
        self.watches(store, |change, queue| {
            let before = change.before.and_then(|object| controller_of_kind::<Owner>(&**object));
            let after = change.after.and_then(|object| controller_of_kind::<Owner>(&**object));
            if let Some(before) = before.filter(|before| Some(before) != after.as_ref()) {
                queue.add(before);
            }
            if let Some(after) = after {
                queue.add(after);
            }
        })
    }
}
