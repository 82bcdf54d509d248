//! The loop around the planner: it feeds the planner what the informers observe, and performs what the planner decides.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use plumb_supervise::{Panic, Supervisor};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::events::{Happened, Recorder};
use crate::informers::{CAPACITY, Informers, Subscriptions};
use crate::metrics::{Attempt, Metrics};
use crate::perform::{self, Said};
use crate::planner::{Decision, Eviction, Planner, PodRef, Settings};

/// The user that a scheduler is, whose role upstream defines.
pub const USER: &str = "system:kube-scheduler";
/// How many requests are under way at a time.
const UNDER_WAY: usize = 128;
/// How many decisions are made before what happened meanwhile is taken in.
const AT_A_TIME: usize = 64;
/// How often it is looked whether a pod waits for too long.
const LOOK_AROUND: Duration = Duration::from_secs(30);

/// What a scheduler needs.
#[derive(Clone)]
pub struct Config {
    /// How it reaches the cluster.
    pub client: Client,
    /// How it decides.
    pub settings: Settings,
    /// The wall clock, for what objects say. Waits are by a monotonic clock.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// Restarts what fails, and counts it.
    pub supervisor: Supervisor,
}

/// The name of the task, in health checks and metrics.
const TASK: &str = "scheduler";

/// What came of something that was to be done.
enum Outcome {
    Bound { waited: Duration, attempts: u32, took: Duration },
    NotBound(Arc<str>, Duration),
    NotEvicted(Arc<str>),
    Said,
}

/// Schedules pods until it is dropped.
///
/// The scheduling loop is a task of its own. When it panics, the supervisor restarts it alone: informers and event recorder
/// run on, and the loop recovers its state from the lists of the informers. A pod whose binding was in progress is bound by
/// then, or is scheduled again.
pub fn run(config: Config) -> BoxFuture<'static, ()> {
    // Boxed, so that it is compiled here and not with each crate that awaits it.
    Box::pin(async move {
        let informers = Informers::start(&config);
        let recorder = Recorder::start(
            config.client.clone(),
            &config.settings.name,
            &config.supervisor,
            &config.metrics,
        );
        let supervisor = config.supervisor.clone();
        supervisor.keep(TASK, || schedule(config.clone(), recorder.clone(), informers.subscribe())).await;
    })
}

async fn schedule(config: Config, recorder: Recorder, informers: Subscriptions) {
    let Subscriptions { mut nodes, mut pods, mut budgets, mut namespaces } = informers;
    let mut desk = Desk::new(config, recorder);
    let mut tick = tokio::time::interval(LOOK_AROUND);
    // The planner decides nothing before it has a list of every kind. Nodes come first: pods know only their names.
    let (first_nodes, first_namespaces) = (nodes.recv().await, namespaces.recv().await);
    let (first_budgets, first_pods) = (budgets.recv().await, pods.recv().await);
    let (Some(a), Some(b), Some(c), Some(d)) = (first_nodes, first_namespaces, first_budgets, first_pods)
    else {
        return;
    };
    desk.planner.nodes(a);
    desk.planner.namespaces(b);
    desk.planner.budgets(c);
    desk.planner.pods(d, Instant::now());
    loop {
        let busy = desk.decide();
        let due = desk.wait();
        tokio::select! {
            biased;
            Some(outcome) = desk.under_way.join_next() => desk.done(outcome),
            Some(event) = nodes.recv() => desk.planner.nodes(event),
            Some(event) = namespaces.recv() => desk.planner.namespaces(event),
            Some(event) = budgets.recv() => desk.planner.budgets(event),
            Some(event) = pods.recv() => desk.planner.pods(event, Instant::now()),
            () = tokio::task::yield_now(), if busy => {}
            () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => {}
            _ = tick.tick() => {}
        }
        // What else is there already costs no turn.
        let now = Instant::now();
        drain(&mut nodes, |event| desk.planner.nodes(event));
        drain(&mut budgets, |event| desk.planner.budgets(event));
        drain(&mut namespaces, |event| desk.planner.namespaces(event));
        drain(&mut pods, |event| desk.planner.pods(event, now));
        while let Some(outcome) = desk.under_way.try_join_next() {
            desk.done(outcome);
        }
        desk.config.metrics.note(&desk.planner);
    }
}

/// Takes in what is there, but not more than could be there at once.
fn drain<T>(told: &mut mpsc::Receiver<T>, mut take: impl FnMut(T)) {
    for _ in 0..CAPACITY {
        match told.try_recv() {
            Ok(one) => take(one),
            Err(_) => return,
        }
    }
}

/// Where decisions are made and handed on.
struct Desk {
    config: Config,
    planner: Planner,
    recorder: Recorder,
    under_way: JoinSet<Outcome>,
}

impl Desk {
    fn new(config: Config, recorder: Recorder) -> Self {
        let planner = Planner::new(config.settings.clone());
        Self { config, planner, recorder, under_way: JoinSet::new() }
    }

    /// Decides for a while. True if there is more to decide.
    fn decide(&mut self) -> bool {
        for _ in 0..AT_A_TIME {
            if self.under_way.len() >= UNDER_WAY {
                return false;
            }
            let began = Instant::now();
            let Some(decision) = self.planner.next(began) else { return false };
            self.perform(decision, began);
        }
        true
    }

    /// How long until a pod is due that backs off, if there is one and something can be done for it.
    fn wait(&self) -> Option<Duration> {
        let due = self.planner.due().filter(|_| self.under_way.len() < UNDER_WAY)?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    fn perform(&mut self, decision: Decision, began: Instant) {
        let (client, now) = (self.config.client.clone(), (self.config.clock)());
        let metrics = &self.config.metrics;
        match decision {
            Decision::Bind { pod, node, attempts, since } => {
                metrics.decided(began.elapsed());
                let (recorder, clock) = (self.recorder.clone(), self.config.clock.clone());
                let supervisor = self.config.supervisor.clone();
                self.under_way.spawn(async move {
                    match supervisor.guard(TASK, perform::bind(&client, &pod, &node)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => {
                            tracing::debug!(%error, namespace = pod.namespace, pod = pod.name, node, "not bound");
                            return Outcome::NotBound(pod.uid, began.elapsed());
                        }
                        // Otherwise it would count as being bound for good.
                        Err(_) => return Outcome::NotBound(pod.uid, began.elapsed()),
                    }
                    let at = clock();
                    let note = format!("Successfully assigned {}/{} to {node}", pod.namespace, pod.name);
                    recorder.record(happened(pod, "Scheduled", "Binding", note, at));
                    Outcome::Bound { waited: since.elapsed(), attempts, took: began.elapsed() }
                });
            }
            Decision::Refuse { pod, generation, message, is_new, is_first, nominated, evict } => {
                metrics.decided(began.elapsed());
                metrics.tried(Attempt::Unschedulable, began.elapsed());
                metrics.preempted(evict.as_ref().map_or(0, |eviction| eviction.victims.len()));
                if is_new || nominated.is_some() {
                    let failed =
                        happened(pod.clone(), "FailedScheduling", "Scheduling", message.clone(), now);
                    self.recorder.record(Happened { warning: true, ..failed });
                    let said = Said { message, generation, is_first, nominated };
                    self.under_way.spawn(async move {
                        note(&pod, perform::say(&client, &pod, said, now).await);
                        Outcome::Said
                    });
                }
                if let Some(eviction) = evict {
                    self.evict(eviction, now);
                }
            }
            Decision::Withdraw(pod) => {
                self.under_way.spawn(async move {
                    note(&pod, perform::withdraw(&client, &pod).await);
                    Outcome::Said
                });
            }
            Decision::MakeRoom(eviction) => {
                metrics.preempted(eviction.victims.len());
                self.evict(eviction, now);
            }
        }
    }

    fn evict(&mut self, eviction: Eviction, now: Timestamp) {
        let client = self.config.client.clone();
        let (recorder, scheduler) = (self.recorder.clone(), self.config.settings.name.clone());
        let supervisor = self.config.supervisor.clone();
        self.under_way.spawn(async move {
            let Eviction { node, victims, preemptor, .. } = &eviction;
            for victim in victims {
                let evicting = perform::evict(&client, &scheduler, victim, &eviction, now);
                let Ok(evicted) = supervisor.guard(TASK, evicting).await else {
                    return Outcome::NotEvicted(preemptor.uid.clone());
                };
                match evicted {
                    Ok(()) => {
                        let note = format!("Preempted by pod {} on node {node}", preemptor.uid);
                        let left = happened(victim.clone(), "Preempted", "Preempting", note, now);
                        recorder.record(Happened { related: Some(preemptor.clone()), ..left });
                    }
                    Err(error) if perform::is_gone(&error) => {}
                    Err(error) => {
                        tracing::debug!(%error, namespace = victim.namespace, pod = victim.name, "not evicted");
                        return Outcome::NotEvicted(preemptor.uid.clone());
                    }
                }
            }
            Outcome::Said
        });
    }

    fn done(&mut self, outcome: Result<Outcome, tokio::task::JoinError>) {
        let (metrics, now) = (&self.config.metrics, Instant::now());
        match outcome {
            Ok(Outcome::Bound { waited, attempts, took }) => {
                metrics.tried(Attempt::Scheduled, took);
                metrics.scheduled(attempts, waited);
            }
            Ok(Outcome::NotBound(uid, took)) => {
                metrics.tried(Attempt::Error, took);
                self.planner.not_bound(&uid, now);
            }
            Ok(Outcome::NotEvicted(preemptor)) => self.planner.not_evicted(&preemptor, now),
            Ok(Outcome::Said) => {}
            // Panics over bindings and evictions are caught in their tasks; what else is said of a pod is said again.
            Err(error) => {
                if let Some(panic) = Panic::of_task(error) {
                    self.config.supervisor.note_panic(TASK, &panic);
                }
            }
        }
    }
}

fn happened(
    pod: PodRef,
    reason: &'static str,
    action: &'static str,
    note: String,
    at: Timestamp,
) -> Happened {
    Happened { pod, related: None, warning: false, reason, action, note, at }
}

/// Says that a status could not be written, unless nobody misses it.
fn note(pod: &PodRef, written: kube::Result<()>) {
    if let Err(error) = written
        && !perform::is_gone(&error)
    {
        tracing::warn!(%error, namespace = pod.namespace, pod = pod.name, "cannot say why a pod has no node");
    }
}
