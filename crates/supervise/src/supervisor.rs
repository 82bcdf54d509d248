//! Named tasks, their restarts and their health.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use plumb_metrics::Text;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::panic::{Panic, catch};
use crate::policy::Policy;

/// The health of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The task is running.
    Running,
    /// The task failed and waits for its restart.
    Waiting {
        /// Why it failed.
        cause: String,
        /// The number of failures in a row.
        failures: u32,
        /// Whether the task failed so often that the process should be restarted.
        failing: bool,
    },
}

/// A task and its health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The name of the task.
    pub name: String,
    /// The health of the task.
    pub health: Health,
}

impl Task {
    /// Why the task makes the process not ready.
    pub fn unready(&self) -> Option<&str> {
        match &self.health {
            Health::Running => None,
            Health::Waiting { cause, .. } => Some(cause),
        }
    }

    /// Why the task makes the process not live: it keeps failing.
    pub fn dead(&self) -> Option<&str> {
        match &self.health {
            Health::Waiting { cause, failing: true, .. } => Some(cause),
            _ => None,
        }
    }
}

/// Restarts tasks. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    policy: Policy,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tasks: BTreeMap<String, Record>,
    /// Counters remain when a task is removed, since a Prometheus counter must not decrease.
    counters: BTreeMap<String, Counters>,
}

#[derive(Debug)]
struct Record {
    health: Health,
    /// Incremented by each request to abort the run; `None` if the task cannot be aborted.
    abort: Option<watch::Sender<u64>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    panics: u64,
    restarts: [u64; 3],
}

/// Why a run of a task ended.
#[derive(Debug)]
enum Cause {
    Panicked(Panic),
    Ended,
    Aborted,
}

/// The causes of restarts in metrics, by their index in [`Counters::restarts`].
const CAUSES: [&str; 3] = ["panic", "end", "abort"];

impl Cause {
    fn index(&self) -> usize {
        match self {
            Self::Panicked(_) => 0,
            Self::Ended => 1,
            Self::Aborted => 2,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Panicked(panic) => panic.to_string(),
            Self::Ended => "the task ended unexpectedly".to_owned(),
            Self::Aborted => "aborted on request".to_owned(),
        }
    }
}

/// The supervisor of this process, for tasks that no other supervisor can be passed to, such as a thread that all nodes of
/// a process share, and for the process itself.
pub fn process() -> &'static Supervisor {
    static PROCESS: LazyLock<Supervisor> = LazyLock::new(Supervisor::default);
    &PROCESS
}

impl Supervisor {
    /// Creates a supervisor with a restart policy.
    pub fn new(policy: Policy) -> Self {
        Self { shared: Arc::new(Shared { policy, state: Mutex::default() }) }
    }

    /// Runs a task without end: it is restarted when it panics or ends. The task is registered by the call, and removed when
    /// the future is dropped.
    pub fn keep<F, Fut>(&self, name: &str, mut make: F) -> impl Future<Output = ()> + use<F, Fut>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = ()>,
    {
        let mut entry = self.register(name);
        async move {
            let mut backoff = entry.backoff();
            loop {
                let started = Instant::now();
                let cause = match entry.run(&mut make).await {
                    Ok(()) => Cause::Ended,
                    Err(cause) => cause,
                };
                entry.restart(started, cause, &mut backoff).await;
            }
        }
    }

    /// Runs a task until it ends: it is restarted only when it panics.
    pub fn finish<F, Fut>(&self, name: &str, make: F) -> impl Future<Output = Fut::Output> + use<F, Fut>
    where
        F: FnMut() -> Fut,
        Fut: Future,
    {
        self.register(name).finish(make)
    }

    /// Runs one of many tasks of a kind, such as pod workers, like [`Supervisor::finish`]. The tasks share the counters of
    /// the kind, and health checks do not list them.
    pub fn finish_one_of<F, Fut>(
        &self,
        kind: &str,
        make: F,
    ) -> impl Future<Output = Fut::Output> + use<F, Fut>
    where
        F: FnMut() -> Fut,
        Fut: Future,
    {
        // The task cannot be aborted by name.
        let (_, aborted) = watch::channel(0);
        Entry { shared: self.shared.clone(), name: kind.to_owned(), aborted, listed: false }.finish(make)
    }

    /// Runs a loop on the current thread, like [`Supervisor::keep`], until it returns [`ControlFlow::Break`]. It cannot be
    /// aborted by name.
    pub fn keep_on_thread(&self, name: &str, mut run: impl FnMut() -> ControlFlow<()>) {
        let entry = self.register(name);
        if let Some(record) = self.shared.state.lock().tasks.get_mut(&entry.name) {
            record.abort = None;
        }
        let mut backoff = entry.backoff();
        loop {
            let started = Instant::now();
            entry.set_health(Health::Running);
            let cause = match catch_unwind(AssertUnwindSafe(&mut run)) {
                Ok(ControlFlow::Break(())) => return,
                Ok(ControlFlow::Continue(())) => Cause::Ended,
                Err(payload) => Cause::Panicked(Panic::from_payload(&*payload)),
            };
            std::thread::sleep(entry.note_failure(started, cause, &mut backoff));
        }
    }

    /// Runs a work item of a task, and catches and counts its panic. The task continues, and the caller handles the failed
    /// item.
    pub fn guard<T>(
        &self,
        task: &str,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Result<T, Panic>> {
        let work = catch(work);
        async move {
            let done = work.await;
            if let Err(panic) = &done {
                self.note_panic(task, panic);
            }
            done
        }
    }

    /// Counts and logs a panic that was caught elsewhere.
    pub fn note_panic(&self, task: &str, panic: &Panic) {
        tracing::error!(task, cause = panic.message, "a work item panicked");
        self.shared.state.lock().counters.entry(task.to_owned()).or_default().panics += 1;
    }

    /// Ends the run of a task as if it had failed; the task is restarted after the backoff. Returns whether the task was
    /// running and can be aborted.
    pub fn abort(&self, name: &str) -> bool {
        let state = self.shared.state.lock();
        let running = state.tasks.get(name).filter(|record| record.health == Health::Running);
        let Some(abort) = running.and_then(|record| record.abort.as_ref()) else { return false };
        abort.send_modify(|requests| *requests += 1);
        true
    }

    /// All tasks, sorted by name.
    pub fn tasks(&self) -> Vec<Task> {
        let state = self.shared.state.lock();
        let task =
            |(name, record): (&String, &Record)| Task { name: name.clone(), health: record.health.clone() };
        state.tasks.iter().map(task).collect()
    }

    /// The number of restarts of a task, for all causes.
    pub fn restarts(&self, name: &str) -> u64 {
        self.shared.state.lock().counters.get(name).map_or(0, |counters| counters.restarts.iter().sum())
    }

    /// The number of panics of a task and its work items.
    pub fn panics(&self, name: &str) -> u64 {
        self.shared.state.lock().counters.get(name).map_or(0, |counters| counters.panics)
    }

    /// Writes the metrics. A task that never failed has no series, so that many nodes do not create many series.
    pub fn render(&self, text: &mut Text) {
        let state = self.shared.state.lock();
        let running = state.tasks.values().filter(|record| record.health == Health::Running).count();
        let name = "plumb_tasks";
        text.gauge(name, "long-lived tasks by state");
        text.sample(name, &[("state", "running")], running);
        text.sample(name, &[("state", "waiting")], state.tasks.len() - running);
        let name = "plumb_task_panics_total";
        text.counter(name, "panics of long-lived tasks and of their work items");
        for (task, counters) in state.counters.iter().filter(|(_, counters)| counters.panics > 0) {
            text.sample(name, &[("task", task)], counters.panics);
        }
        let name = "plumb_task_restarts_total";
        text.counter(name, "restarts of long-lived tasks by cause");
        for (task, counters) in &state.counters {
            for (cause, count) in CAUSES.iter().zip(counters.restarts).filter(|(_, count)| *count > 0) {
                text.sample(name, &[("task", task), ("cause", cause)], count);
            }
        }
    }

    /// Registers a task. A number is appended to the name of a task that is already registered.
    fn register(&self, name: &str) -> Entry {
        let mut state = self.shared.state.lock();
        let mut unique = name.to_owned();
        let mut number = 1_u64;
        while state.tasks.contains_key(&unique) {
            number += 1;
            unique = format!("{name}-{number}");
        }
        let (abort, aborted) = watch::channel(0);
        state.tasks.insert(unique.clone(), Record { health: Health::Running, abort: Some(abort) });
        Entry { shared: self.shared.clone(), name: unique, aborted, listed: true }
    }
}

/// A registered task.
struct Entry {
    shared: Arc<Shared>,
    name: String,
    aborted: watch::Receiver<u64>,
    /// Whether health checks list the task.
    listed: bool,
}

impl Entry {
    /// Runs the task until it ends without a panic.
    async fn finish<F, Fut>(mut self, mut make: F) -> Fut::Output
    where
        F: FnMut() -> Fut,
        Fut: Future,
    {
        let mut backoff = self.backoff();
        loop {
            let started = Instant::now();
            match self.run(&mut make).await {
                Ok(value) => return value,
                Err(cause) => self.restart(started, cause, &mut backoff).await,
            }
        }
    }

    /// Runs the task once.
    async fn run<F, Fut>(&mut self, make: &mut F) -> Result<Fut::Output, Cause>
    where
        F: FnMut() -> Fut,
        Fut: Future,
    {
        self.aborted.mark_unchanged();
        self.set_health(Health::Running);
        tokio::select! {
            Ok(()) = self.aborted.changed() => Err(Cause::Aborted),
            // The closure that creates the future can panic too.
            done = catch(async { make().await }) => done.map_err(Cause::Panicked),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(self.shared.policy.delays)
    }

    /// Records why a run ended, and waits until the restart is due.
    async fn restart(&mut self, started: Instant, cause: Cause, backoff: &mut Backoff) {
        let wait = self.note_failure(started, cause, backoff);
        tokio::time::sleep(wait).await;
    }

    /// Records why a run ended, and returns the delay before the restart.
    fn note_failure(&self, started: Instant, cause: Cause, backoff: &mut Backoff) -> Duration {
        let policy = self.shared.policy;
        if started.elapsed() >= policy.stable {
            backoff.reset();
        }
        let delay = backoff.failed();
        let failures = backoff.failures();
        let message = cause.text();
        tracing::error!(task = self.name, cause = message, failures, restart_in = ?delay, "restarting a failed task");
        {
            let mut state = self.shared.state.lock();
            let counters = state.counters.entry(self.name.clone()).or_default();
            counters.restarts[cause.index()] += 1;
            counters.panics += u64::from(matches!(cause, Cause::Panicked(_)));
        }
        let failing = failures >= policy.failing_after;
        self.set_health(Health::Waiting { cause: message, failures, failing });
        delay
    }

    fn set_health(&self, health: Health) {
        if self.listed
            && let Some(record) = self.shared.state.lock().tasks.get_mut(&self.name)
        {
            record.health = health;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.listed {
            self.shared.state.lock().tasks.remove(&self.name);
        }
    }
}
