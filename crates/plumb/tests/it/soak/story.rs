//! What led to something: the last events, one line each.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::ledger::{is_active, name, place, serves};
use super::witness::{Happening, Seen};

/// How many events are remembered.
const REMEMBERED: usize = 20_000;
/// How many of them are told.
const TOLD: usize = 60;

#[derive(Default)]
pub(super) struct Story(VecDeque<(Duration, Happening)>);

impl Story {
    pub(super) fn take(&mut self, happening: &Happening, now: Duration) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((now, happening.clone()));
    }

    /// The last events about those who have the same workload as the last one.
    pub(super) fn tell(&self) -> String {
        let Some((_, last)) = self.0.back() else { return String::new() };
        let (namespace, about) = place(metadata(last));
        let about: String = about.split('-').take(2).collect::<Vec<_>>().join("-");
        let is_same = |happening: &Happening| {
            let (other, name) = place(metadata(happening));
            other == namespace && (name == about || name.starts_with(&format!("{about}-")))
        };
        let same: Vec<_> = self.0.iter().filter(|(_, happening)| is_same(happening)).collect();
        let mut text = String::new();
        for (when, happening) in &same[same.len().saturating_sub(TOLD)..] {
            // Text takes whatever is written.
            let _ = writeln!(text, "{when:?} {} {}", happening.revision, line(happening));
        }
        text
    }
}

fn metadata(happening: &Happening) -> &ObjectMeta {
    match &happening.object {
        Seen::Pod(object) => &object.metadata,
        Seen::ReplicaSet(object) => &object.metadata,
        Seen::Deployment(object) => &object.metadata,
        Seen::StatefulSet(object) => &object.metadata,
        Seen::DaemonSet(object) => &object.metadata,
        Seen::Job(object) => &object.metadata,
        Seen::CronJob(object) => &object.metadata,
        Seen::Node(object) => &object.metadata,
    }
}

fn line(happening: &Happening) -> String {
    let name = name(metadata(happening));
    let going = if metadata(happening).deletion_timestamp.is_some() { " going" } else { "" };
    let gone = if happening.gone { " gone" } else { "" };
    let what = match &happening.object {
        Seen::Pod(pod) => {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
            format!("pod {phase} active={} serves={}", is_active(pod), serves(pod))
        }
        Seen::ReplicaSet(set) => {
            let status = set.status.clone().unwrap_or_default();
            let asked = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
            format!("set of {asked}, has {}, {:?} available", status.replicas, status.available_replicas)
        }
        Seen::Deployment(deployment) => {
            let spec = deployment.spec.clone().unwrap_or_default();
            format!(
                "deployment of {:?}, generation {:?}, {:?}",
                spec.replicas,
                deployment.metadata.generation,
                spec.strategy.and_then(|strategy| strategy.rolling_update)
            )
        }
        Seen::StatefulSet(set) => {
            let spec = set.spec.clone().unwrap_or_default();
            format!("stateful set of {:?}, {:?}, {:?}", spec.replicas, spec.update_strategy, set.status)
        }
        Seen::DaemonSet(set) => format!("daemon set {:?}", set.status),
        Seen::Job(job) => {
            let spec = job.spec.clone().unwrap_or_default();
            format!(
                "job of {:?}, {:?} at a time, suspended {:?}: {:?}",
                spec.completions, spec.parallelism, spec.suspend, job.status
            )
        }
        Seen::CronJob(cron) => format!("cron job {:?}", cron.status),
        Seen::Node(_) => "node".to_owned(),
    };
    format!("{name}{going}{gone}: {what}")
}
