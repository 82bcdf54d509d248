//! The last events, for the message of a violated invariant.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::observed_pods::{is_active, is_available, name, namespaced_name};
use super::observer::{ObservedEvent, ObservedObject};

/// The number of events in the log.
const CAPACITY: usize = 20_000;
/// The number of events in a message.
const MAX_LINES: usize = 60;

#[derive(Default)]
pub(super) struct EventLog(VecDeque<(Duration, ObservedEvent)>);

impl EventLog {
    pub(super) fn push(&mut self, event: &ObservedEvent, now: Duration) {
        if self.0.len() == CAPACITY {
            self.0.pop_front();
        }
        self.0.push_back((now, event.clone()));
    }

    /// The last events of the workload of the last event, one line each.
    pub(super) fn render(&self) -> String {
        let Some((_, last)) = self.0.back() else { return String::new() };
        let (namespace, workload) = namespaced_name(metadata(last));
        let workload: String = workload.split('-').take(2).collect::<Vec<_>>().join("-");
        let is_same = |event: &ObservedEvent| {
            let (other, name) = namespaced_name(metadata(event));
            other == namespace && (name == workload || name.starts_with(&format!("{workload}-")))
        };
        let same: Vec<_> = self.0.iter().filter(|(_, event)| is_same(event)).collect();
        let mut text = String::new();
        for (when, event) in &same[same.len().saturating_sub(MAX_LINES)..] {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{when:?} {} {}", event.revision, line(event));
        }
        text
    }
}

fn metadata(event: &ObservedEvent) -> &ObjectMeta {
    match &event.object {
        ObservedObject::Pod(object) => &object.metadata,
        ObservedObject::ReplicaSet(object) => &object.metadata,
        ObservedObject::Deployment(object) => &object.metadata,
        ObservedObject::StatefulSet(object) => &object.metadata,
        ObservedObject::DaemonSet(object) => &object.metadata,
        ObservedObject::Job(object) => &object.metadata,
        ObservedObject::CronJob(object) => &object.metadata,
        ObservedObject::Node(object) => &object.metadata,
    }
}

fn line(event: &ObservedEvent) -> String {
    let name = name(metadata(event));
    let terminating = if metadata(event).deletion_timestamp.is_some() { " terminating" } else { "" };
    let deleted = if event.deleted { " deleted" } else { "" };
    let what = match &event.object {
        ObservedObject::Pod(pod) => {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
            format!("pod {phase} active={} available={}", is_active(pod), is_available(pod))
        }
        ObservedObject::ReplicaSet(set) => {
            let status = set.status.clone().unwrap_or_default();
            let desired = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
            format!("set of {desired}, has {}, {:?} available", status.replicas, status.available_replicas)
        }
        ObservedObject::Deployment(deployment) => {
            let spec = deployment.spec.clone().unwrap_or_default();
            format!(
                "deployment of {:?}, generation {:?}, {:?}",
                spec.replicas,
                deployment.metadata.generation,
                spec.strategy.and_then(|strategy| strategy.rolling_update)
            )
        }
        ObservedObject::StatefulSet(set) => {
            let spec = set.spec.clone().unwrap_or_default();
            format!("stateful set of {:?}, {:?}, {:?}", spec.replicas, spec.update_strategy, set.status)
        }
        ObservedObject::DaemonSet(set) => format!("daemon set {:?}", set.status),
        ObservedObject::Job(job) => {
            let spec = job.spec.clone().unwrap_or_default();
            format!(
                "job of {:?}, {:?} at a time, suspended {:?}: {:?}",
                spec.completions, spec.parallelism, spec.suspend, job.status
            )
        }
        ObservedObject::CronJob(cron) => format!("cron job {:?}", cron.status),
        ObservedObject::Node(_) => "node".to_owned(),
    };
    format!("{name}{terminating}{deleted}: {what}")
}
