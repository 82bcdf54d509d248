//! The loop of the recommender in a cluster.
//!
//! ```text
//!   watches ──▶ feed ─┐                       ┌──▶ status of VPAs, where it is another
//!   targets ──────────┼──▶ state ──▶ decide ──┤
//!   metrics.k8s.io ───┘      ▲                └──▶ checkpoints, where they are others
//!                            └── checkpoints of VPAs that are new, or the history in Prometheus
//! ```
//!
//! A run takes place every interval, and at once when a VPA was created or edited, or when the first pod of one
//! starts. Without VPAs it takes place as often as checkpoints are collected. [`State`] makes all decisions; this
//! module feeds it and performs them.

mod activity;
mod checkpoints;
mod history;
mod statuses;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use plumb_client::Api;
use plumb_controller_runtime::{Clock, ObjectRef, Reflector, WatchConfig};
use plumb_supervise::Supervisor;
use plumb_vpa::informers::Informers;
use plumb_vpa::target::{Targets, WellKnown};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::input::environment::Environment;
use crate::input::feed::{Feed, MAX_KILLS};
use crate::input::live_usage::LiveUsage;
use crate::input::oom::OomKill;
use crate::input::prometheus::Prometheus;
use crate::metrics::{RecommenderMetrics, Step};
use crate::model::cluster::{ClockStep, VpaKey};
use crate::model::histogram::HistogramOptionsError;
use crate::options::{AGGREGATES_GC_INTERVAL, Options, Storage};
use crate::shards::Ownership;
use crate::state::State;
use activity::Activity;
use checkpoints::Checkpoints;

/// The name of the task that a recommender is.
pub const TASK: &str = "vpa-recommender";

/// The least time between two runs of which the second does not wait for the interval.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// Configuration of a recommender.
#[derive(Clone)]
pub struct Config {
    /// The client.
    pub client: Client,
    /// How it works.
    pub options: Options,
    /// VPAs and pods. The caller runs the informers, after [`Recommender::new`].
    pub informers: Informers,
    /// The targets of VPAs.
    pub targets: Targets,
    /// The source of usage.
    pub usage: Arc<dyn LiveUsage>,
    /// Where their history is, with [`Storage::Prometheus`].
    pub history: Option<Prometheus>,
    /// The time.
    pub clock: Clock,
    /// Restarts the tasks.
    pub supervisor: Supervisor,
    /// Which VPAs it is responsible for. The caller runs the [`Elections`](super::shards::Elections).
    pub ownership: Ownership,
    /// Counts and measures.
    pub metrics: RecommenderMetrics,
}

/// The state of a recommender, for explanations and metrics. Clones share it.
#[derive(Clone, Default)]
pub struct SharedState(Arc<Mutex<Option<State>>>);

impl SharedState {
    /// The result of a function of the state; none while the recommender does not run. The recommender waits
    /// meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&State) -> T) -> Option<T> {
        self.lock().as_ref().map(read)
    }

    /// Calls a function with the state, unless the recommender does not run.
    fn write<T: Default>(&self, write: impl FnOnce(&mut State) -> T) -> T {
        self.lock().as_mut().map(write).unwrap_or_default()
    }

    /// The same for what may take a while, on a thread for that.
    async fn write_slowly<T: Default + Send + 'static>(
        &self,
        write: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> T {
        let state = self.clone();
        match tokio::task::spawn_blocking(move || state.write(write)).await {
            Ok(written) => written,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down, and this future is not polled again.
                Err(_) => T::default(),
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        // After a panic the recommender starts anew, with a new state.
        self.0.lock()
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedState").finish_non_exhaustive()
    }
}

/// A recommender. Clones share everything.
#[derive(Clone)]
pub struct Recommender {
    config: Config,
    feed: Arc<Feed>,
    state: SharedState,
    activity: Arc<Activity>,
}

impl Recommender {
    /// A recommender that does not run yet. It adds handlers to the informers.
    pub fn new(config: Config) -> Self {
        let feed = Feed::of(&config.informers);
        Self { config, feed, state: SharedState::default(), activity: Arc::default() }
    }

    /// Its state.
    pub fn state(&self) -> SharedState {
        self.state.clone()
    }

    /// For how long a run has been overdue, if one is: when it is, something is wrong with the recommender.
    pub fn overdue(&self) -> Option<Duration> {
        self.activity.overdue(Instant::now())
    }

    /// Runs for good.
    ///
    /// If the future is dropped and the recommender is run again, it starts anew, as another process would: from the checkpoints.
    pub fn run(&self) -> BoxFuture<'static, ()> {
        let this = self.clone();
        let running = self.config.supervisor.keep(TASK, move || {
            let this = this.clone();
            async move {
                match Run::start(this).await {
                    Ok(mut run) => run.forever().await,
                    Err(error) => {
                        tracing::error!(%error, "the recommender cannot run with these settings");
                        std::future::pending::<()>().await;
                    }
                }
            }
        });
        running.boxed()
    }

    /// Starts it without its timer: each run is [`Run::once`].
    pub fn start(&self) -> BoxFuture<'static, Result<Run, HistogramOptionsError>> {
        Run::start(self.clone()).boxed()
    }
}

/// A recommender that runs, from its start to its end.
pub struct Run {
    config: Config,
    feed: Arc<Feed>,
    state: SharedState,
    activity: Arc<Activity>,
    checkpoints: Checkpoints,
    /// The history that is still to be read.
    unread: Option<Prometheus>,
    /// The task that reads it; ends with this.
    history: JoinSet<()>,
    /// OOM kills that are not counted yet, because the history is not.
    kills: Vec<OomKill>,
    /// When aggregates were collected last.
    collected: Instant,
    /// Whether the last attempt to read usage failed.
    usage_failed: bool,
    /// Whether a status of the last run is still to be written, since another client wrote it at the same time.
    status_conflicts: bool,
    environment: Environment,
    /// The kinds of targets that are watched.
    watched: BTreeSet<WellKnown>,
    /// The task of the watch; it ends with this.
    watching: JoinSet<()>,
}

impl Run {
    async fn start(of: Recommender) -> Result<Self, HistogramOptionsError> {
        let Recommender { config, feed, state, activity } = of;
        let new = State::new(config.options.clone(), config.ownership.clone(), config.metrics.clone())?;
        config.informers.vpas.wait_for_sync().await;
        let now = config.clock.monotonic();
        let mut checkpoints = Checkpoints::new(&config, now);
        // Pods are watched once there is a VPA.
        checkpoints.collect_until(config.informers.pods.wait_for_sync(), &state).await;
        *state.lock() = Some(new);
        feed.everything(&config.informers);
        let mut watching = JoinSet::new();
        watching.spawn(watch_evictions(&config, feed.clone()));
        let (vpas, informers) = (feed.clone(), config.informers.clone());
        watching.spawn(config.ownership.watch(move || vpas.all_vpas(&informers)));
        let environment = Environment::new(config.options.environment);
        watching.spawn(environment.run(&config.client, &config.options.namespaces, &config.supervisor));
        environment.wait_for_sync().await;
        Ok(Self {
            checkpoints,
            unread: config.history.clone().filter(|_| config.options.storage == Storage::Prometheus),
            history: JoinSet::new(),
            kills: Vec::new(),
            config,
            feed,
            state,
            activity,
            collected: now,
            usage_failed: false,
            status_conflicts: false,
            environment,
            watched: BTreeSet::new(),
            watching,
        })
    }

    async fn forever(&mut self) {
        loop {
            let (started, interval) = (Instant::now(), self.config.options.interval);
            self.activity.expect(started, interval);
            self.once().await;
            let (next, pause) = (started + interval, started + SHORTEST_PAUSE);
            if self.state.read(State::vpa_count).unwrap_or_default() == 0 {
                self.activity.rest();
                // A run now and then deletes the checkpoints of the last VPAs, and takes the changes of pods from the
                // feed.
                // An event about a VPA of another recommender does not delay the collection.
                let idle = self.config.options.idle_interval();
                let idle =
                    self.checkpoints.collects_in().map_or(idle, |due| due.max(SHORTEST_PAUSE).min(idle));
                tokio::select! {
                    () = self.feed.run_due() => tokio::time::sleep_until(pause).await,
                    () = tokio::time::sleep(idle) => {}
                }
                continue;
            }
            let waits = self.status_conflicts || self.state.read(State::is_waiting).unwrap_or_default();
            let next = if waits { next.min(Instant::now() + SHORTEST_PAUSE) } else { next };
            self.activity.expect(next.max(Instant::now()), interval);
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = history::read(&mut self.history), if !self.history.is_empty() => {}
                () = async {
                    self.feed.run_due().await;
                    tokio::time::sleep_until(pause.min(next)).await;
                } => {}
            }
        }
    }

    /// One run: reads changes and usage, and writes changed recommendations.
    pub async fn once(&mut self) {
        let mut timer = self.config.metrics.timer();
        let step = self.state.write(|state| Some(state.set_time(self.config.clock.now())));
        match step {
            Some(ClockStep::Forward(by)) => tracing::warn!(?by, "the clock was set ahead"),
            Some(ClockStep::Backward(by)) => tracing::warn!(?by, "the clock was set back"),
            Some(ClockStep::Regular) | None => {}
        }
        let mut changes = self.feed.take();
        self.load_vpas(changes.vpas.iter());
        if let Some(nodes) = self.environment.node_labels()
            && self.state.write(|state| state.set_nodes(nodes))
        {
            changes.pods.extend(self.config.informers.pods.all().iter().map(|pod| ObjectRef::of(&**pod)));
        }
        changes.targets.iter().for_each(|target| self.config.targets.expire(target));
        self.watch_targets();
        self.load_environment();
        self.resolve_targets().await;
        self.checkpoints.read(&self.state).await;
        timer.step(Step::LoadVpas);
        self.load_pods(changes.pods.iter());
        timer.step(Step::LoadPods);
        self.start_history();
        self.load_usage().await;
        self.load_kills(changes.kills).await;
        timer.step(Step::LoadMetrics);
        self.state.write(State::remove_deleted_pods);
        timer.step(Step::DeleteRemovedPods);
        self.state.write_slowly(State::recommend).await;
        self.status_conflicts = statuses::write(&self.config, &self.state).await;
        let unmatched = self.state.read(State::unmatched).unwrap_or_default();
        self.feed.watch_for_pods(unmatched, &self.config.informers);
        timer.step(Step::UpdateVpas);
        self.checkpoints.write(&self.state).await;
        self.checkpoints.collect(&self.state).await;
        timer.step(Step::MaintainCheckpoints);
        self.collect_garbage().await;
        timer.step(Step::GarbageCollect);
        timer.finish();
    }

    /// Waits until the history is read that the first run has begun to read.
    pub fn history_read(&mut self) -> BoxFuture<'_, ()> {
        history::read(&mut self.history).boxed()
    }

    /// Begins to read history, now that the pods are known whose history it is.
    fn start_history(&mut self) {
        if let Some(prometheus) = self.unread.take() {
            self.history.spawn(history::load(prometheus, self.config.clock.clone(), self.state.clone()));
        } else if self.config.history.is_none() {
            self.state.write(State::history_fetched);
        }
    }

    fn load_vpas<'a>(&self, changed: impl Iterator<Item = &'a ObjectRef>) {
        for of in changed {
            let object = self.config.informers.vpas.get(of);
            self.state.write(|state| match object {
                Some(object) => state.apply_vpa(object),
                None => state.delete_vpa(&VpaKey::new(&of.namespace, &of.name)),
            });
        }
    }

    fn load_pods<'a>(&self, changed: impl Iterator<Item = &'a ObjectRef>) {
        for of in changed {
            let pod = self.config.informers.pods.get(of);
            self.state.write(|state| match pod {
                Some(pod) => state.apply_pod(&pod),
                None => state.delete_pod(&of.namespace, &of.name),
            });
        }
    }

    /// Watches the kinds that VPAs target, so that targets are resolved again when they change.
    fn watch_targets(&mut self) {
        for kind in self.state.write(|state| state.target_kinds()) {
            if self.watched.insert(kind) {
                self.watching.spawn(self.config.targets.watch(kind, &self.config.options.namespaces));
            }
        }
    }

    /// Finds out what else in the cluster bears on VPAs.
    fn load_environment(&self) {
        if !self.environment.counts() {
            return;
        }
        let snapshot = self.environment.snapshot();
        for (key, target, selector) in self.state.write(|state| state.targets()) {
            let bearing = snapshot.bearing_on(&target, selector.as_deref(), &self.config.informers.pods);
            self.state.write(|state| state.set_bearing(&key, bearing));
        }
    }

    async fn resolve_targets(&self) {
        let refs = self.state.write(|state| state.target_refs());
        let targets = &self.config.targets;
        let resolved = stream::iter(refs).map(|(key, target_ref)| async move {
            let resolved = targets.of_vpa(&key.namespace, &target_ref).await;
            (key, target_ref, resolved)
        });
        let mut resolved = resolved.buffer_unordered(self.config.options.update_workers.max(1));
        while let Some((key, target_ref, resolved)) = resolved.next().await {
            self.state.write(|state| state.set_target(&key, &target_ref, resolved));
        }
    }

    async fn load_usage(&mut self) {
        if self.state.read(State::is_fetching_history).unwrap_or_default() {
            return;
        }
        let usage = &self.config.usage;
        let counted = match usage.read(self.config.clock.now()).await {
            Ok(measurements) => {
                let count = move |state: &mut State| Some(state.count(&*measurements));
                self.state.write_slowly(count).await.unwrap_or(Ok(()))
            }
            Err(error) => Err(error),
        };
        let failed = counted.is_err();
        self.config.metrics.metrics_server().answered(usage.name(), failed);
        if let Err(error) = counted {
            // Once: a cluster without metrics-server has none for good.
            if self.usage_failed {
                tracing::debug!(%error, source = usage.name(), "cannot read the usage of containers");
            } else {
                tracing::warn!(%error, source = usage.name(), "cannot read the usage of containers");
            }
        }
        self.usage_failed = failed;
    }

    /// Counts OOM kills, but not before the history: memory is counted in the order of time.
    async fn load_kills(&mut self, kills: Vec<OomKill>) {
        self.kills.extend(kills);
        self.kills.truncate(MAX_KILLS);
        if !self.state.read(State::is_fetching_history).unwrap_or_default() {
            let kills = std::mem::take(&mut self.kills);
            self.kills = self.state.write_slowly(move |state| state.record_kills(kills)).await;
        }
    }

    async fn collect_garbage(&mut self) {
        let now = self.config.clock.monotonic();
        if now.saturating_duration_since(self.collected) < AGGREGATES_GC_INTERVAL {
            return;
        }
        self.collected = now;
        let collected = self.state.write_slowly(State::collect_garbage).await;
        tracing::debug!(?collected, "removed expired state");
    }
}

/// Its state is not valid any more, and its series belong to another process.
impl Drop for Run {
    fn drop(&mut self) {
        self.activity.rest();
        if let Some(state) = self.state.lock().take() {
            state.remove_metrics();
        }
    }
}

/// Watches for pods that the kubelet evicts, for good.
fn watch_evictions(config: &Config, feed: Arc<Feed>) -> BoxFuture<'static, ()> {
    let events: Api<Event> = match config.options.namespaces.only() {
        Some(only) => Api::namespaced(config.client.clone(), only),
        None => Api::all(config.client.clone()),
    };
    async move {
        let selected = WatchConfig::default().fields("reason=Evicted");
        let mut events = std::pin::pin!(Reflector::new(events, selected).into_stream());
        while let Some(event) = events.next().await {
            feed.event(&event);
        }
    }
    .boxed()
}
