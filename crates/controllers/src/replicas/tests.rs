use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::workload::{Failure, Object};

const NOW: &str = "2026-01-01T00:10:00Z";

fn context(failure: Option<Verb>) -> Context {
    let failure = failure.map(|verb| Failure { verb, message: "no".to_owned() });
    Context { now: NOW.parse().unwrap(), failure }
}

fn set(replicas: i32, more: Value) -> Arc<ReplicaSet> {
    let mut set = json!({
        "metadata": { "name": "web", "namespace": "n", "uid": "u", "generation": 3 },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web", "hash": "1" } }, "spec": { "containers": [] } },
        },
    });
    for (key, value) in more.as_object().unwrap() {
        for (inner, value) in value.as_object().unwrap() {
            set[key][inner] = value.clone();
        }
    }
    Arc::new(serde_json::from_value(set).unwrap())
}

/// A pod: `r` ready since ten minutes, `n` ready just now, `p` pending, `f` failed, `d` terminating.
fn pod(kind: char, number: usize) -> Arc<Pod> {
    let ready = |at: &str| json!([{ "type": "Ready", "status": "True", "lastTransitionTime": at }]);
    let status = match kind {
        'r' => json!({ "phase": "Running", "conditions": ready("2026-01-01T00:00:00Z") }),
        'n' => json!({ "phase": "Running", "conditions": ready(NOW) }),
        'f' => json!({ "phase": "Failed" }),
        _ => json!({ "phase": "Pending" }),
    };
    let name = format!("{kind}{number}");
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "n", "uid": name, "labels": { "app": "web" } },
        "spec": { "nodeName": "node", "containers": [] },
        "status": status,
    });
    if kind == 'd' {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn decided(set: Arc<ReplicaSet>, kinds: &str, failure: Option<Verb>) -> Decided {
    let pods: Vec<Arc<Pod>> = kinds.chars().enumerate().map(|(number, kind)| pod(kind, number)).collect();
    let owner = controller_reference(&*set);
    decide(&State { set, related: pods.clone(), pods }, &owner, &context(failure))
}

fn describe(decided: &Decided) -> String {
    let each = decided.actions.iter().map(|action| match action {
        Action::Create(_) => "+".to_owned(),
        Action::Delete(of, None) => format!("-{}", of.name),
        other => format!("{other:?}"),
    });
    each.collect::<Vec<_>>().join(" ")
}

#[test]
fn pods_are_created_and_deleted_up_to_the_replicas() {
    let table = [
        (0, "", ""),
        (2, "", "+ +"),
        (2, "rr", ""),
        // Finished and terminating pods are replaced.
        (2, "rfd", "+"),
        // Pods that are not ready are deleted first.
        (1, "rpn", "-p1 -n2"),
        (0, "rd", "-r0"),
    ];
    for (replicas, pods, wanted) in table {
        assert_eq!(describe(&decided(set(replicas, json!({})), pods, None)), wanted, "{replicas} of {pods}");
    }
    assert_eq!(decided(set(1000, json!({})), "", None).actions.len(), AT_A_TIME);
    let terminating = json!({ "metadata": { "deletionTimestamp": NOW } });
    assert_eq!(describe(&decided(set(2, terminating), "r", None)), "");
}

#[test]
fn a_pod_is_created_from_the_template() {
    let decided = decided(set(1, json!({})), "", None);
    let [Action::Create(Object::Pod(pod))] = &decided.actions[..] else { panic!("{decided:?}") };
    assert_eq!(
        json!(pod.metadata),
        json!({
            "generateName": "web-", "namespace": "n", "labels": { "app": "web", "hash": "1" },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
                "controller": true, "blockOwnerDeletion": true,
            }],
        })
    );
}

#[test]
fn the_status_counts_what_is_there_and_is_written_when_it_changes() {
    let decided_first = decided(set(4, json!({ "spec": { "minReadySeconds": 60 } })), "rnpfd", None);
    let status = decided_first.status.clone().unwrap();
    assert_eq!(
        json!(status),
        json!({
            "replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "terminatingReplicas": 1,
            "observedGeneration": 3,
        })
    );
    // The pod that is ready is available in a minute.
    let minute = NOW.parse::<Timestamp>().unwrap() + SignedDuration::from_mins(1);
    assert_eq!(decided_first.again_at, Some(minute));
    let same = set(4, json!({ "spec": { "minReadySeconds": 60 }, "status": json!(status) }));
    assert_eq!(decided(same, "rnpfd", None).status, None);
}

#[test]
fn a_failure_is_a_condition_until_it_succeeds() {
    let failed = decided(set(1, json!({})), "", Some(Verb::Create)).status.unwrap();
    let condition = json!({
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "no",
        "lastTransitionTime": NOW,
    });
    assert_eq!(json!(failed.conditions), json!([condition]));
    let with_condition = set(1, json!({ "status": json!(failed) }));
    assert_eq!(decided(with_condition.clone(), "", Some(Verb::Create)).status, None);
    assert_eq!(decided(with_condition, "", None).status.unwrap().conditions, None);
}
