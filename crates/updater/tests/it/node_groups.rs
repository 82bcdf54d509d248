//! VPAs of a `DaemonSet` that are about the pods of some nodes alone.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_resize::rules::Rules;
use plumb_testkit::object;
use plumb_updater::Options;
use plumb_vpa::node_groups::NODE_SELECTOR_ANNOTATION;
use serde_json::{Value, json};

use super::make::amounts;
use super::world::{MOMENT, World, options};

fn with_node_selectors() -> Options {
    Options { node_selectors: true, ..options() }
}

/// Nodes of two sizes, a `DaemonSet` with a pod on each, and a VPA for each size and for all.
async fn world(mode: &str, nodes: &[(&str, &str)]) -> World {
    let world = World::new(Rules::v1_36()).await;
    let sets: Api<DaemonSet> = Api::default_namespaced(world.admin.clone());
    let set = object(json!({
        "metadata": { "name": "agent" },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": { "containers": [{ "name": "app", "image": "i" }] },
            },
        },
    }));
    let set = sets.create(&PostParams::default(), &set).await.unwrap();
    let desired = json!({ "status": { "currentNumberScheduled": nodes.len(), "desiredNumberScheduled": nodes.len(),
        "numberMisscheduled": 0, "numberReady": nodes.len() } });
    sets.patch_status("agent", &PatchParams::default(), &Patch::Merge(desired)).await.unwrap();
    for (node, size) in nodes {
        world.add_node(node, json!({ "kubernetes.io/os": "linux", "size": size })).await;
        let uid = set.uid();
        world
            .pod_with(&format!("agent-{node}"), "100m/128Mi", |pod| {
                pod["metadata"]["labels"] = json!({ "app": "agent" });
                pod["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": uid, "controller": true,
                }]);
                pod["spec"]["nodeName"] = json!(node);
            })
            .await;
    }
    for (name, nodes, cpu) in
        [("all", None, "200m"), ("small", Some("size=small"), "300m"), ("large", Some("size=large"), "2")]
    {
        vpa(&world, name, nodes, mode).await;
        world.recommend_for(name, &format!("{cpu}/128Mi")).await;
    }
    world
}

async fn vpa(world: &World, name: &str, nodes: Option<&str>, mode: &str) {
    let annotations = nodes.map_or(json!({}), |nodes| json!({ NODE_SELECTOR_ANNOTATION: nodes }));
    let vpa: Value = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "name": name, "annotations": annotations },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent" },
            "updatePolicy": { "updateMode": mode },
        },
    });
    world.vpas().create(&PostParams::default(), &object(vpa)).await.unwrap();
}

async fn cpu(world: &World, pod: &str) -> Option<i64> {
    world.requests(pod).await.cpu
}

#[tokio::test(start_paused = true)]
async fn pods_get_what_the_vpa_of_their_node_recommends() {
    let mut world = world("InPlace", &[("s", "small"), ("l", "large"), ("m", "medium")]).await;
    world.start_updater(with_node_selectors());
    world.pass(MOMENT).await;
    assert_eq!(cpu(&world, "agent-s").await, amounts("300m/1").cpu);
    assert_eq!(cpu(&world, "agent-l").await, amounts("2/1").cpu);
    assert_eq!(cpu(&world, "agent-m").await, amounts("200m/1").cpu, "no VPA selects its node");
    for pod in ["agent-s", "agent-l", "agent-m"] {
        world.run(pod).await;
    }

    // A node whose labels change has its pod updated.
    let nodes: Api<Node> = Api::all(world.admin.clone());
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "size": "large" } } }));
    nodes.patch("m", &PatchParams::default(), &patch).await.unwrap();
    world.pass(MOMENT).await;
    assert_eq!(cpu(&world, "agent-m").await, amounts("2/1").cpu);
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_that_is_not_known_is_left_alone() {
    let mut world = world("Recreate", &[("s", "small"), ("l", "large")]).await;
    let nodes: Api<Node> = Api::all(world.admin.clone());
    nodes.delete("l", &DeleteParams::default()).await.unwrap();
    world.start_updater(with_node_selectors());
    world.pass(MOMENT).await;
    assert_eq!(world.names().await, ["agent-l"]);
    world.add_node("l", json!({ "kubernetes.io/os": "linux", "size": "large" })).await;
    world.pass(MOMENT).await;
    assert_eq!(world.names().await, ["agent-l"], "one of two may be missing");
}

#[tokio::test(start_paused = true)]
async fn without_the_flag_vpas_that_select_nodes_control_no_pod() {
    let mut world = world("InPlace", &[("s", "small"), ("l", "large")]).await;
    world.start_updater(options());
    world.pass(MOMENT).await;
    for pod in ["agent-s", "agent-l"] {
        assert_eq!(cpu(&world, pod).await, amounts("200m/1").cpu, "{pod}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_vpas_of_a_daemonset_share_its_budget() {
    let mut world =
        world("Recreate", &[("s", "small"), ("t", "small"), ("l", "large"), ("k", "large")]).await;
    world.start_updater(with_node_selectors());
    world.pass(MOMENT).await;
    assert_eq!(world.names().await.len(), 2, "half of four");
    world.pass(MOMENT * 60).await;
    assert_eq!(world.names().await.len(), 2, "no further one while two are missing");
}
