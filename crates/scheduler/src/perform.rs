//! Doing what was decided.

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use plumb_client::Api;
use serde_json::{Value, json};

use crate::facts::{BY_SCHEDULER, DISRUPTION_TARGET, SCHEDULED};
use crate::planner::{Eviction, PodRef};

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

/// What a pod's status is to say of why it has no node.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) message: String,
    pub(crate) generation: Option<i64>,
    /// The status says nothing yet of having no node.
    pub(crate) is_first: bool,
    /// The node that is promised; an empty name takes the promise back.
    pub(crate) nominated: Option<String>,
}

/// Says in a pod's status why it has no node.
pub(crate) async fn say(client: &Client, pod: &PodRef, said: Said, now: Timestamp) -> kube::Result<()> {
    let mut condition = json!({
        "type": SCHEDULED,
        "status": "False",
        "reason": "Unschedulable",
        "message": said.message,
        "observedGeneration": said.generation,
    });
    if said.is_first {
        condition["lastTransitionTime"] = json!(seconds(now));
    }
    let mut status = json!({ "conditions": [condition] });
    if let Some(node) = said.nominated {
        status["nominatedNodeName"] = if node.is_empty() { Value::Null } else { json!(node) };
    }
    patch(client, pod, status).await
}

/// Takes the promise of a node back.
pub(crate) async fn withdraw(client: &Client, pod: &PodRef) -> kube::Result<()> {
    patch(client, pod, json!({ "nominatedNodeName": null })).await
}

/// Has a pod leave its node.
pub(crate) async fn evict(
    client: &Client,
    scheduler: &str,
    victim: &PodRef,
    eviction: &Eviction,
    now: Timestamp,
) -> kube::Result<()> {
    let what =
        if eviction.for_resize { "the resize of a higher priority pod" } else { "a higher priority pod" };
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
    // The uid, so that another pod of the same name is left alone.
    let patch = json!({ "metadata": { "uid": &*pod.uid }, "status": status });
    let (pods, params) = (pods(client, pod), PatchParams::default());
    pods.patch_status(&pod.name, &params, &Patch::Strategic(&patch)).await.map(drop)
}

/// A moment in whole seconds, as conditions have it.
fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whether a failure means that the pod is gone, or another one has its name.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found() || status.code == 409)
}
