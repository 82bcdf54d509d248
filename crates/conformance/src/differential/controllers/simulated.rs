//! The simulated scheduler and nodes: their next action, given a normalized namespace.
//!
//! The first image of a pod decides its lifecycle: `play/<what>:<version>`.
//!
//! | image | |
//! |---|---|
//! | `ready` | runs and is ready |
//! | `never` | runs and is not ready |
//! | `unbound` | no node is found for it |
//! | `done` | runs, and ends well |
//! | `fails` | runs, and ends with the version as its exit code |
//! | `fails-at-<n>` | the same where that is its index; the others end well |
//!
//! Terminating pods are deleted.

use serde_json::{Value, json};

use super::normalized::NormalizedNamespace;

/// The node of pods that may run anywhere.
pub(super) const NODE: &str = "play";
/// The annotation with the completion index of pods of Jobs.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// An action of the simulated scheduler or nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeAction {
    /// Bind a pod and start it.
    Start {
        /// The node; the pod is bound already if `None`.
        node: Option<String>,
        /// Whether it is ready.
        ready: bool,
    },
    /// Terminate a pod's containers.
    End {
        /// The exit code.
        code: i64,
    },
    /// Delete a terminating pod.
    Delete,
}

/// The next action, and its object.
pub(super) fn next(normalized: &NormalizedNamespace) -> Option<(String, NodeAction)> {
    let due = normalized.objects().iter().filter_map(|(key, object)| {
        let (kind, _) = key.split_once('/')?;
        let due = (kind == "pods").then(|| of_pod(object))??;
        Some((key.clone(), due))
    });
    // Terminating pods come first, and unbound pods precede bound ones.
    due.min_by_key(|(key, due)| {
        let rank = match due {
            NodeAction::Delete => 0,
            NodeAction::Start { .. } => 1,
            NodeAction::End { .. } => 2,
        };
        (rank, key.clone())
    })
}

fn of_pod(pod: &Value) -> Option<NodeAction> {
    let (metadata, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
    let phase = status["phase"].as_str().unwrap_or_default();
    let has_ended = matches!(phase, "Succeeded" | "Failed");
    let image = spec["containers"][0]["image"].as_str()?.strip_prefix("play/")?;
    let (what, version) = image.split_once(':').unwrap_or((image, ""));
    if !metadata["deletionTimestamp"].is_null() {
        if metadata["deletionGracePeriodSeconds"] == 0 || spec["nodeName"].is_null() {
            return None;
        }
        // A pod that is not restarted reports how it ended before it is deleted.
        let says = spec["restartPolicy"] != "Always" && !has_ended;
        return Some(if says { NodeAction::End { code: 137 } } else { NodeAction::Delete });
    }
    if has_ended || what == "unbound" {
        return None;
    }
    let code = || match what.strip_prefix("fails") {
        Some("") => version.parse().ok(),
        Some(at) => {
            let is_it = pod["metadata"]["annotations"][INDEX].as_str() == at.strip_prefix("-at-");
            if is_it { version.parse().ok() } else { Some(0) }
        }
        None => (what == "done").then_some(0),
    };
    if phase != "Running" {
        let node = spec["nodeName"].is_null().then(|| chosen(spec).unwrap_or(NODE).to_owned());
        return Some(NodeAction::Start { node, ready: what != "never" });
    }
    code().map(|code| NodeAction::End { code })
}

/// The node of a daemon pod.
fn chosen(spec: &Value) -> Option<&str> {
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str()
}

/// The status of a node that joins.
pub(super) fn node_status(now: &str) -> Value {
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "500"});
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "ScenarioResult", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    json!({"status": {"capacity": resources, "allocatable": resources, "conditions": [condition]}})
}

/// The status of a running pod.
pub(super) fn running(pod: &Value, ready: bool, ip: Option<&str>, now: &str) -> Value {
    let state = json!({"running": {"startedAt": now}});
    let mut running = status(pod, "Running", ready, &state, now);
    if let Some(ip) = ip {
        running["status"]["podIP"] = json!(ip);
        running["status"]["podIPs"] = json!([{"ip": ip}]);
    }
    running
}

/// The status of a pod that has terminated.
pub(super) fn ended(pod: &Value, code: i64, now: &str) -> Value {
    let state = json!({"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}});
    status(pod, if code == 0 { "Succeeded" } else { "Failed" }, false, &state, now)
}

fn status(pod: &Value, phase: &str, ready: bool, state: &Value, now: &str) -> Value {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let containers: Vec<Value> = containers
        .map(|container| {
            json!({
                "name": container["name"], "image": container["image"], "imageID": "", "ready": ready,
                "restartCount": 0, "started": ready, "state": state,
            })
        })
        .collect();
    let yes = |kind: &str, yes: bool| json!({"type": kind, "status": if yes { "True" } else { "False" }, "lastTransitionTime": now});
    let conditions = json!([yes("Initialized", true), yes("ContainersReady", ready), yes("Ready", ready)]);
    json!({"status": {
        "phase": phase, "startTime": now, "conditions": conditions, "containerStatuses": containers,
    }})
}
