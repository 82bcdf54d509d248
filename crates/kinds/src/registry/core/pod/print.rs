//! Print columns of Pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;

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
.with_conditions(completed_condition);

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
        readiness_gates(pod),
    ])
}

fn readiness_gates(pod: View<'_>) -> String {
    let gates = pod.items("/spec/readinessGates");
    match gates.len() {
        0 => "<none>".to_owned(),
        all => format!("{}/{all}", gates.filter(|gate| pod.is_true(gate.text("/conditionType"))).count()),
    }
}

/// The row condition `Completed` of a pod that has succeeded or failed, by which clients can hide it.
fn completed_condition(pod: View<'_>) -> Option<Value> {
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
        match summary.add_init_containers(pod, &sidecars) {
            // The restarts of init containers do not count once the pod is initialized; those of sidecars do.
            Initialization::Initialized(restarts) => summary.add_containers(pod, restarts),
            Initialization::Initializing(restarts) if pod.is_true("Initialized") => {
                summary.add_containers(pod, restarts);
            }
            Initialization::Initializing(_) => {}
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
    fn add_init_containers(&mut self, pod: View<'_>, sidecars: &[&str]) -> Initialization {
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
            let waiting_reason = status.text("/state/waiting/reason");
            self.reason = match terminated {
                Some(end) => format!("Init:{}", termination_reason(end)),
                None if !matches!(waiting_reason, "" | "PodInitializing") => format!("Init:{waiting_reason}"),
                None => format!("Init:{i}/{}", pod.count("/spec/initContainers")),
            };
            return Initialization::Initializing(sidecar_restarts);
        }
        Initialization::Initialized(sidecar_restarts)
    }

    /// Summarizes the containers in reverse order, so that the status shows the reason of the first one.
    fn add_containers(&mut self, pod: View<'_>, sidecar_restarts: Restarts) {
        self.restarts = sidecar_restarts;
        let mut has_running = false;
        let mut failure = None;
        for status in pod.items("/status/containerStatuses").rev() {
            self.restarts.add(status);
            let waiting_reason = status.text("/state/waiting/reason");
            if !waiting_reason.is_empty() {
                waiting_reason.clone_into(&mut self.reason);
            } else if let Some(end) = status.at("/state/terminated") {
                self.reason = termination_reason(end);
                if end.number("/exitCode") != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if status.flag("/ready") && status.has("/state/running") {
                has_running = true;
                self.ready += 1;
            }
        }
        // `Completed` is not the status of a pod of which another container runs or has failed.
        if self.reason == "Completed" {
            match failure {
                _ if has_running && pod.is_true("Ready") => "Running".clone_into(&mut self.reason),
                Some(failure) => self.reason = failure,
                None if has_running => "NotReady".clone_into(&mut self.reason),
                None => {}
            }
        }
    }
}

/// The progress of the init containers, with the restarts of sidecars.
enum Initialization {
    Initializing(Restarts),
    Initialized(Restarts),
}

/// Why a container terminated.
fn termination_reason(end: View<'_>) -> String {
    match (end.text("/reason"), end.number("/signal")) {
        ("", 0) => format!("ExitCode:{}", end.number("/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
