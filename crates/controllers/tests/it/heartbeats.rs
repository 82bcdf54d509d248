//! Nodes without heartbeats, and their pods. The test moves the clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_testkit::ManualClock;
use serde_json::json;

use crate::until;
use crate::workloads::{Cluster, template};

fn ready(node: &Node) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.into_iter().find(|one| one.type_ == "Ready").map(|one| one.status).unwrap_or_default()
}

fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    taints.iter().any(|taint| taint.effect == "NoExecute")
}

/// Sends a heartbeat of a ready node.
async fn beat(nodes: &Api<Node>, name: &str, ahead: i64) {
    let now = Timestamp::now() + SignedDuration::from_secs(ahead);
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let ready = json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": now });
    let status = Patch::Strategic(json!({ "status": { "conditions": [ready] } }));
    nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_node_without_heartbeats_are_evicted_and_those_of_a_deleted_node_are_deleted() {
    let clock = ManualClock::default();
    let cluster = Cluster::at(clock.clock());
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    for name in ["silent", "other"] {
        let conditions = json!([{ "type": "Ready", "status": "True" }]);
        let taints = json!([{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }]);
        let node = json!({
            "metadata": { "name": name }, "spec": { "taints": taints }, "status": { "conditions": conditions },
        });
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        // It is ready, and the controller has observed that.
        until(&nodes, name, |node| !is_tainted(node)).await;
    }
    for (name, node) in [("leaves", "silent"), ("stays", "other")] {
        let mut pod = template("web", "x");
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["nodeName"] = json!(node);
        cluster.create::<Pod>(pod).await;
    }
    // A change wakes the controller; this clock alone does not.
    let nudge = |name: &'static str, count: i32| {
        let (nodes, note) =
            (nodes.clone(), json!({ "metadata": { "annotations": { "nudge": count.to_string() } } }));
        async move { nodes.patch(name, &PatchParams::default(), &Patch::Merge(note)).await.unwrap() }
    };
    cluster.until::<Pod>("leaves", |pod| pod.spec.as_ref().unwrap().tolerations.is_some()).await;
    clock.set_ahead(Duration::from_mins(1));
    // Between the two all nodes seem to send no heartbeats, and then no node is tainted: both are repeated.
    for count in 3.. {
        beat(&nodes, "other", 60).await;
        nudge("silent", count).await;
        let tainted = until(&nodes, "silent", |node| ready(node) == "Unknown" && is_tainted(node));
        if tokio::time::timeout(Duration::from_secs(5), tainted).await.is_ok() {
            break;
        }
        assert!(count < 40, "it is never tainted");
    }
    assert_eq!(ready(&nodes.get("other").await.unwrap()), "True");
    assert!(cluster.api::<Pod>().get("leaves").await.unwrap().metadata.deletion_timestamp.is_none());
    // It tolerates that for five minutes.
    clock.set_ahead(Duration::from_secs(400));
    beat(&nodes, "other", 400).await;
    nudge("silent", 2).await;
    let gone = cluster.until_all::<Pod>(|pods| {
        pods.get("leaves").is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
    });
    assert!(gone.await.contains_key("stays"));

    nodes.delete("other", &DeleteParams::default()).await.unwrap();
    let going = async {
        let pods = cluster.api::<Pod>();
        while pods.get_opt("stays").await.unwrap().is_some() {
            clock.advance(Duration::from_mins(1));
            let now = clock.ahead().as_secs().to_string();
            let note = json!({ "metadata": { "annotations": { "nudge": now } } });
            // The pod may have been deleted.
            let _ = pods.patch("stays", &PatchParams::default(), &Patch::Merge(note)).await;
        }
    };
    tokio::time::timeout(plumb_testkit::TIMEOUT, going).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_tolerates_a_taint_for_its_time_and_stays_if_the_taint_is_removed_before() {
    let clock = ManualClock::default();
    let cluster = Cluster::at(clock.clock());
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node = json!({
        "metadata": { "name": "n" }, "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let taints = |taints: serde_json::Value| Patch::Merge(json!({ "spec": { "taints": taints } }));
    let taint = taints(json!([{ "key": "k", "value": "v", "effect": "NoExecute" }]));
    nodes.patch("n", &PatchParams::default(), &taint).await.unwrap();
    let forever = |key: &str| json!({ "key": key, "operator": "Exists" });
    let seconds = |seconds: u32| json!({ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds });
    for (name, tolerations) in [
        ("none", json!([])),
        ("short", json!([seconds(100)])),
        ("long", json!([seconds(1000), forever("other")])),
        ("ever", json!([forever("k"), forever("other")])),
        ("first", json!([forever("k")])),
    ] {
        let mut pod = template("web", "x");
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["nodeName"] = json!("n");
        pod["spec"]["tolerations"] = tolerations;
        cluster.create::<Pod>(pod).await;
    }
    let is_gone = |pods: &std::collections::BTreeMap<String, Pod>, name: &str| {
        pods.get(name).is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
    };
    let left = cluster.until_all::<Pod>(|pods| is_gone(pods, "none")).await;
    assert!(!["short", "long", "ever"].iter().any(|name| is_gone(&left, name)));
    clock.set_ahead(Duration::from_secs(200));
    beat(&nodes, "n", 200).await;
    let left = cluster.until_all::<Pod>(|pods| is_gone(pods, "short")).await;
    assert!(!["long", "ever"].iter().any(|name| is_gone(&left, name)));
    // The taint is removed before its time is over. A pod that does not tolerate the other one is evicted once the controller
    // knows.
    let other = taints(json!([{ "key": "other", "effect": "NoExecute" }]));
    nodes.patch("n", &PatchParams::default(), &other).await.unwrap();
    cluster.until_all::<Pod>(|pods| is_gone(pods, "first")).await;
    clock.set_ahead(Duration::from_secs(2000));
    beat(&nodes, "n", 2000).await;
    // A pod that is created now is evicted later than the others would be.
    let mut next = template("web", "x");
    (next["metadata"]["name"], next["spec"]["nodeName"]) = (json!("next"), json!("n"));
    cluster.create::<Pod>(next).await;
    let left = cluster.until_all::<Pod>(|pods| is_gone(pods, "next")).await;
    assert!(!["long", "ever"].iter().any(|name| is_gone(&left, name)), "the taint is gone");
}
