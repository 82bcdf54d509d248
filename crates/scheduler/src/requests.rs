//! The requests that perform decisions.

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use plumb_client::Api;
use plumb_placement::volumes::{SELECTED_NODE, annotation, refer_to_claim};
use serde_json::{Value, json};

use crate::planner::{PodRef, Preemption};
use crate::pod_state::{BY_SCHEDULER, DISRUPTION_TARGET, SCHEDULED};
use crate::volumes::VolumeBinding;

/// Binds a pod to a node.
pub(crate) async fn bind(client: &Client, pod: &PodRef, node: &str) -> kube::Result<()> {
    let PodRef { namespace, name, uid, .. } = pod;
    let body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": name, "namespace": namespace, "uid": &**uid },
        "target": { "kind": "Node", "name": node },
    });
    let request = Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/binding"))
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(drop)
}

/// Reserves volumes for claims, and requests the others from provisioners. Each write has the version that the decision
/// was about as a precondition: after a conflict the pod is decided about again.
pub(crate) async fn bind_volumes(
    client: &Client,
    node: &str,
    bindings: &[VolumeBinding],
) -> kube::Result<()> {
    let params = PostParams::default();
    for binding in bindings {
        match binding {
            VolumeBinding::Static { volume, claim } => {
                if let Some(volume) = refer_to_claim(volume, claim) {
                    let name = volume.metadata.name.as_deref().unwrap_or_default();
                    Api::<PersistentVolume>::all(client.clone()).replace(name, &params, &volume).await?;
                }
            }
            VolumeBinding::Provision { claim } => {
                if annotation(&claim.metadata, SELECTED_NODE) == Some(node) {
                    continue;
                }
                let mut claim = PersistentVolumeClaim::clone(claim);
                let annotations = claim.metadata.annotations.get_or_insert_default();
                annotations.insert(SELECTED_NODE.to_owned(), node.to_owned());
                let namespace = claim.metadata.namespace.clone();
                let name = claim.metadata.name.clone();
                let claims = Api::namespaced(client.clone(), namespace.as_deref().unwrap_or_default());
                claims.replace(name.as_deref().unwrap_or_default(), &params, &claim).await?;
            }
        }
    }
    Ok(())
}

/// The status of an unschedulable pod.
#[derive(Debug)]
pub(crate) struct UnschedulableStatus {
    pub(crate) message: String,
    pub(crate) generation: Option<i64>,
    /// The pod has no `PodScheduled` condition yet.
    pub(crate) is_first_failure: bool,
    /// The nominated node; an empty name clears the nomination.
    pub(crate) nominated: Option<String>,
}

/// Patches the status of an unschedulable pod.
pub(crate) async fn patch_unschedulable(
    client: &Client,
    pod: &PodRef,
    unschedulable: UnschedulableStatus,
    now: Timestamp,
) -> kube::Result<()> {
    let mut condition = json!({
        "type": SCHEDULED,
        "status": "False",
        "reason": "Unschedulable",
        "message": unschedulable.message,
        "observedGeneration": unschedulable.generation,
    });
    if unschedulable.is_first_failure {
        condition["lastTransitionTime"] = json!(seconds(now));
    }
    let mut status = json!({ "conditions": [condition] });
    if let Some(node) = unschedulable.nominated {
        status["nominatedNodeName"] = if node.is_empty() { Value::Null } else { json!(node) };
    }
    patch(client, pod, status).await
}

/// Clears the nominated node of a pod.
pub(crate) async fn clear_nomination(client: &Client, pod: &PodRef) -> kube::Result<()> {
    patch(client, pod, json!({ "nominatedNodeName": null })).await
}

/// Deletes a victim, after a condition that says why.
pub(crate) async fn preempt(
    client: &Client,
    scheduler: &str,
    victim: &PodRef,
    preemption: &Preemption,
    now: Timestamp,
) -> kube::Result<()> {
    let what =
        if preemption.for_resize { "the resize of a higher priority pod" } else { "a higher priority pod" };
    let condition = json!({
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": BY_SCHEDULER,
        "message": format!("{scheduler}: preempting to accommodate {what}"),
        "lastTransitionTime": seconds(now),
    });
    patch(client, victim, json!({ "conditions": [condition] })).await?;
    let only_this = Preconditions { uid: Some(victim.uid.to_string()), resource_version: None };
    let only_this = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
    pods(client, victim).delete(&victim.name, &only_this).await.map(drop)
}

fn pods(client: &Client, pod: &PodRef) -> Api<Pod> {
    Api::namespaced(client.clone(), &pod.namespace)
}

async fn patch(client: &Client, pod: &PodRef, status: Value) -> kube::Result<()> {
    // With the uid, so that another pod of the same name is not patched.
    let patch = json!({ "metadata": { "uid": &*pod.uid }, "status": status });
    let pods = pods(client, pod);
    let params = PatchParams::default();
    pods.patch_status(&pod.name, &params, &Patch::Strategic(&patch)).await.map(drop)
}

/// A timestamp in whole seconds, as conditions have it.
fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether a request failed because the pod is deleted, or another one has its name.
pub(crate) fn is_deleted(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found() || status.code == 409)
}
