//! Tasks by name: how each is restarted, and how each is.

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

/// How a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It runs.
    Running,
    /// It failed and waits to be restarted.
    Waiting {
        /// Why it failed.
        cause: String,
        /// How often it failed in a row.
        failures: u32,
        /// Whether that is so often that a restart of the process may be the better cure.
        failing: bool,
    },
}

/// A task and how it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// How it is.
    pub health: Health,
}

impl Task {
    /// Why the process is not ready because of it.
    pub fn unready(&self) -> Option<&str> {
        match &self.health {
            Health::Running => None,
            Health::Waiting { cause, .. } => Some(cause),
        }
    }

    /// Why the process is not live because of it: it fails again and again.
    pub fn dead(&self) -> Option<&str> {
        match &self.health {
            Health::Waiting { cause, failing: true, .. } => Some(cause),
            _ => None,
        }
    }
}

/// Restarts tasks. Clones share what they know.
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
    /// They stay when a task is gone: a counter never falls.
    counters: BTreeMap<String, Counters>,
}

#[derive(Debug)]
struct Record {
    health: Health,
    /// Grows with each request to abort the run; none where nothing can.
    abort: Option<watch::Sender<u64>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    panics: u64,
    restarts: [u64; 3],
}

/// Why a run of a task is over.
#[derive(Debug)]
enum Cause {
    Panicked(Panic),
    Ended,
    Aborted,
}

/// The causes of restarts as metrics name them, by the place in [`Counters::restarts`].
const CAUSES: [&str; 3] = ["panic", "end", "abort"];

impl Cause {
    fn place(&self) -> usize {
        match self {
            Self::Panicked(_) => 0,
            Self::Ended => 1,
            Self::Aborted => 2,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Panicked(panic) => panic.to_string(),
            Self::Ended => "ended though it should run for good".to_owned(),
            Self::Aborted => "aborted on request".to_owned(),
        }
    }
}

/// The supervisor of this process: for what no other can be handed to, like a thread that all nodes of a process share, and
/// for the process itself.
pub fn process() -> &'static Supervisor {
    static PROCESS: LazyLock<Supervisor> = LazyLock::new(Supervisor::default);
    &PROCESS
}

impl Supervisor {
    /// One that restarts tasks by another policy.
    pub fn new(policy: Policy) -> Self {
        Self { shared: Arc::new(Shared { policy, state: Mutex::default() }) }
    }

    /// Runs a task for good: a run that panics or ends is followed by another. The task is known from the call on, and is
    /// forgotten when the future is dropped.
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

    /// Runs a task until a run of it ends by itself: a run that panics is followed by another.
    pub fn finish<F, Fut>(&self, name: &str, make: F) -> impl Future<Output = Fut::Output> + use<F, Fut>
    where
        F: FnMut() -> Fut,
        Fut: Future,
    {
        self.register(name).finish(make)
    }

    /// The same as [`Supervisor::finish`] for one of many tasks of a kind, like those of each pod: they share the counters
    /// of the kind, and health checks do not list them.
    pub fn finish_one_of<F, Fut>(
        &self,
        kind: &str,
        make: F,
    ) -> impl Future<Output = Fut::Output> + use<F, Fut>
    where
        F: FnMut() -> Fut,
        Fut: Future,
    {
        // Nothing aborts it by name.
        let (_, aborted) = watch::channel(0);
        Entry { shared: self.shared.clone(), name: kind.to_owned(), aborted, listed: false }.finish(make)
    }

    /// The same as [`Supervisor::keep`] for a loop that has a thread of its own, until it says itself that it is over.
    /// Nothing aborts it by name.
    pub fn keep_on_thread(&self, name: &str, mut run: impl FnMut() -> ControlFlow<()>) {
        let entry = self.register(name);
        if let Some(record) = self.shared.state.lock().tasks.get_mut(&entry.name) {
            record.abort = None;
        }
        let mut backoff = entry.backoff();
        loop {
            let started = Instant::now();
            entry.set(Health::Running);
            let cause = match catch_unwind(AssertUnwindSafe(&mut run)) {
                Ok(ControlFlow::Break(())) => return,
                Ok(ControlFlow::Continue(())) => Cause::Ended,
                Err(payload) => Cause::Panicked(Panic::of(&*payload)),
            };
            std::thread::sleep(entry.note_failure(started, cause, &mut backoff));
        }
    }

    /// Does a piece of work of a task, and catches and counts its panic: the task goes on, and the caller says what becomes
    /// of that piece.
    pub fn guard<T>(
        &self,
        task: &str,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Result<T, Panic>> {
        let working = catch(work);
        async move {
            let done = working.await;
            if let Err(panic) = &done {
                self.note_panic(task, panic);
            }
            done
        }
    }

    /// Counts a panic that was caught elsewhere, and logs it.
    pub fn note_panic(&self, task: &str, panic: &Panic) {
        tracing::error!(task, cause = panic.message, "a work item panicked");
        self.shared.state.lock().counters.entry(task.to_owned()).or_default().panics += 1;
    }

    /// Ends the run of a task, as if it had failed; it is restarted after the backoff. Whether it runs and can be aborted.
    pub fn abort(&self, name: &str) -> bool {
        let state = self.shared.state.lock();
        let running = state.tasks.get(name).filter(|record| record.health == Health::Running);
        let Some(abort) = running.and_then(|record| record.abort.as_ref()) else { return false };
        abort.send_modify(|requests| *requests += 1);
        true
    }

    /// All tasks, by name.
    pub fn tasks(&self) -> Vec<Task> {
        let state = self.shared.state.lock();
        let task =
            |(name, record): (&String, &Record)| Task { name: name.clone(), health: record.health.clone() };
        state.tasks.iter().map(task).collect()
    }

    /// How often a task was restarted, whatever for.
    pub fn restarts(&self, name: &str) -> u64 {
        self.shared.state.lock().counters.get(name).map_or(0, |counters| counters.restarts.iter().sum())
    }

    /// How often a task, or a piece of its work, panicked.
    pub fn panics(&self, name: &str) -> u64 {
        self.shared.state.lock().counters.get(name).map_or(0, |counters| counters.panics)
    }

    /// Shows what was counted. A task that never failed has no series, so that many nodes do not make many series.
    pub fn render(&self, text: &mut Text) {
        let state = self.shared.state.lock();
        let running = state.tasks.values().filter(|record| record.health == Health::Running).count();
        let name = "plumb_tasks";
        text.gauge(name, "long-lived tasks by state");
        text.sample(name, &[("state", "running")], running);
        text.sample(name, &[("state", "waiting")], state.tasks.len() - running);
        let name = "plumb_task_panics_total";
        text.counter(name, "panics of long-lived tasks and of pieces of their work");
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

/// A task that is known.
struct Entry {
    shared: Arc<Shared>,
    name: String,
    aborted: watch::Receiver<u64>,
    /// Whether it is one of the tasks by name.
    listed: bool,
}

impl Entry {
    /// Runs a task until a run of it ends by itself.
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

    /// One run.
    async fn run<F, Fut>(&mut self, make: &mut F) -> Result<Fut::Output, Cause>
    where
        F: FnMut() -> Fut,
        Fut: Future,
    {
        self.aborted.mark_unchanged();
        self.set(Health::Running);
        tokio::select! {
            Ok(()) = self.aborted.changed() => Err(Cause::Aborted),
            // What makes the run may panic as well as the run.
            done = catch(async { make().await }) => done.map_err(Cause::Panicked),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(self.shared.policy.delays)
    }

    /// Notes why a run is over, and waits until the next one is due.
    async fn restart(&mut self, started: Instant, cause: Cause, backoff: &mut Backoff) {
        let wait = self.note_failure(started, cause, backoff);
        tokio::time::sleep(wait).await;
    }

    /// Notes why a run is over, and answers how long the next one waits.
    fn note_failure(&self, started: Instant, cause: Cause, backoff: &mut Backoff) -> Duration {
        let policy = self.shared.policy;
        if started.elapsed() >= policy.stable {
            backoff.reset();
        }
        let (wait, why) = (backoff.failed(), cause.text());
        let (task, times) = (&self.name, backoff.failures());
        tracing::error!(task, cause = why, failures = times, restart_in = ?wait, "a task failed, it is restarted");
        {
            let mut state = self.shared.state.lock();
            let counters = state.counters.entry(self.name.clone()).or_default();
            counters.restarts[cause.place()] += 1;
            counters.panics += u64::from(matches!(cause, Cause::Panicked(_)));
        }
        self.set(Health::Waiting { cause: why, failures: times, failing: times >= policy.failing_after });
        wait
    }

    fn set(&self, health: Health) {
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
