//! Print columns of Pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::table::PrintColumns;
use crate::table::column::{AGE, Column, NAME};
use crate::table::view::View;

/// The print columns of Pods.
pub(super) static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Ready", "how many of the pod's containers are ready"),
        Column::text("Status", "what the pod and its containers are doing, or why they are not"),
        Column::text("Restarts", "how often containers were restarted, and when one last was"),
        AGE,
        Column::text("IP", "the pod's first address").wide(),
        Column::text("Node", "the node that the pod is assigned to").wide(),
        Column::text("Nominated Node", "the node on which the scheduler preempts other pods for the pod")
            .wide(),
        Column::text("Readiness Gates", "how many of the pod's readiness gates are open").wide(),
    ],
    pod,
)
.with_conditions(finished);

fn pod(pod: View<'_>) -> Value {
    let summary = Summary::of(pod);
    let restarts = match (summary.restarts.count, summary.restarts.last) {
        (count @ 1.., Some(last)) => format!("{count} ({} ago)", pod.ago(Some(last))),
        (count, _) => count.to_string(),
    };
    let ip = pod.items("/status/podIPs").next().map_or("", |first| first.text("/ip"));
    let ip = if ip.is_empty() { pod.text_or("/status/podIP", "<none>") } else { ip };
    json!([
        pod.name(),
        format!("{}/{}", summary.ready, summary.containers),
        summary.reason,
        restarts,
        pod.age(),
        ip,
        pod.text_or("/spec/nodeName", "<none>"),
        pod.text_or("/status/nominatedNodeName", "<none>"),
        gates(pod),
    ])
}

fn gates(pod: View<'_>) -> String {
    let gates = pod.items("/spec/readinessGates");
    match gates.len() {
        0 => "<none>".to_owned(),
        all => format!("{}/{all}", gates.filter(|gate| pod.is_true(gate.text("/conditionType"))).count()),
    }
}

/// The row condition `Completed` of a pod that has succeeded or failed, by which clients can hide it.
fn finished(pod: View<'_>) -> Option<Value> {
    let phase = pod.text("/status/phase");
    let message = match phase {
        "Succeeded" => "the pod has succeeded",
        "Failed" => "the pod has failed",
        _ => return None,
    };
    Some(json!([{ "type": "Completed", "status": "True", "reason": phase, "message": message }]))
}

/// Restarts of containers.
#[derive(Clone, Copy, Debug, Default)]
struct Restarts {
    count: i64,
    /// When a restarted container last terminated.
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: View<'_>) {
        self.count = self.count.saturating_add(status.number("/restartCount"));
        self.last = self.last.max(status.time("/lastState/terminated/finishedAt"));
    }
}

/// The columns Ready, Status and Restarts.
#[derive(Debug)]
struct Summary {
    ready: usize,
    /// The number of containers and sidecars.
    containers: usize,
    reason: String,
    restarts: Restarts,
}

impl Summary {
    fn of(pod: View<'_>) -> Self {
        let sidecars: Vec<&str> = pod
            .items("/spec/initContainers")
            .filter(|container| container.text("/restartPolicy") == "Always")
            .map(|container| container.text("/name"))
            .collect();
        let gated = pod
            .items("/status/conditions")
            .any(|one| one.text("/type") == "PodScheduled" && one.text("/reason") == "SchedulingGated");
        let reason = pod.text_or("/status/reason", pod.text("/status/phase"));
        let mut summary = Self {
            ready: 0,
            containers: pod.count("/spec/containers") + sidecars.len(),
            reason: if gated { "SchedulingGated" } else { reason }.to_owned(),
            restarts: Restarts::default(),
        };
        match summary.initialize(pod, &sidecars) {
            // The restarts of init containers do not count once the pod is initialized; those of sidecars do.
            Initialization::Over(restarts) => summary.run(pod, restarts),
            Initialization::Underway(restarts) if pod.is_true("Initialized") => summary.run(pod, restarts),
            Initialization::Underway(_) => {}
        }
        if pod.is_deleting() {
            match (pod.text("/status/reason"), pod.text("/status/phase")) {
                ("NodeLost", _) => "Unknown".clone_into(&mut summary.reason),
                (_, "Succeeded" | "Failed") => {}
                _ => "Terminating".clone_into(&mut summary.reason),
            }
        }
        summary
    }

    /// Summarizes the init containers up to the first one that has not completed.
    fn initialize(&mut self, pod: View<'_>, sidecars: &[&str]) -> Initialization {
        let mut sidecar_restarts = Restarts::default();
        for (i, status) in pod.items("/status/initContainerStatuses").enumerate() {
            let is_sidecar = sidecars.contains(&status.text("/name"));
            self.restarts.add(status);
            if is_sidecar {
                sidecar_restarts.add(status);
            }
            let terminated = status.at("/state/terminated");
            if terminated.is_some_and(|end| end.number("/exitCode") == 0) {
                continue;
            }
            if is_sidecar && status.flag("/started") {
                self.ready += usize::from(status.flag("/ready"));
                continue;
            }
            let waits_for = status.text("/state/waiting/reason");
            self.reason = match terminated {
                Some(end) => format!("Init:{}", end_reason(end)),
                None if !matches!(waits_for, "" | "PodInitializing") => format!("Init:{waits_for}"),
                None => format!("Init:{i}/{}", pod.count("/spec/initContainers")),
            };
            return Initialization::Underway(sidecar_restarts);
        }
        Initialization::Over(sidecar_restarts)
    }

    /// Summarizes the containers in reverse order, so that the status shows the reason of the first one.
    fn run(&mut self, pod: View<'_>, sidecar_restarts: Restarts) {
        self.restarts = sidecar_restarts;
        let mut some_run = false;
        let mut failure = None;
        for status in pod.items("/status/containerStatuses").rev() {
            self.restarts.add(status);
            let waits_for = status.text("/state/waiting/reason");
            if !waits_for.is_empty() {
                waits_for.clone_into(&mut self.reason);
            } else if let Some(end) = status.at("/state/terminated") {
                self.reason = end_reason(end);
                if end.number("/exitCode") != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if status.flag("/ready") && status.has("/state/running") {
                some_run = true;
                self.ready += 1;
            }
        }
        // `Completed` is not the status of a pod of which another container runs or has failed.
        if self.reason == "Completed" {
            match failure {
                _ if some_run && pod.is_true("Ready") => "Running".clone_into(&mut self.reason),
                Some(failure) => self.reason = failure,
                None if some_run => "NotReady".clone_into(&mut self.reason),
                None => {}
            }
        }
    }
}

/// The progress of the init containers, with the restarts of sidecars.
enum Initialization {
    Underway(Restarts),
    Over(Restarts),
}

/// Why a container terminated.
fn end_reason(end: View<'_>) -> String {
    match (end.text("/reason"), end.number("/signal")) {
        ("", 0) => format!("ExitCode:{}", end.number("/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
