//! A node for the pods of a test: it applies every resize but one.

use std::pin::pin;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig};
use serde_json::{Value, json};

use super::world::World;

/// A resize to this cpu is infeasible for the node.
pub(super) const INFEASIBLE: &str = "7";

/// Assigns pods to the node of the world, runs them, and applies their resizes.
pub(super) async fn run_node(world: &World) -> impl Future<Output = ()> + use<> {
    // The API server taints new nodes, and no controller of nodes runs here.
    let nodes: Api<Node> = Api::all(world.admin.clone());
    let untainted = Patch::Merge(json!({ "spec": { "taints": null } }));
    nodes.patch("n", &PatchParams::default(), &untainted).await.unwrap();
    let admin: Api<Pod> = Api::default_namespaced(world.admin.clone());
    let node: Api<Pod> = Api::default_namespaced(world.cluster.client_as("system:node:n", ["system:nodes"]));
    async move {
        let mut events = pin!(Reflector::new(&admin, WatchConfig::default()).into_stream());
        while let Some(event) = events.next().await {
            for pod in event.into_objects() {
                sync(&admin, &node, &pod).await;
            }
        }
    }
}

async fn sync(admin: &Api<Pod>, node: &Api<Pod>, pod: &Pod) {
    let (name, spec) = (pod.name_any(), pod.spec.as_ref().unwrap());
    if pod.metadata.deletion_timestamp.is_some() {
        let _ = admin.delete(&name, &DeleteParams::default().grace_period(0)).await;
        return;
    }
    if spec.node_name.is_none() {
        let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
            "target": { "kind": "Node", "name": "n" } });
        let params = PostParams::default();
        let _ = admin.create_subresource::<Value, Value>("binding", &name, &params, &binding).await;
        return;
    }
    let status = pod.status.clone().unwrap_or_default();
    if status.observed_generation == pod.metadata.generation && status.phase.as_deref() == Some("Running") {
        return;
    }
    let resources = spec.containers[0].resources.clone().unwrap_or_default();
    let is_infeasible = resources.requests.as_ref().is_some_and(|all| all["cpu"].0 == INFEASIBLE);
    let generation = pod.metadata.generation;
    let now = jiff::Timestamp::now().to_string();
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": now });
    let patch = if is_infeasible && status.phase.as_deref() == Some("Running") {
        let pending = json!({ "type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "m",
            "observedGeneration": generation, "lastTransitionTime": now });
        json!({ "status": { "observedGeneration": generation, "conditions": [ready, pending] } })
    } else {
        let container = json!({
            "name": spec.containers[0].name, "image": spec.containers[0].image, "imageID": spec.containers[0].image,
            "ready": true, "restartCount": 0, "started": true, "containerID": format!("x://{name}"),
            "state": { "running": { "startedAt": now } },
            "allocatedResources": resources.requests, "resources": resources,
        });
        json!({ "status": { "phase": "Running", "observedGeneration": generation, "conditions": [ready],
            "containerStatuses": [container] } })
    };
    // The pod may be deleted by now.
    let _ = node.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
}
