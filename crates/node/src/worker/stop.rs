//! Stopping a container: its pre-stop hook, its stop signal, and SIGKILL after the grace period.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use plumb_controller::Backoff;

use super::{Message, POD_WORKER, Worker};
use crate::events::Kind;
use crate::lifecycle::{ObservedContainer, StopReason, containers};
use crate::probe::Target;

/// The minimum grace period.
const SHORTEST_GRACE: Duration = Duration::from_secs(2);

impl Worker {
    /// Stops a container, in a task of its own.
    pub(super) fn stop(&mut self, position: usize, why: StopReason) {
        let Some(observed) = self.observation.observed.containers.get(position).and_then(Option::as_ref)
        else {
            return;
        };
        if !self.stopping.insert(observed.id.clone()) {
            return;
        }
        let name = self.name_of(position).to_owned();
        self.node.events.container(&self.pod, &name, Kind::Normal, "Killing", explain(&name, why));
        let container = self.pod.spec.as_ref().and_then(|spec| containers(spec).nth(position)).cloned();
        let hook = container
            .as_ref()
            .and_then(|container| container.lifecycle.as_ref())
            .and_then(|lifecycle| lifecycle.pre_stop.clone())
            .filter(|_| observed.runs());
        let stop = Stop {
            grace: self.grace(container.as_ref(), why),
            target: self.target(&container.unwrap_or_default(), observed.id.clone(), Duration::ZERO),
            hook,
        };
        let (pod, events) = (self.pod.clone(), self.node.events.clone());
        let (sender, supervisor) = (self.sender.clone(), self.node.supervisor.clone());
        tokio::spawn(async move {
            let id = stop.target.id.clone();
            // After a panic too: if the container still runs it is stopped again.
            if let Ok(Some(error)) = supervisor.guard(POD_WORKER, stop.run()).await {
                events.container(&pod, &name, Kind::Warning, "FailedPreStopHook", error);
            }
            // The worker may have ended.
            let _ = sender.send(Message::Stopped(id));
        });
    }

    /// The grace period of a container.
    fn grace(&self, container: Option<&Container>, why: StopReason) -> Duration {
        let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let of_pod = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let of_probe = container.and_then(|container| match why {
            StopReason::NotLive => container.liveness_probe.as_ref()?.termination_grace_period_seconds,
            StopReason::NotStarted => container.startup_probe.as_ref()?.termination_grace_period_seconds,
            StopReason::PodTerminates
            | StopReason::Changed
            | StopReason::HookFailed
            | StopReason::Resized => None,
        });
        match self.ends {
            // The grace period is that of the whole pod, so a container that is stopped later has less.
            Some((since, grace)) => {
                let passed = (self.node.clock)().duration_since(since);
                let passed = Duration::try_from(passed).unwrap_or(Duration::ZERO);
                let left = grace.saturating_sub(passed);
                if grace.is_zero() { Duration::ZERO } else { left.max(SHORTEST_GRACE.min(grace)) }
            }
            None => seconds(of_probe.or(of_pod).unwrap_or(30)),
        }
    }

    /// Whether a container is being stopped already.
    pub(super) fn is_stopping(&self, observed: &ObservedContainer) -> bool {
        self.stopping.contains(&observed.id)
    }
}

struct Stop {
    target: Target,
    grace: Duration,
    hook: Option<LifecycleHandler>,
}

impl Stop {
    /// Stops the container, with retries; returns the error of its pre-stop hook.
    async fn run(self) -> Option<String> {
        let begun = tokio::time::Instant::now();
        let failed = match &self.hook {
            Some(hook) if !self.grace.is_zero() => {
                let run = crate::hook::run(&self.target, hook);
                tokio::time::timeout(self.grace, run)
                    .await
                    .unwrap_or_else(|_| Some("the grace period was over before the hook was".to_owned()))
            }
            _ => None,
        };
        let left = self.grace.saturating_sub(begun.elapsed());
        let left = if self.grace.is_zero() { left } else { left.max(SHORTEST_GRACE.min(self.grace)) };
        let mut backoff = Backoff::default();
        while let Err(error) = self.target.runtime.stop_container(&self.target.id, left).await {
            tracing::warn!(container = %self.target.id, %error, "cannot stop a container, will retry");
            backoff.wait().await;
        }
        failed
    }
}

/// The message of the event.
fn explain(name: &str, why: StopReason) -> String {
    match why {
        StopReason::PodTerminates => format!("Stopping container {name}"),
        StopReason::NotLive => format!("Container {name} failed liveness probe, will be restarted"),
        StopReason::NotStarted => format!("Container {name} failed startup probe, will be restarted"),
        StopReason::Changed => format!("Container {name} definition changed, will be restarted"),
        StopReason::HookFailed => format!("FailedPostStartHook: container {name} will be restarted"),
        StopReason::Resized => format!("Container {name} resize requires restart"),
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
            (StopReason::HookFailed, "FailedPostStartHook: container c will be restarted"),
            (StopReason::Resized, "Container c resize requires restart"),
        ];
        for (why, expected) in table {
            assert_eq!(explain("c", why), expected);
        }
    }
}
