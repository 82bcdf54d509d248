//! The heartbeats of simulated nodes.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::super::response::{Response, send_request};
use super::simulated::{NODE, node_status};
use super::view::View;
use crate::error::Error;

/// How often nodes renew their leases, as kubelets do.
const BEAT: Duration = Duration::from_secs(10);
/// How long controllers may take to observe a node.
const ATTEMPTS: Duration = Duration::from_secs(30);
/// The label of nodes without heartbeats.
const SILENT: &str = "play/silent";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Creates the node for pods, if it does not exist.
pub(super) async fn prepare(client: &Client) -> Result<(), Error> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
    let made = send(client, "POST", "/api/v1/nodes", &node).await?;
    if !made.is_success() && made.code != 409 {
        return Err(Error::Unprepared(made.body.to_string()));
    }
    let status = node_status(&now());
    send(client, "PATCH", &format!("/api/v1/nodes/{NODE}/status"), &status).await?;
    Ok(())
}

/// Waits until the node for pods is untainted: a new node, or one that was silent for long, has taints.
pub(super) async fn steady(view: &View) -> Result<(), Error> {
    let mut changes = view.changes();
    let is_steady = |node: &Value| node["metadata"]["name"] == NODE && node["spec"]["taints"].is_null();
    let steady = async {
        while !view.nodes().iter().any(is_steady) {
            // The watches last as long as the view.
            let _ = changes.changed().await;
        }
    };
    let late = |_| Error::Unprepared(format!("the node {NODE} is not taken for ready"));
    tokio::time::timeout(ATTEMPTS, steady).await.map_err(late)
}

/// Renews the leases of all nodes except silent ones, forever.
pub(super) async fn beat(client: &Client, view: &View) -> Result<(), Error> {
    let mut beats = tokio::time::interval(BEAT);
    loop {
        beats.tick().await;
        for node in view.nodes() {
            let metadata = &node["metadata"];
            let Some(name) = metadata["name"].as_str() else { continue };
            if metadata["labels"].get(SILENT).is_none() {
                renew(client, name).await?;
            }
        }
    }
}

async fn renew(client: &Client, name: &str) -> Result<(), Error> {
    let moment = format!("{:.6}", Timestamp::now());
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": moment});
    let renewed = send(client, "PATCH", &format!("{LEASES}/{name}"), &json!({"spec": spec})).await?;
    if renewed.code == 404 {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec,
        });
        send(client, "POST", LEASES, &lease).await?;
    }
    Ok(())
}

/// Now, to the second.
pub(super) fn now() -> String {
    format!("{:.0}", Timestamp::now())
}

/// Sends an object, or a merge patch.
pub(super) async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<Response, Error> {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    send_request(client, method, path, media_type, body.to_string().into_bytes()).await
}
