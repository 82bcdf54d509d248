//! VPAs of a `DaemonSet` that count the pods of some nodes alone.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use plumb_recommender::Options;
use plumb_recommender::input::environment::EnvironmentOptions;
use plumb_testkit::{object, until};
use plumb_vpa::node_groups::NODE_SELECTOR_ANNOTATION;
use plumb_vpa_api::ConditionType;
use serde_json::{Value, json};

use super::bed::{Bed, Running, Setup, conditions, message};

/// A `DaemonSet` with a pod on a small node, which uses 100m, and on a large one, which uses 2 cores.
async fn bed() -> Bed {
    let bed = Bed::new().await;
    let nodes: Api<Node> = Api::all(bed.client.clone());
    for size in ["small", "large"] {
        let node: Node = object(json!({ "metadata": { "name": size, "labels": { "size": size } } }));
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    let set: DaemonSet = object(json!({
        "metadata": { "name": "agent" },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": { "containers": [{ "name": "app", "image": "plumb/load" }] },
            },
        },
    }));
    let sets: Api<DaemonSet> = Api::default_namespaced(bed.client.clone());
    sets.create(&PostParams::default(), &set).await.unwrap();
    for (node, milli) in [("small", 100), ("large", 2_000)] {
        let spec = json!({ "nodeName": node, "containers": [{ "name": "app", "image": "plumb/load" }] });
        bed.pod_with("default", &format!("agent-{node}"), "agent", spec, "Running").await;
        bed.uses(&format!("agent-{node}"), "app", milli, 100_000_000);
    }
    bed
}

async fn vpa(bed: &Bed, name: &str, kind: &str, nodes: Option<&str>, mode: &str) {
    let target = json!({ "apiVersion": "apps/v1", "kind": kind, "name": "agent" });
    bed.vpa(name, json!({ "targetRef": target, "updatePolicy": { "updateMode": mode } })).await;
    if let Some(nodes) = nodes {
        bed.edit(name, annotation(nodes)).await;
    }
}

fn annotation(nodes: &str) -> Value {
    json!({ "metadata": { "annotations": { NODE_SELECTOR_ANNOTATION: nodes } } })
}

async fn recommender(bed: &Bed) -> Running {
    let environment = EnvironmentOptions { node_selectors: true, ..EnvironmentOptions::default() };
    let options = Options { environment, ..Options::default() };
    bed.recommender_with(Setup { options, ..Setup::default() }).await
}

async fn cpu(bed: &Bed, name: &str) -> String {
    let targets = bed.targets(name).await;
    targets.get("app").map_or("-", |target| target.split('/').next().unwrap_or_default()).to_owned()
}

#[tokio::test]
async fn each_vpa_recommends_what_the_pods_of_its_nodes_use() {
    let bed = bed().await;
    vpa(&bed, "all", "DaemonSet", None, "Off").await;
    vpa(&bed, "small", "DaemonSet", Some("size=small"), "Off").await;
    vpa(&bed, "large", "DaemonSet", Some("size in (large,huge)"), "Off").await;
    let mut running = recommender(&bed).await;
    running.once().await;
    assert_eq!(cpu(&bed, "small").await, "126m");
    let (all, large) = (cpu(&bed, "all").await, cpu(&bed, "large").await);
    assert_eq!(all, large, "the percentile is that of the larger");
    assert_ne!(large, "126m");
    assert!(!conditions(&bed.get("large").await).contains(&"ConfigUnsupported=True".to_owned()));
    assert_eq!(bed.checkpoint_names().await, ["all-app", "large-app", "small-app"]);

    // A node that grows takes its pod along, from then on.
    let nodes: Api<Node> = Api::all(bed.client.clone());
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "size": "huge" } } }));
    nodes.patch("small", &PatchParams::default(), &patch).await.unwrap();
    until(&nodes, "small", |node: &Node| {
        node.metadata.labels.as_ref().is_some_and(|of| of["size"] == "huge")
    })
    .await;
    let pods = |name: &str| {
        let key = plumb_recommender::VpaKey::new("default", name);
        running.state.read(|state| state.cluster().vpa(&key).map(|vpa| vpa.pods())).flatten()
    };
    assert_eq!((pods("small"), pods("large")), (Some(1), Some(1)));
    let mut moved = false;
    let deadline = tokio::time::Instant::now() + plumb_testkit::TIMEOUT;
    while !moved && tokio::time::Instant::now() < deadline {
        running.minute(&bed).await;
        let pods = |name: &str| {
            let key = plumb_recommender::VpaKey::new("default", name);
            running.state.read(|state| state.cluster().vpa(&key).map(|vpa| vpa.pods())).flatten()
        };
        moved = (pods("small"), pods("large")) == (Some(0), Some(2));
        tokio::task::yield_now().await;
    }
    assert!(moved);

    // Another annotation selects other pods, and none selects all.
    bed.edit("small", annotation("size=large")).await;
    bed.edit("large", json!({ "metadata": { "annotations": { NODE_SELECTOR_ANNOTATION: null } } })).await;
    running.minute(&bed).await;
    running.minute(&bed).await;
    assert_eq!(cpu(&bed, "small").await, large);
    let key = plumb_recommender::VpaKey::new("default", "small");
    let pods = running.state.read(|state| state.cluster().vpa(&key).map(|vpa| vpa.pods())).flatten();
    assert_eq!(pods, Some(1));
}

#[tokio::test]
async fn a_node_selector_that_cannot_be_used_is_a_condition() {
    let bed = bed().await;
    bed.deployment("agent").await;
    vpa(&bed, "syntax", "DaemonSet", Some("size in"), "Off").await;
    vpa(&bed, "empty", "DaemonSet", Some(" "), "Off").await;
    vpa(&bed, "kind", "Deployment", Some("size=small"), "Off").await;
    vpa(&bed, "acts", "DaemonSet", Some("size=small"), "Recreate").await;
    let mut running = recommender(&bed).await;
    running.once().await;
    for (name, why) in
        [("syntax", "in a label selector"), ("empty", "selects every node"), ("kind", "not a DaemonSet")]
    {
        let message = message(&bed.get(name).await, &ConditionType::ConfigUnsupported);
        assert!(message.contains(why), "{name}: {message}");
    }
    assert!(!conditions(&bed.get("acts").await).contains(&"ConfigUnsupported=True".to_owned()));
    assert_eq!((cpu(&bed, "syntax").await, cpu(&bed, "acts").await), ("-".to_owned(), "126m".to_owned()));
    drop(running);
    let mut running = bed.recommender().await;
    running.once().await;
    let message = message(&bed.get("acts").await, &ConditionType::ConfigUnsupported);
    assert!(message.contains("without --node-selectors"), "{message}");
}
