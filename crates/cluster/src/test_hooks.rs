//! Hooks for tests of crashes: a process that dies at a given call, and tasks that are aborted. Releases are built without the
//! feature `test-hooks`, so that no flag of theirs kills anything.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use plumb_runtime::Runtime;
use plumb_runtime::fault::{Call, Fault, FaultKind, Faults, Faulty, Invocation};
use plumb_supervise::{Supervisor, Task};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::flags::change;

/// Hooks of `plumb up`.
#[derive(Debug, Args)]
pub(crate) struct ClusterHooks {
    /// Abort every long-lived task at each SIGUSR1, and one after the other at each SIGUSR2: for tests of their
    /// restarts.
    #[arg(long, hide = true)]
    abort_tasks_on_signal: bool,
}

impl ClusterHooks {
    /// Listens for the signals if the flag is set, until the returned value is dropped.
    pub(crate) fn abort_tasks_on_signal(&self, supervisor: &'static Supervisor) -> JoinSet<()> {
        let mut listening = JoinSet::new();
        if self.abort_tasks_on_signal {
            listening.spawn(abort_on_signal(supervisor));
        }
        listening
    }
}

/// Hooks of `plumb up` and `plumb node`.
#[derive(Debug, Args)]
pub(crate) struct NodeHooks {
    /// Kill this process at the nth call of this name to the container runtime: for crash tests.
    #[arg(long, hide = true, value_name = "CALL:N")]
    die_at: Option<DieAt>,
}

impl NodeHooks {
    /// The runtime, with the call at which this process dies.
    pub(crate) fn around(&self, runtime: Arc<dyn Runtime>) -> Arc<dyn Runtime> {
        match self.die_at {
            Some(at) => dying(runtime, at),
            None => runtime,
        }
    }
}

/// The call to the container runtime at which this process kills itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DieAt {
    /// The call.
    call: Call,
    /// Which of its kind, the first being 1.
    nth: u64,
}

impl FromStr for DieAt {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, nth) = text.split_once(':').with_context(|| format!("{text:?} is not CALL:N"))?;
        let nth = nth.parse().map_err(|_| anyhow!("{nth:?} is not a number"))?;
        Ok(Self { call: change(name)?, nth })
    }
}

/// A runtime at whose nth call this process dies, without a chance to tidy up.
fn dying(runtime: Arc<dyn Runtime>, DieAt { call, nth }: DieAt) -> Arc<dyn Runtime> {
    let faults = Faults::default();
    let seen = AtomicU64::new(0);
    let die = move |_: &Invocation| {
        if seen.fetch_add(1, Ordering::Relaxed) + 1 == nth {
            // If it fails, the test notices that this process still runs.
            let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
        }
        false
    };
    faults.add(Fault::new(FaultKind::Delay(Duration::ZERO)).on(call).when(die));
    Arc::new(Faulty::new(runtime, faults))
}

/// Aborts every task once at each SIGUSR1, and the next one at each SIGUSR2, so that tests see each of them restarted.
async fn abort_on_signal(supervisor: &Supervisor) {
    let (Ok(mut all), Ok(mut next)) =
        (signal(SignalKind::user_defined1()), signal(SignalKind::user_defined2()))
    else {
        return;
    };
    let mut last = String::new();
    loop {
        tokio::select! {
            Some(()) = all.recv() => abort_all(supervisor).await,
            Some(()) = next.recv() => abort_next(supervisor, &mut last),
            else => return,
        }
    }
}

async fn abort_all(supervisor: &Supervisor) {
    // Some tasks end with others: first those that are part of another, then the others.
    let (parts, wholes): (Vec<Task>, Vec<Task>) =
        supervisor.tasks().into_iter().partition(|task| task.name.contains('/'));
    for tasks in [parts, wholes] {
        for task in tasks {
            supervisor.abort(&task.name);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Aborts the task after the last one, by name; after the last name comes the first.
fn abort_next(supervisor: &Supervisor, last: &mut String) {
    let names: Vec<String> = supervisor.tasks().into_iter().map(|task| task.name).collect();
    let at = names.partition_point(|name| *name <= *last);
    let in_turn = names[at..].iter().chain(&names[..at]);
    if let Some(name) = in_turn.into_iter().find(|name| supervisor.abort(name)) {
        last.clone_from(name);
    }
}
