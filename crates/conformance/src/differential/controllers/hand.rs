//! The hand that plays scheduler and nodes: what it does next, given a portrait.
//!
//! What becomes of a pod its first image says: `play/<what>:<version>`.
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
//! What is to go goes.

use serde_json::{Value, json};

use super::portrait::Portrait;

/// Where pods go that may go anywhere.
pub(super) const NODE: &str = "play";
/// What pods of Jobs are counted by.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// What the hand does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// A pod gets a node and runs there.
    Start {
        /// Which; it has one already if `None`.
        node: Option<String>,
        /// Whether it is ready.
        ready: bool,
    },
    /// A pod's containers end.
    End {
        /// With which code.
        code: i64,
    },
    /// A pod that was to go is gone.
    LetGo,
}

/// What is to be done next, and with what.
pub(super) fn next(portrait: &Portrait) -> Option<(String, Move)> {
    let due = portrait.objects().iter().filter_map(|(key, object)| {
        let (kind, _) = key.split_once('/')?;
        let due = (kind == "pods").then(|| of_pod(object))??;
        Some((key.clone(), due))
    });
    // What goes goes first, and who waits for a node comes before who has one.
    due.min_by_key(|(key, due)| {
        let rank = match due {
            Move::LetGo => 0,
            Move::Start { .. } => 1,
            Move::End { .. } => 2,
        };
        (rank, key.clone())
    })
}

fn of_pod(pod: &Value) -> Option<Move> {
    let (metadata, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
    let phase = status["phase"].as_str().unwrap_or_default();
    let has_ended = matches!(phase, "Succeeded" | "Failed");
    let image = spec["containers"][0]["image"].as_str()?.strip_prefix("play/")?;
    let (what, version) = image.split_once(':').unwrap_or((image, ""));
    if !metadata["deletionTimestamp"].is_null() {
        if metadata["deletionGracePeriodSeconds"] == 0 || spec["nodeName"].is_null() {
            return None;
        }
        // Whoever may not be started again says how it ended before it goes.
        let says = spec["restartPolicy"] != "Always" && !has_ended;
        return Some(if says { Move::End { code: 137 } } else { Move::LetGo });
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
        return Some(Move::Start { node, ready: what != "never" });
    }
    code().map(|code| Move::End { code })
}

/// The node that a daemon's pod is for.
fn chosen(spec: &Value) -> Option<&str> {
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str()
}

/// What a node says of itself when it joins.
pub(super) fn node_status(now: &str) -> Value {
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "500"});
    let condition = json!({
        "type": "Ready", "status": "True", "reason": "Played", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    json!({"status": {"capacity": resources, "allocatable": resources, "conditions": [condition]}})
}

/// What a node says of a pod that runs.
pub(super) fn running(pod: &Value, ready: bool, now: &str) -> Value {
    let state = json!({"running": {"startedAt": now}});
    status(pod, "Running", ready, &state, now)
}

/// What a node says of a pod that ended.
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
