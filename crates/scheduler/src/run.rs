//! The loop around the planner: it passes the events of the informers to the planner, and performs its decisions.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use plumb_supervise::{Panic, Supervisor};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::events::{PodEvent, Recorder};
use crate::informers::{CAPACITY, Informers, Subscriptions};
use crate::metrics::{Attempt, Metrics};
use crate::planner::{CurrentPod, Decision, Planner, PodRef, Preemption, Settings};
use crate::requests::{self, UnschedulableStatus};

/// The user of the scheduler, whose role upstream defines.
pub const USER: &str = "system:kube-scheduler";
/// The maximum number of requests in flight.
const MAX_IN_FLIGHT: usize = 128;
/// The maximum number of decisions between two turns of the loop, so that watch events are not delayed.
const MAX_DECISIONS_PER_TURN: usize = 64;
/// How often the loop runs without an event, so that the queue flushes pods that are unschedulable for too long.
const FLUSH_INTERVAL: Duration = Duration::from_secs(30);
/// How long a pod is set aside after a panic in a decision about it.
const SET_ASIDE_FOR: Duration = Duration::from_mins(10);

/// The configuration of the scheduler.
#[derive(Clone)]
pub struct Config {
    /// The client of the API server.
    pub client: Client,
    /// The settings of the planner.
    pub settings: Settings,
    /// The wall clock, for timestamps of objects. Backoffs use a monotonic clock.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// The supervisor of its tasks.
    pub supervisor: Supervisor,
}

/// The name of the task, in health checks and metrics.
const TASK: &str = "scheduler";

/// The outcome of a request.
enum RequestOutcome {
    Bound { waited: Duration, attempts: u32, took: Duration },
    BindingFailed(Arc<str>, Duration),
    PreemptionFailed(Arc<str>),
    Done,
}

/// Schedules pods until it is dropped.
///
/// The scheduling loop is a task of its own. When it panics, the supervisor restarts it alone: informers and event recorder
/// run on, and the loop recovers its state from the lists of the informers. A pod whose binding was in progress is bound by
/// then, or is scheduled again. The pod that the loop decided about when it panicked is set aside for ten minutes, so that it
/// does not block the others.
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
        let set_aside = SetAside::default();
        let schedule =
            || schedule(config.clone(), recorder.clone(), set_aside.clone(), informers.subscribe());
        supervisor.keep(TASK, schedule).await;
    })
}

/// The pods that are set aside, by uid, and until when. They outlive a restart of the loop.
type SetAside = Arc<Mutex<HashMap<Arc<str>, (CurrentPod, Instant)>>>;

async fn schedule(config: Config, recorder: Recorder, set_aside: SetAside, informers: Subscriptions) {
    let Subscriptions {
        mut nodes,
        mut pods,
        mut budgets,
        mut namespaces,
        mut claims,
        mut volumes,
        mut classes,
        mut csi_nodes,
        mut csi_drivers,
        mut storage_capacities,
    } = informers;
    let mut scheduler = Scheduler::new(config, recorder, set_aside);
    let mut tick = tokio::time::interval(FLUSH_INTERVAL);
    // The planner decides nothing before it has a list of every kind. Nodes come first: pods only have their names.
    let Some(event) = nodes.recv().await else { return };
    scheduler.planner.handle_nodes(event);
    let Some(event) = namespaces.recv().await else { return };
    scheduler.planner.handle_namespaces(event);
    let Some(event) = budgets.recv().await else { return };
    scheduler.planner.handle_budgets(event);
    let Some(event) = classes.recv().await else { return };
    scheduler.planner.handle_classes(event);
    let Some(event) = csi_nodes.recv().await else { return };
    scheduler.planner.handle_csi_nodes(event);
    let Some(event) = csi_drivers.recv().await else { return };
    scheduler.planner.handle_csi_drivers(event);
    let Some(event) = storage_capacities.recv().await else { return };
    scheduler.planner.handle_storage_capacities(event);
    let Some(event) = volumes.recv().await else { return };
    scheduler.planner.handle_volumes(event);
    let Some(event) = claims.recv().await else { return };
    scheduler.planner.handle_claims(event, Instant::now());
    let Some(event) = pods.recv().await else { return };
    scheduler.guard(|scheduler| scheduler.planner.handle_pods(event, Instant::now()));
    loop {
        let has_more = scheduler.guard(Scheduler::decide);
        let due = scheduler.until_backoff_ends();
        tokio::select! {
            biased;
            Some(outcome) = scheduler.in_flight.join_next() => scheduler.handle_outcome(outcome),
            Some(event) = nodes.recv() => scheduler.planner.handle_nodes(event),
            Some(event) = namespaces.recv() => scheduler.planner.handle_namespaces(event),
            Some(event) = budgets.recv() => scheduler.planner.handle_budgets(event),
            Some(event) = classes.recv() => scheduler.planner.handle_classes(event),
            Some(event) = csi_nodes.recv() => scheduler.planner.handle_csi_nodes(event),
            Some(event) = csi_drivers.recv() => scheduler.planner.handle_csi_drivers(event),
            Some(event) = storage_capacities.recv() => scheduler.planner.handle_storage_capacities(event),
            Some(event) = volumes.recv() => scheduler.planner.handle_volumes(event),
            Some(event) = claims.recv() => scheduler.planner.handle_claims(event, Instant::now()),
            Some(event) = pods.recv() => {
                scheduler.guard(|scheduler| scheduler.planner.handle_pods(event, Instant::now()));
            }
            () = tokio::task::yield_now(), if has_more => {}
            () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => {}
            _ = tick.tick() => {}
        }
        // Events that have arrived meanwhile are handled in the same turn.
        let now = Instant::now();
        drain(&mut nodes, |event| scheduler.planner.handle_nodes(event));
        drain(&mut budgets, |event| scheduler.planner.handle_budgets(event));
        drain(&mut namespaces, |event| scheduler.planner.handle_namespaces(event));
        drain(&mut classes, |event| scheduler.planner.handle_classes(event));
        drain(&mut csi_nodes, |event| scheduler.planner.handle_csi_nodes(event));
        drain(&mut csi_drivers, |event| scheduler.planner.handle_csi_drivers(event));
        drain(&mut storage_capacities, |event| scheduler.planner.handle_storage_capacities(event));
        drain(&mut volumes, |event| scheduler.planner.handle_volumes(event));
        drain(&mut claims, |event| scheduler.planner.handle_claims(event, now));
        drain(&mut pods, |event| scheduler.guard(|scheduler| scheduler.planner.handle_pods(event, now)));
        while let Some(outcome) = scheduler.in_flight.try_join_next() {
            scheduler.handle_outcome(outcome);
        }
        scheduler.config.metrics.update_gauges(&scheduler.planner);
    }
}

/// Handles the events that have arrived, up to the capacity of the channel.
fn drain<T>(events: &mut mpsc::Receiver<T>, mut handle: impl FnMut(T)) {
    for _ in 0..CAPACITY {
        match events.try_recv() {
            Ok(event) => handle(event),
            Err(_) => return,
        }
    }
}

/// The planner, and the requests that perform its decisions.
struct Scheduler {
    config: Config,
    planner: Planner,
    recorder: Recorder,
    in_flight: JoinSet<RequestOutcome>,
    set_aside: SetAside,
}

impl Scheduler {
    fn new(config: Config, recorder: Recorder, set_aside: SetAside) -> Self {
        let mut planner = Planner::new(config.settings.clone());
        let now = Instant::now();
        let mut pods = set_aside.lock();
        pods.retain(|_, (_, until)| now < *until);
        pods.values().for_each(|(pod, until)| planner.set_aside(pod, *until));
        drop(pods);
        Self { config, planner, recorder, in_flight: JoinSet::new(), set_aside }
    }

    /// Does a part of the work of the loop. If it panics, the pod that it was about is set aside, and the loop ends with the
    /// panic: the planner may be inconsistent, and the restarted loop has a new one.
    fn guard<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(done) => done,
            Err(payload) => {
                self.set_current_aside(&Panic::from_payload(&*payload));
                resume_unwind(payload)
            }
        }
    }

    fn set_current_aside(&mut self, panic: &Panic) {
        let Some(current) = self.planner.current().cloned() else { return };
        let PodRef { namespace, name, uid, .. } = &current.pod;
        tracing::error!(
            namespace,
            pod = name,
            cause = panic.message,
            "the scheduler panicked at a pod, which is set aside"
        );
        self.config.metrics.count_set_aside();
        let minutes = SET_ASIDE_FOR.as_secs() / 60;
        let note = format!("The scheduler {panic}; it retries this pod after {minutes} minutes");
        let event =
            pod_event(current.pod.clone(), "FailedScheduling", "Scheduling", note, (self.config.clock)());
        self.recorder.record(PodEvent { warning: true, ..event });
        self.set_aside.lock().insert(uid.clone(), (current.clone(), Instant::now() + SET_ASIDE_FOR));
    }

    /// Performs some decisions. Whether there may be more.
    fn decide(&mut self) -> bool {
        for _ in 0..MAX_DECISIONS_PER_TURN {
            if self.in_flight.len() >= MAX_IN_FLIGHT {
                return false;
            }
            let started = Instant::now();
            let Some(decision) = self.planner.next(started) else { return false };
            self.perform(decision, started);
        }
        true
    }

    /// The time until a backoff ends, if a request may be sent then.
    fn until_backoff_ends(&self) -> Option<Duration> {
        let due = self.planner.due().filter(|_| self.in_flight.len() < MAX_IN_FLIGHT)?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    fn perform(&mut self, decision: Decision, started: Instant) {
        let client = self.config.client.clone();
        let now = (self.config.clock)();
        let metrics = &self.config.metrics;
        match decision {
            Decision::Bind { pod, node, attempts, since } => {
                metrics.observe_algorithm(started.elapsed());
                let recorder = self.recorder.clone();
                let clock = self.config.clock.clone();
                let supervisor = self.config.supervisor.clone();
                self.in_flight.spawn(async move {
                    match supervisor.guard(TASK, requests::bind(&client, &pod, &node)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => {
                            tracing::debug!(%error, namespace = pod.namespace, pod = pod.name, node, "cannot bind a pod, will retry");
                            return RequestOutcome::BindingFailed(pod.uid, started.elapsed());
                        }
                        // Otherwise the pod would stay assumed.
                        Err(_) => return RequestOutcome::BindingFailed(pod.uid, started.elapsed()),
                    }
                    let at = clock();
                    let note = format!("Successfully assigned {}/{} to {node}", pod.namespace, pod.name);
                    recorder.record(pod_event(pod, "Scheduled", "Binding", note, at));
                    RequestOutcome::Bound { waited: since.elapsed(), attempts, took: started.elapsed() }
                });
            }
            Decision::BindVolumes { pod, node, bindings } => {
                metrics.observe_algorithm(started.elapsed());
                let supervisor = self.config.supervisor.clone();
                self.in_flight.spawn(async move {
                    match supervisor.guard(TASK, requests::bind_volumes(&client, &node, &bindings)).await {
                        // The planner binds the pod when it observes that its claims are bound.
                        Ok(Ok(())) => RequestOutcome::Done,
                        Ok(Err(error)) => {
                            tracing::debug!(%error, namespace = pod.namespace, pod = pod.name, node, "cannot bind the volumes of a pod, will retry");
                            RequestOutcome::BindingFailed(pod.uid, started.elapsed())
                        }
                        Err(_) => RequestOutcome::BindingFailed(pod.uid, started.elapsed()),
                    }
                });
            }
            Decision::Unschedulable {
                pod,
                generation,
                message,
                message_changed,
                is_first_failure,
                nominated,
                preemption,
            } => {
                metrics.observe_algorithm(started.elapsed());
                metrics.observe_attempt(Attempt::Unschedulable, started.elapsed());
                metrics
                    .observe_preemption(preemption.as_ref().map_or(0, |preemption| preemption.victims.len()));
                if message_changed || nominated.is_some() {
                    let failed =
                        pod_event(pod.clone(), "FailedScheduling", "Scheduling", message.clone(), now);
                    self.recorder.record(PodEvent { warning: true, ..failed });
                    let status = UnschedulableStatus { message, generation, is_first_failure, nominated };
                    self.in_flight.spawn(async move {
                        log_failure(&pod, requests::patch_unschedulable(&client, &pod, status, now).await);
                        RequestOutcome::Done
                    });
                }
                if let Some(preemption) = preemption {
                    self.preempt(preemption, now);
                }
            }
            Decision::ClearNomination(pod) => {
                self.in_flight.spawn(async move {
                    log_failure(&pod, requests::clear_nomination(&client, &pod).await);
                    RequestOutcome::Done
                });
            }
            Decision::PreemptForResize(preemption) => {
                metrics.observe_preemption(preemption.victims.len());
                self.preempt(preemption, now);
            }
        }
    }

    fn preempt(&mut self, preemption: Preemption, now: Timestamp) {
        let client = self.config.client.clone();
        let recorder = self.recorder.clone();
        let scheduler = self.config.settings.name.clone();
        let supervisor = self.config.supervisor.clone();
        self.in_flight.spawn(async move {
            let Preemption { node, victims, preemptor, .. } = &preemption;
            for victim in victims {
                let preempting = requests::preempt(&client, &scheduler, victim, &preemption, now);
                let Ok(preempted) = supervisor.guard(TASK, preempting).await else {
                    return RequestOutcome::PreemptionFailed(preemptor.uid.clone());
                };
                match preempted {
                    Ok(()) => {
                        let note = format!("Preempted by pod {} on node {node}", preemptor.uid);
                        let event = pod_event(victim.clone(), "Preempted", "Preempting", note, now);
                        recorder.record(PodEvent { related: Some(preemptor.clone()), ..event });
                    }
                    Err(error) if requests::is_deleted(&error) => {}
                    Err(error) => {
                        tracing::debug!(%error, namespace = victim.namespace, pod = victim.name, "cannot preempt a pod, will retry");
                        return RequestOutcome::PreemptionFailed(preemptor.uid.clone());
                    }
                }
            }
            RequestOutcome::Done
        });
    }

    fn handle_outcome(&mut self, outcome: Result<RequestOutcome, tokio::task::JoinError>) {
        let metrics = &self.config.metrics;
        let now = Instant::now();
        match outcome {
            Ok(RequestOutcome::Bound { waited, attempts, took }) => {
                metrics.observe_attempt(Attempt::Scheduled, took);
                metrics.observe_scheduled(attempts, waited);
            }
            Ok(RequestOutcome::BindingFailed(uid, took)) => {
                metrics.observe_attempt(Attempt::Error, took);
                self.planner.binding_failed(&uid, now);
            }
            Ok(RequestOutcome::PreemptionFailed(preemptor)) => {
                self.planner.preemption_failed(&preemptor, now);
            }
            Ok(RequestOutcome::Done) => {}
            // The tasks of bindings and preemptions catch their panics; a status is patched again with the next attempt.
            Err(error) => {
                if let Some(panic) = Panic::from_task(error) {
                    self.config.supervisor.note_panic(TASK, &panic);
                }
            }
        }
    }
}

fn pod_event(
    pod: PodRef,
    reason: &'static str,
    action: &'static str,
    note: String,
    at: Timestamp,
) -> PodEvent {
    PodEvent { pod, related: None, warning: false, reason, action, note, at }
}

/// Logs that a status could not be patched, unless the pod is deleted.
fn log_failure(pod: &PodRef, patched: kube::Result<()>) {
    if let Err(error) = patched
        && !requests::is_deleted(&error)
    {
        tracing::warn!(%error, namespace = pod.namespace, pod = pod.name, "cannot patch the status of a pending pod");
    }
}
