//! Stopping a container: its pre-stop hook, its stop signal, and SIGKILL after the grace period.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use plumb_controller_runtime::Backoff;
use plumb_runtime::types::ContainerId;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::state::{DEFAULT_GRACE_PERIOD, GracePeriod, to_duration};
use super::{Message, POD_WORKER, Worker};
use crate::events::Kind;
use crate::lifecycle::{ObservedContainer, StopReason, containers};
use crate::probe::Target;

/// The minimum grace period.
const SHORTEST_GRACE: Duration = Duration::from_secs(2);

/// The containers that are being stopped, and until when each may take.
pub(super) type Stopping = BTreeMap<ContainerId, watch::Sender<Deadline>>;

/// When a container is killed that does not exit by itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    grace: Duration,
    at: Instant,
}

impl Deadline {
    fn after(grace: Duration) -> Self {
        Self { grace, at: Instant::now() + grace }
    }

    /// The rest of the grace period.
    fn left(self) -> Duration {
        let left = self.at.saturating_duration_since(Instant::now());
        if self.grace.is_zero() { Duration::ZERO } else { left.max(SHORTEST_GRACE.min(self.grace)) }
    }
}

impl Worker {
    /// Stops a container, in a task of its own.
    pub(super) fn stop(&mut self, position: usize, why: StopReason) {
        let Some(observed) = self.observation.observed.containers.get(position).and_then(Option::as_ref)
        else {
            return;
        };
        if self.is_stopping(observed) {
            return;
        }
        let name = self.name_of(position).to_owned();
        self.node.events.container(&self.pod, &name, Kind::Normal, "Killing", killing_message(&name, why));
        let container = self.pod.spec.as_ref().and_then(|spec| containers(spec).nth(position)).cloned();
        let hook = container
            .as_ref()
            .and_then(|container| container.lifecycle.as_ref())
            .and_then(|lifecycle| lifecycle.pre_stop.clone())
            .filter(|_| observed.runs());
        let (shorten, deadline) = watch::channel(Deadline::after(self.grace(container.as_ref(), why)));
        let id = observed.id.clone();
        let stop = Stop {
            deadline,
            target: self.target(&container.unwrap_or_default(), observed.id.clone(), Duration::ZERO),
            hook,
        };
        self.stopping.insert(id, shorten);
        let (pod, events) = (self.pod.clone(), self.node.events.clone());
        let (sender, supervisor) = (self.sender.clone(), self.node.supervisor.clone());
        tokio::spawn(async move {
            let id = stop.target.id.clone();
            // After a panic too: if the container still runs it is stopped again.
            if let Ok(Some(error)) = supervisor.guard(POD_WORKER, stop.run()).await {
                tracing::warn!(container = name, error, "a pre-stop hook failed");
                // The kubelet's message: without the output of the hook, which may be secret.
                events.container(&pod, &name, Kind::Warning, "FailedPreStopHook", "PreStopHook failed");
            }
            // The worker may have ended.
            let _ = sender.send(Message::Stopped(id));
        });
    }

    /// Applies the grace period of a pod that terminates to the containers that are being stopped already, if it ends
    /// earlier: the pod was deleted again with a shorter one, or deleted while a container restarts.
    pub(super) fn shorten_stops(&self) {
        let new = Deadline::after(self.grace(None, StopReason::PodTerminates));
        for deadline in self.stopping.values() {
            deadline.send_if_modified(|deadline| {
                let is_shorter = new.at < deadline.at;
                *deadline = if is_shorter { new } else { *deadline };
                is_shorter
            });
        }
    }

    /// The grace period of a container. Without one its pre-stop hook is not run either.
    fn grace(&self, container: Option<&Container>, why: StopReason) -> Duration {
        if why == StopReason::RestartAll {
            // KEP-5532, "Termination Grace Periods": all containers are back soon, so nothing is cleaned up.
            return Duration::ZERO;
        }
        let of_pod = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let of_probe = container.and_then(|container| match why {
            StopReason::NotLive => container.liveness_probe.as_ref()?.termination_grace_period_seconds,
            StopReason::NotStarted => container.startup_probe.as_ref()?.termination_grace_period_seconds,
            StopReason::PodTerminates
            | StopReason::Changed
            | StopReason::HookFailed
            | StopReason::Resized
            | StopReason::RestartAll => None,
        });
        let shutdown = self.termination.as_ref().map_or(Duration::MAX, |termination| termination.grace);
        let grace = match self.deletion.grace_period() {
            // The grace period is that of the whole pod, so a container that is stopped later has less.
            Some(GracePeriod { since, length: grace }) => {
                let passed = (self.node.clock)().duration_since(since);
                let passed = Duration::try_from(passed).unwrap_or(Duration::ZERO);
                let left = grace.saturating_sub(passed);
                if grace.is_zero() { Duration::ZERO } else { left.max(SHORTEST_GRACE.min(grace)) }
            }
            None => to_duration(of_probe.or(of_pod).unwrap_or(DEFAULT_GRACE_PERIOD)),
        };
        grace.min(shutdown)
    }

    /// Whether a container is being stopped already.
    pub(super) fn is_stopping(&self, observed: &ObservedContainer) -> bool {
        self.stopping.contains_key(&observed.id)
    }
}

struct Stop {
    target: Target,
    deadline: watch::Receiver<Deadline>,
    hook: Option<LifecycleHandler>,
}

impl Stop {
    /// Stops the container, with retries; returns the error of its pre-stop hook.
    async fn run(mut self) -> Option<String> {
        let failed = match &self.hook {
            Some(hook) if !self.deadline.borrow().grace.is_zero() => tokio::select! {
                failed = crate::hook::run(&self.target, hook) => failed,
                () = passed(&mut self.deadline) => {
                    Some("the grace period was over before the hook was".to_owned())
                }
            },
            _ => None,
        };
        let mut backoff = Backoff::default();
        loop {
            let left = self.deadline.borrow_and_update().left();
            let stopped = tokio::select! {
                stopped = self.target.runtime.stop_container(&self.target.id, left) => stopped,
                () = shortened(&mut self.deadline) => continue,
            };
            let Err(error) = stopped else { return failed };
            tracing::warn!(container = %self.target.id, %error, "cannot stop a container, will retry");
            backoff.wait().await;
        }
    }
}

/// Ends when a deadline has passed, even if it is brought forward meanwhile.
async fn passed(deadline: &mut watch::Receiver<Deadline>) {
    loop {
        let at = deadline.borrow_and_update().at;
        tokio::select! {
            () = sleep_until(at) => return,
            () = shortened(deadline) => {}
        }
    }
}

/// Ends when a deadline is brought forward.
async fn shortened(deadline: &mut watch::Receiver<Deadline>) {
    if deadline.changed().await.is_err() {
        // The worker has ended; the last deadline stays.
        pending::<()>().await;
    }
}

/// The message of the event.
fn killing_message(name: &str, why: StopReason) -> String {
    match why {
        StopReason::PodTerminates => format!("Stopping container {name}"),
        StopReason::NotLive => format!("Container {name} failed liveness probe, will be restarted"),
        StopReason::NotStarted => format!("Container {name} failed startup probe, will be restarted"),
        StopReason::Changed => format!("Container {name} definition changed, will be restarted"),
        StopReason::HookFailed => "FailedPostStartHook".to_owned(),
        StopReason::Resized => format!("Container {name} resize requires restart"),
        StopReason::RestartAll => {
            format!("Container {name} will be restarted with all containers of the pod")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_events_have_the_kubelets_messages() {
        let table = [
            (StopReason::PodTerminates, "Stopping container c"),
            (StopReason::NotLive, "Container c failed liveness probe, will be restarted"),
            (StopReason::NotStarted, "Container c failed startup probe, will be restarted"),
            (StopReason::Changed, "Container c definition changed, will be restarted"),
            (StopReason::HookFailed, "FailedPostStartHook"),
            (StopReason::Resized, "Container c resize requires restart"),
            (StopReason::RestartAll, "Container c will be restarted with all containers of the pod"),
        ];
        for (why, expected) in table {
            assert_eq!(killing_message("c", why), expected);
        }
    }
}
