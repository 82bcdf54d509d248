//! Asking a container to end: what it wants done before, its signal, and death when its time is over.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use plumb_controller::Backoff;

use super::{Message, POD_WORKER, Worker};
use crate::events::Kind;
use crate::lifecycle::{ContainerSeen, Stopping, containers};
use crate::probe::Target;

/// A container is given at least this long.
const SHORTEST_GRACE: Duration = Duration::from_secs(2);

impl Worker {
    /// Asks a container to end, beside everything else.
    pub(super) fn stop(&mut self, position: usize, why: Stopping) {
        let Some(seen) = self.looked.seen.containers.get(position).and_then(Option::as_ref) else { return };
        if !self.stopping.insert(seen.id.clone()) {
            return;
        }
        let name = self.name_of(position).to_owned();
        self.node.events.container(&self.pod, &name, Kind::Normal, "Killing", explain(&name, why));
        let container = self.pod.spec.as_ref().and_then(|spec| containers(spec).nth(position)).cloned();
        let hook = container
            .as_ref()
            .and_then(|container| container.lifecycle.as_ref())
            .and_then(|lifecycle| lifecycle.pre_stop.clone())
            .filter(|_| seen.runs());
        let stop = Stop {
            grace: self.grace(container.as_ref(), why),
            target: self.target(&container.unwrap_or_default(), seen.id.clone(), Duration::ZERO),
            hook,
        };
        let (pod, events) = (self.pod.clone(), self.node.events.clone());
        let (tell, supervisor) = (self.tell.clone(), self.node.supervisor.clone());
        tokio::spawn(async move {
            let id = stop.target.id.clone();
            // One that panicked has ended too: if the container still runs it is stopped again.
            if let Ok(Some(error)) = supervisor.guard(POD_WORKER, stop.run()).await {
                events.container(&pod, &name, Kind::Warning, "FailedPreStopHook", error);
            }
            // A worker that has ended need not know.
            let _ = tell.send(Message::Stopped(id));
        });
    }

    /// How long a container has to end.
    fn grace(&self, container: Option<&Container>, why: Stopping) -> Duration {
        let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let of_pod = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let of_probe = container.and_then(|container| match why {
            Stopping::NotLive => container.liveness_probe.as_ref()?.termination_grace_period_seconds,
            Stopping::NotStarted => container.startup_probe.as_ref()?.termination_grace_period_seconds,
            Stopping::PodEnds | Stopping::Changed | Stopping::HookFailed | Stopping::Resized => None,
        });
        match self.ends {
            // The whole pod has that long, so what is stopped later has less.
            Some((since, grace)) => {
                let passed = (self.node.clock)().duration_since(since);
                let passed = Duration::try_from(passed).unwrap_or(Duration::ZERO);
                let left = grace.saturating_sub(passed);
                if grace.is_zero() { Duration::ZERO } else { left.max(SHORTEST_GRACE.min(grace)) }
            }
            None => seconds(of_probe.or(of_pod).unwrap_or(30)),
        }
    }

    /// Whether a container is being ended already.
    pub(super) fn is_stopping(&self, seen: &ContainerSeen) -> bool {
        self.stopping.contains(&seen.id)
    }
}

struct Stop {
    target: Target,
    grace: Duration,
    hook: Option<LifecycleHandler>,
}

impl Stop {
    /// Ends the container, however often that takes; answers what went wrong with what it wanted done before.
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
            tracing::warn!(container = %self.target.id, %error, "a container did not end, will try again");
            backoff.wait().await;
        }
        failed
    }
}

/// The words of the event.
fn explain(name: &str, why: Stopping) -> String {
    match why {
        Stopping::PodEnds => format!("Stopping container {name}"),
        Stopping::NotLive => format!("Container {name} failed liveness probe, will be restarted"),
        Stopping::NotStarted => format!("Container {name} failed startup probe, will be restarted"),
        Stopping::Changed => format!("Container {name} definition changed, will be restarted"),
        Stopping::HookFailed => format!("FailedPostStartHook: container {name} will be restarted"),
        Stopping::Resized => format!("Container {name} resize requires restart"),
    }
}
