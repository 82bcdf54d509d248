//! Startup, liveness and readiness probes.
//!
//! ```text
//!   startup ──succeeds──▶ liveness, readiness (side by side)
//!      └─────gives up───▶ Failed
//! ```
//!
//! There is one task per container with probes, which ends when its handle is dropped. It sends changes of [`Health`],
//! and an event for every failure, with the kubelet's messages.

mod check;
mod counter;
mod grpc;
mod http;
mod target;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use parking_lot::Mutex;
use plumb_runtime::types::ContainerId;
use plumb_supervise::Supervisor;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

pub use check::Outcome;
pub use counter::Counter;
pub use target::Target;
pub(crate) use target::dialed;

use crate::lifecycle::{Health, Startup};

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Startup.
    Startup,
    /// Liveness.
    Liveness,
    /// Readiness.
    Readiness,
}

impl Kind {
    /// Its name in messages and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
        }
    }
}

/// A report of a container's probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// The container.
    pub id: ContainerId,
    /// The update.
    pub update: ProbeUpdate,
}

/// An update from a container's probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeUpdate {
    /// The new health.
    Health(Health),
    /// An event to emit.
    Event {
        /// The reason: `Unhealthy` or `ProbeWarning`.
        reason: &'static str,
        /// The kubelet's message.
        message: String,
    },
    /// The result of one probe, for metrics.
    Checked {
        /// The kind of the probe.
        kind: Kind,
        /// `successful`, `failed` or `unknown`.
        result: &'static str,
    },
}

/// The health of a container before the first probe.
pub fn initial_health(container: &Container) -> Health {
    Health {
        startup: if container.startup_probe.is_some() { Startup::UnderWay } else { Startup::Over },
        live: true,
        ready: container.readiness_probe.is_none(),
    }
}

/// The probes of a running container. They stop when this is dropped.
#[derive(Debug)]
pub struct Prober(AbortHandle);

impl Prober {
    /// Starts to probe a running container. `health` is its last known health: [`initial_health`], or what an agent before
    /// this one reported. `None` if the container has no probes.
    pub fn start<T>(
        target: Target,
        health: Health,
        report: UnboundedSender<T>,
        supervisor: &Supervisor,
    ) -> Option<Self>
    where
        T: From<ProbeReport> + Send + 'static,
    {
        let kinds = [Kind::Startup, Kind::Liveness, Kind::Readiness];
        kinds.iter().find_map(|kind| kind.of(&target.container))?;
        let began = Instant::now();
        // The health of the container outlives a restart of the agent.
        let probing =
            Arc::new(Probing { target: Arc::new(target), began, health: Mutex::new(health), report });
        let probing = supervisor.finish_one_of("probe", move || probing.clone().run());
        Some(Self(tokio::spawn(probing).abort_handle()))
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Probing<T> {
    target: Arc<Target>,
    began: Instant,
    health: Mutex<Health>,
    report: UnboundedSender<T>,
}

impl<T: From<ProbeReport>> Probing<T> {
    async fn run(self: Arc<Self>) {
        if let Some(probe) = &self.target.container.startup_probe
            && self.health().startup == Startup::UnderWay
        {
            let started = self.until(Kind::Startup, probe, |_| true).await;
            let startup = if started { Startup::Over } else { Startup::Failed };
            self.change(Health { startup, ..self.health() });
            if !started {
                // The container will be stopped: no further results are needed.
                return;
            }
        }
        let liveness = async {
            if let Some(probe) = &self.target.container.liveness_probe {
                let live = self.until(Kind::Liveness, probe, |live| !live).await;
                self.change(Health { live, ..self.health() });
            }
        };
        let readiness = async {
            if let Some(probe) = &self.target.container.readiness_probe {
                self.until(Kind::Readiness, probe, |ready| {
                    self.change(Health { ready, ..self.health() });
                    false
                })
                .await;
            }
        };
        tokio::join!(liveness, readiness);
    }

    fn health(&self) -> Health {
        *self.health.lock()
    }

    fn change(&self, health: Health) {
        if std::mem::replace(&mut *self.health.lock(), health) != health {
            self.send(ProbeUpdate::Health(health));
        }
    }

    fn send(&self, update: ProbeUpdate) {
        // Without a receiver, this is about to be dropped.
        let _ = self.report.send(ProbeReport { id: self.target.id.clone(), update }.into());
    }

    /// Probes until `is_last` accepts a verdict; returns it.
    async fn until(&self, kind: Kind, probe: &Probe, mut is_last: impl FnMut(bool) -> bool) -> bool {
        let seconds = |seconds: Option<i32>, least: u64| {
            Duration::from_secs(
                seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0).max(least),
            )
        };
        let usual = |given: Option<i32>, usual: i32| Some(given.filter(|given| *given > 0).unwrap_or(usual));
        let period = seconds(usual(probe.period_seconds, 10), 1);
        let timeout = seconds(usual(probe.timeout_seconds, 1), 1);
        let delay = seconds(probe.initial_delay_seconds, 0).saturating_sub(self.target.running_for);
        let mut counter = Counter::of(probe);
        let mut next = Instant::now().max(self.began + delay);
        loop {
            sleep_until(next).await;
            next += period;
            let outcome = self.target.check(probe, timeout).await;
            self.send(ProbeUpdate::Checked { kind, result: outcome.result() });
            if let Some((reason, message)) = outcome.event(kind) {
                self.send(ProbeUpdate::Event { reason, message });
            }
            if let Some(verdict) = outcome.counts().and_then(|well| counter.count(well))
                && is_last(verdict)
            {
                return verdict;
            }
            // A probe that took longer than its period is not caught up on.
            next = next.max(Instant::now());
        }
    }
}
