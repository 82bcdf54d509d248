//! Print columns of pods: Ready, Status and Restarts.

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use super::{Case, PODS, case, shows, table};
use crate::it::test_api_server::TestApiServer;

const COLUMNS: &str =
    "Name | Ready | Status | Restarts | Age | (IP) | (Node) | (Nominated Node) | (Readiness Gates)";

/// A pod of containers, some of which run before the others.
fn pod(name: &str, init: &[&str], containers: &[&str]) -> Value {
    let container = |name: &&str| match name.strip_prefix("sidecar") {
        Some(_) => json!({ "name": name, "image": "a", "restartPolicy": "Always" }),
        None => json!({ "name": name, "image": "a" }),
    };
    let all = |names: &[&str]| names.iter().map(container).collect::<Vec<_>>();
    json!({
        "metadata": { "name": name }, "spec": { "initContainers": all(init), "containers": all(containers) },
    })
}

fn in_state(name: &str, ready: bool, state: Value) -> Value {
    json!({
        "name": name, "image": "a", "imageID": "", "ready": ready, "started": ready, "restartCount": 0,
        "state": state,
    })
}

fn running(name: &str) -> Value {
    in_state(name, true, json!({ "running": { "startedAt": "2026-01-02T03:00:00Z" } }))
}

fn waiting(name: &str, reason: &str) -> Value {
    in_state(name, false, json!({ "waiting": { "reason": reason } }))
}

fn ended(name: &str, code: i32, reason: &str) -> Value {
    in_state(name, false, json!({ "terminated": { "exitCode": code, "reason": reason } }))
}

fn killed(name: &str, signal: i32) -> Value {
    in_state(name, false, json!({ "terminated": { "exitCode": 137, "signal": signal } }))
}

/// The same container, restarted, having ended at a time.
fn restarted(mut status: Value, count: i32, at: &str) -> Value {
    status["restartCount"] = json!(count);
    status["lastState"] = json!({ "terminated": { "exitCode": 1, "finishedAt": at } });
    status
}

/// A pod whose row shows this of Ready, Status and Restarts.
fn doing(pod: Value, status: Value, shown: [&str; 3]) -> Case {
    let [ready, reason, restarts] = shown;
    let name = pod["metadata"]["name"].clone();
    let cells = json!([name, ready, reason, restarts, "0s", "<none>", "<none>", "<none>", "<none>"]);
    case(PODS, pod, cells).status(status)
}

#[tokio::test]
async fn a_pod_prints_the_state_of_its_containers() {
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    let cases = [
        doing(pod("new", &[], &["a"]), json!({ "phase": "Pending" }), ["0/1", "Pending", "0"]),
        doing(
            pod("runs", &[], &["a", "b"]),
            json!({ "phase": "Running", "containerStatuses": [running("a"), running("b")] }),
            ["2/2", "Running", "0"],
        ),
        doing(
            pod("not-ready", &[], &["a"]),
            json!({ "phase": "Running", "containerStatuses": [
                in_state("a", false, json!({ "running": {} })),
            ]}),
            ["0/1", "Running", "0"],
        ),
        doing(
            pod("creating", &[], &["a"]),
            json!({ "phase": "Pending", "containerStatuses": [waiting("a", "ContainerCreating")] }),
            ["0/1", "ContainerCreating", "0"],
        ),
        doing(
            pod("crashes", &[], &["a", "b"]),
            json!({ "phase": "Running", "containerStatuses": [
                restarted(waiting("a", "CrashLoopBackOff"), 3, "2026-01-02T02:59:05Z"),
                restarted(running("b"), 2, "2026-01-02T02:00:05Z"),
            ]}),
            ["1/2", "CrashLoopBackOff", "5 (5m ago)"],
        ),
        doing(
            pod("first-trouble", &[], &["a", "b"]),
            json!({ "phase": "Pending", "containerStatuses": [
                waiting("a", "ErrImagePull"), waiting("b", "ContainerCreating"),
            ]}),
            ["0/2", "ErrImagePull", "0"],
        ),
        doing(
            pod("completed", &[], &["a"]),
            json!({ "phase": "Succeeded", "containerStatuses": [ended("a", 0, "Completed")] }),
            ["0/1", "Completed", "0"],
        ),
        doing(
            pod("one-completed", &[], &["a", "b"]),
            json!({ "phase": "Running", "conditions": ready, "containerStatuses": [
                ended("a", 0, "Completed"), running("b"),
            ]}),
            ["1/2", "Running", "0"],
        ),
        doing(
            pod("one-completed-not-ready", &[], &["a", "b"]),
            json!({ "phase": "Running", "containerStatuses": [ended("a", 0, "Completed"), running("b")] }),
            ["1/2", "NotReady", "0"],
        ),
        doing(
            pod("one-failed", &[], &["a", "b"]),
            json!({ "phase": "Failed", "containerStatuses": [
                ended("a", 0, "Completed"), ended("b", 137, "OOMKilled"),
            ]}),
            ["0/2", "OOMKilled", "0"],
        ),
        doing(
            pod("exit-code", &[], &["a"]),
            json!({ "phase": "Failed", "containerStatuses": [ended("a", 3, "")] }),
            ["0/1", "ExitCode:3", "0"],
        ),
        doing(
            pod("signal", &[], &["a"]),
            json!({ "phase": "Failed", "containerStatuses": [killed("a", 9)] }),
            ["0/1", "Signal:9", "0"],
        ),
        doing(
            pod("evicted", &[], &["a"]),
            json!({ "phase": "Failed", "reason": "Evicted" }),
            ["0/1", "Evicted", "0"],
        ),
        doing(
            pod("gated", &[], &["a"]),
            json!({ "phase": "Pending", "conditions": [
                { "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" },
            ]}),
            ["0/1", "SchedulingGated", "0"],
        ),
        doing(
            pod("restarted-unknown-when", &[], &["a"]),
            json!({ "phase": "Running", "containerStatuses": [
                { "name": "a", "image": "a", "imageID": "", "ready": true, "restartCount": 2, "state": { "running": {} } },
            ]}),
            ["1/1", "Running", "2"],
        ),
    ];
    shows(&[("/pods", COLUMNS)], &cases).await;
}

#[tokio::test]
async fn a_pod_prints_the_progress_of_its_init_containers() {
    let initialized = json!([{ "type": "Initialized", "status": "True" }]);
    let cases = [
        doing(
            pod("begins", &["i", "j"], &["a"]),
            json!({ "phase": "Pending", "initContainerStatuses": [
                waiting("i", "PodInitializing"), waiting("j", "PodInitializing"),
            ]}),
            ["0/1", "Init:0/2", "0"],
        ),
        doing(
            pod("second", &["i", "j"], &["a"]),
            json!({ "phase": "Pending", "initContainerStatuses": [
                ended("i", 0, "Completed"), in_state("j", false, json!({ "running": {} })),
            ]}),
            ["0/1", "Init:1/2", "0"],
        ),
        doing(
            pod("init-waits", &["i"], &["a"]),
            json!({ "phase": "Pending", "initContainerStatuses": [
                restarted(waiting("i", "CrashLoopBackOff"), 4, "2026-01-02T03:03:05Z"),
            ]}),
            ["0/1", "Init:CrashLoopBackOff", "4 (60s ago)"],
        ),
        doing(
            pod("init-failed", &["i"], &["a"]),
            json!({ "phase": "Pending", "initContainerStatuses": [ended("i", 1, "Error")] }),
            ["0/1", "Init:Error", "0"],
        ),
        doing(
            pod("init-exit-code", &["i"], &["a"]),
            json!({ "phase": "Pending", "initContainerStatuses": [ended("i", 2, "")] }),
            ["0/1", "Init:ExitCode:2", "0"],
        ),
        doing(
            pod("init-signal", &["i"], &["a"]),
            json!({ "phase": "Pending", "initContainerStatuses": [killed("i", 15)] }),
            ["0/1", "Init:Signal:15", "0"],
        ),
        doing(
            pod("init-done", &["i"], &["a"]),
            json!({
                "phase": "Running", "containerStatuses": [running("a")], "initContainerStatuses": [
                    restarted(ended("i", 0, "Completed"), 4, "2026-01-02T03:03:05Z"),
                ],
            }),
            ["1/1", "Running", "0"],
        ),
        doing(
            pod("init-again", &["i"], &["a"]),
            json!({
                "phase": "Running", "conditions": initialized, "containerStatuses": [running("a")],
                "initContainerStatuses": [in_state("i", false, json!({ "running": {} }))],
            }),
            ["1/1", "Init:0/1", "0"],
        ),
        doing(
            pod("with-sidecar", &["sidecar", "i"], &["a"]),
            json!({
                "phase": "Running", "containerStatuses": [running("a")], "initContainerStatuses": [
                    restarted(running("sidecar"), 1, "2026-01-02T00:04:05Z"), ended("i", 0, "Completed"),
                ],
            }),
            ["2/2", "Running", "1 (3h ago)"],
        ),
        doing(
            pod("sidecar-starts", &["sidecar"], &["a"]),
            json!({ "phase": "Pending", "initContainerStatuses": [
                in_state("sidecar", false, json!({ "running": {} })),
            ]}),
            ["0/2", "Init:0/1", "0"],
        ),
    ];
    shows(&[("/pods", COLUMNS)], &cases).await;
}

#[tokio::test]
async fn a_terminating_pod_prints_terminating_unless_it_has_finished() {
    let cases = [
        doing(
            pod("goes", &[], &["a"]),
            json!({ "phase": "Running", "containerStatuses": [running("a")] }),
            ["1/1", "Terminating", "0"],
        )
        .deleted(),
        doing(
            pod("lost", &[], &["a"]),
            json!({ "phase": "Running", "reason": "NodeLost" }),
            ["0/1", "Unknown", "0"],
        )
        .deleted(),
        doing(
            pod("done", &[], &["a"]),
            json!({ "phase": "Succeeded", "containerStatuses": [ended("a", 0, "Completed")] }),
            ["0/1", "Completed", "0"],
        )
        .deleted(),
    ];
    shows(&[("/pods", COLUMNS)], &cases).await;
}

#[tokio::test]
async fn a_wide_row_has_the_node_and_the_nominated_node_of_a_pod() {
    let mut placed = pod("placed", &[], &["a"]);
    placed["spec"]["nodeName"] = json!("n1");
    placed["spec"]["readinessGates"] = json!([{ "conditionType": "x.io/a" }, { "conditionType": "x.io/b" }]);
    let status = json!({
        "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }, { "ip": "fd00::1" }],
        "conditions": [{ "type": "x.io/a", "status": "True" }, { "type": "x.io/b", "status": "False" }],
    });
    let cells = |rest: [&str; 7]| {
        let [name, phase, restarts, ip, node, nominated, gates] = rest;
        json!([name, "0/1", phase, restarts, "0s", ip, node, nominated, gates])
    };
    let cases = [
        case(PODS, placed, cells(["placed", "Running", "0", "10.0.0.1", "n1", "<none>", "1/2"]))
            .status(status),
        case(
            PODS,
            pod("awaited", &[], &["a"]),
            cells(["awaited", "Pending", "0", "<none>", "<none>", "n2", "<none>"]),
        )
        .status(json!({ "phase": "Pending", "nominatedNodeName": "n2" })),
    ];
    shows(&[("/pods", COLUMNS)], &cases).await;
}

#[tokio::test]
async fn the_row_of_a_finished_pod_has_the_condition_completed() {
    let apiserver = TestApiServer::open(Rules::v1_36());
    for (phase, reason) in [("Succeeded", Some("Succeeded")), ("Failed", Some("Failed")), ("Running", None)] {
        let name = phase.to_lowercase();
        let case = case(PODS, pod(&name, &[], &["a"]), Value::Null).status(json!({ "phase": phase }));
        let path = case.prepare(&apiserver).await;
        let row = table(&apiserver, &path).await["rows"][0].take();
        assert_eq!(row["conditions"][0]["reason"].as_str(), reason, "{phase}");
        assert_eq!(row.get("conditions").is_some(), reason.is_some());
    }
}
