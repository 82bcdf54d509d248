//! OOM kills from pods and events: upstream's table, and what it misses.

use k8s_openapi::api::core::v1::{Event, Pod};
use plumb_recommender::input::oom::{OomKill, kills_of_event, kills_of_pod};
use plumb_recommender::metrics::ResourcesSource;
use serde_json::{Value, json};

/// A pod whose container has a memory request of 1024 bytes, and this status.
fn pod(status: &Value) -> Pod {
    let mut status = status.clone();
    status["name"] = json!("c");
    for field in ["image", "imageID"] {
        status[field] = json!("");
    }
    status["ready"] = json!(true);
    if status["restartCount"].is_null() {
        status["restartCount"] = json!(0);
    }
    serde_json::from_value(json!({
        "metadata": { "name": "p", "namespace": "ns" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "memory": "1024" } } }] },
        "status": { "containerStatuses": [status] },
    }))
    .unwrap()
}

fn terminated(reason: Option<&str>, finished: &str) -> Value {
    json!({ "terminated": { "exitCode": 137, "reason": reason, "finishedAt": finished } })
}

fn running() -> Value {
    json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } })
}

fn kill(memory: i64) -> Vec<OomKill> {
    kill_read_in(memory, Some(ResourcesSource::PodSpecContainer))
}

fn kill_read_in(memory: i64, source: Option<ResourcesSource>) -> Vec<OomKill> {
    let at = "2026-01-01T13:38:48Z".parse::<jiff::Timestamp>().unwrap().try_into().unwrap();
    let (namespace, pod, container) = ("ns".to_owned(), "p".to_owned(), "c".to_owned());
    vec![OomKill { namespace, pod, container, at, memory, source }]
}

const KILLED: &str = "2026-01-01T13:38:48Z";

fn oom() -> Value {
    terminated(Some("OOMKilled"), KILLED)
}

#[test]
fn every_way_a_pod_shows_a_kill() {
    let error = terminated(Some("Error"), KILLED);
    let earlier = terminated(Some("Error"), "2026-01-01T13:00:00Z");
    let earlier_oom = terminated(Some("OOMKilled"), "2026-01-01T13:00:00Z");
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let cases = [
        ("no state, then killed", json!({}), json!({ "state": oom() }), true),
        ("running, then killed", json!({ "state": running() }), json!({ "state": oom() }), true),
        (
            "restarted before it was reported",
            json!({ "state": running() }),
            json!({ "state": running(), "lastState": oom(), "restartCount": 1 }),
            true,
        ),
        (
            "failed, restarted and killed",
            json!({ "state": earlier }),
            json!({ "state": oom(), "lastState": earlier, "restartCount": 1 }),
            true,
        ),
        (
            "killed again",
            json!({ "state": earlier_oom }),
            json!({ "state": oom(), "lastState": earlier_oom, "restartCount": 1 }),
            true,
        ),
        (
            "waiting to be restarted when it was reported, which upstream misses",
            json!({ "state": running() }),
            json!({ "state": waiting, "lastState": oom() }),
            true,
        ),
        ("another reason", json!({ "state": running() }), json!({ "state": error }), false),
        (
            "restarted for another reason",
            json!({ "state": running() }),
            json!({ "state": running(), "lastState": error, "restartCount": 1 }),
            false,
        ),
        (
            "the kill that was reported when it was terminated",
            json!({ "state": oom() }),
            json!({ "state": running(), "lastState": oom(), "restartCount": 1 }),
            false,
        ),
        (
            "restarted after the kill was reported",
            json!({ "state": waiting, "lastState": oom(), "restartCount": 3 }),
            json!({ "state": running(), "lastState": oom(), "restartCount": 4 }),
            false,
        ),
        (
            "the same pod again",
            json!({ "state": running(), "lastState": oom(), "restartCount": 1 }),
            json!({ "state": running(), "lastState": oom(), "restartCount": 1 }),
            false,
        ),
        (
            "a reason that comes later",
            json!({ "state": terminated(None, KILLED) }),
            json!({ "state": oom() }),
            false,
        ),
    ];
    for (name, before, after, killed) in cases {
        let kills = kills_of_pod(Some(&pod(&before)), &pod(&after));
        assert_eq!(kills, if killed { kill(1_024) } else { vec![] }, "{name}");
    }
}

#[test]
fn kills_from_before_the_watch_count() {
    for status in [json!({ "state": oom() }), json!({ "state": running(), "lastState": oom() })] {
        assert_eq!(kills_of_pod(None, &pod(&status)), kill(1_024));
    }
    assert_eq!(kills_of_pod(None, &Pod::default()), []);
}

#[test]
fn the_request_is_that_of_the_container_that_was_killed() {
    let with = |mut status: Value, request: &str| {
        status["resources"] = json!({ "requests": { "memory": request } });
        pod(&status)
    };
    let reported = |memory| kill_read_in(memory, Some(ResourcesSource::ContainerStatus));
    let before = with(json!({ "state": running() }), "2048");
    // The actual request beats the desired one.
    assert_eq!(kills_of_pod(Some(&before), &with(json!({ "state": oom() }), "4096")), reported(4_096));
    // It runs again, perhaps with another.
    let restarted = with(json!({ "state": running(), "lastState": oom(), "restartCount": 1 }), "4096");
    assert_eq!(kills_of_pod(Some(&before), &restarted), reported(2_048));

    let mut without = pod(&json!({ "state": oom() }));
    without.spec.as_mut().unwrap().containers[0].resources = None;
    assert_eq!(kills_of_pod(Some(&before), &without), kill(0));
}

#[test]
fn sidecars_are_containers_too() {
    let mut pod = pod(&json!({ "state": oom() }));
    let (spec, status) = (pod.spec.as_mut().unwrap(), pod.status.as_mut().unwrap());
    spec.init_containers = Some(std::mem::take(&mut spec.containers));
    status.init_container_statuses = status.container_statuses.take();
    let source = Some(ResourcesSource::PodSpecInitContainer);
    assert_eq!(kills_of_pod(None, &pod), kill_read_in(1_024, source));
}

fn evicted(containers: &str, usage: &str, starved: &str) -> Event {
    serde_json::from_value(json!({
        "metadata": {
            "creationTimestamp": KILLED,
            "annotations": {
                "offending_containers": containers,
                "offending_containers_usage": usage,
                "starved_resource": starved,
            },
        },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "ns" },
        "reason": "Evicted",
    }))
    .unwrap()
}

#[test]
fn an_eviction_for_memory_is_a_kill() {
    let kills = |containers, usage, starved| -> Vec<(String, i64)> {
        let kills = kills_of_event(&evicted(containers, usage, starved));
        kills.into_iter().map(|kill| (kill.container, kill.memory)).collect()
    };
    let (c, d) = (("c".to_owned(), 1 << 20), ("d".to_owned(), 2 << 20));
    assert_eq!(kills("c", "1024Ki", "memory"), std::slice::from_ref(&c));
    assert_eq!(kills("c,d", "1024Ki,2048Ki", "memory,memory"), [c.clone(), d]);
    assert_eq!(kills("c,d", "1024Ki,2048Ki", "memory,ephemeral-storage"), std::slice::from_ref(&c));
    assert_eq!(kills("c,d", "1024Ki,much", "memory,memory"), [c]);
    assert_eq!(kills("c,d", "1024Ki,2048Ki", "memory"), []);
    assert_eq!(kills_of_event(&evicted("c", "1024Ki", "memory"))[0].at, kill(0)[0].at);

    let mut other = evicted("c", "1024Ki", "memory");
    other.reason = Some("Killing".to_owned());
    assert_eq!(kills_of_event(&other), []);
    let mut node = evicted("c", "1024Ki", "memory");
    node.involved_object.kind = Some("Node".to_owned());
    assert_eq!(kills_of_event(&node), []);
    let mut bare = evicted("c", "1024Ki", "memory");
    bare.metadata.annotations = None;
    assert_eq!(kills_of_event(&bare), []);
}
