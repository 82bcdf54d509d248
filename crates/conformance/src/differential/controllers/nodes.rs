//! The heartbeats of nodes that nobody runs.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::super::answer::{Answer, ask};
use super::hand::{NODE, node_status};
use super::view::View;
use crate::error::Error;

/// How often nodes renew their leases, as kubelets do.
const BEAT: Duration = Duration::from_secs(10);
/// How long it may take until controllers have heard of a node.
const PATIENCE: Duration = Duration::from_secs(30);
/// The label of nodes that are not to be heard of.
const SILENT: &str = "play/silent";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Makes the node that pods go to, if it is not there.
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

/// Waits until the node that pods go to is in favour: of one that was just made, or was silent for long, taints say so.
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
    tokio::time::timeout(PATIENCE, steady).await.map_err(late)
}

/// Renews the leases of all nodes but those that are to be silent, for ever.
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
pub(super) async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<Answer, Error> {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    ask(client, method, path, media_type, body.to_string().into_bytes()).await
}
