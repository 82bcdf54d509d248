//! metrics-server as a process: the API server reaches it by a Service without a selector.

use std::fs;
use std::path::Path;

use data_encoding::BASE64;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::process::Command;

use super::TIMEOUT;
use super::components::{self, Components};
use super::control_plane::{self, ControlPlane};
use crate::error::{Error, IoContext as _};
use crate::instance::Instance;

const NAME: &str = "metrics-server";
const NAMESPACE: &str = "kube-system";
const API: &str = "v1beta1.metrics.k8s.io";

/// Starts metrics-server, registers it, and waits until its `APIService` is available. The first values come after two
/// scrapes.
pub(super) async fn start(
    program: &Path,
    instance: &Instance,
    plane: &ControlPlane<'_>,
    client: &Client,
    components: &mut Components,
) -> Result<(), Error> {
    let authority = plane.authority().identity().certificate;
    let serving =
        plane.authority().server("metrics-server-serving", &[&format!("{NAME}.{NAMESPACE}.svc")])?;
    let kubeconfig = plane.user_kubeconfig(NAME, "system:metrics-server", Some("system:masters"))?;
    let [port] = control_plane::free_ports()?;
    let mut server = Command::new(program);
    // No endpoint of a Service may be a loopback address.
    server.arg(format!("--bind-address={}", instance.gateway())).arg(format!("--secure-port={port}"));
    // The shortest resolution that metrics-server accepts.
    server.args([
        "--metric-resolution=10s",
        "--kubelet-request-timeout=9s",
        "--kubelet-use-node-status-port",
    ]);
    server.arg("--kubelet-preferred-address-types=InternalIP");
    for (flag, path) in [
        ("--kubeconfig", &kubeconfig),
        ("--authentication-kubeconfig", &kubeconfig),
        ("--authorization-kubeconfig", &kubeconfig),
        ("--tls-cert-file", &serving.certificate),
        ("--tls-private-key-file", &serving.key),
        ("--kubelet-certificate-authority", &authority),
    ] {
        server.arg(flag).arg(path);
    }
    components.start(NAME, server)?;
    let bundle = BASE64.encode(&fs::read(&authority).doing("read", &authority)?);
    for object in objects(&instance.gateway(), port, &bundle) {
        create(client, object).await?;
    }
    let services = api(client, &registration());
    components::poll("metrics.k8s.io", TIMEOUT, async || services.get(API).await.ok().filter(is_available))
        .await?;
    Ok(())
}

fn registration() -> GroupVersionKind {
    GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService")
}

/// The Service, the EndpointSlice, the Endpoints and the `APIService` of metrics-server.
fn objects(address: &str, port: u16, bundle: &str) -> [(GroupVersionKind, Value); 4] {
    let metadata = json!({ "name": NAME, "namespace": NAMESPACE });
    let service = json!({
        "metadata": metadata,
        "spec": { "ports": [{ "name": "https", "port": 443, "targetPort": port, "protocol": "TCP" }] },
    });
    let slice = json!({
        "metadata": { "name": NAME, "namespace": NAMESPACE, "labels": { "kubernetes.io/service-name": NAME } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": port, "protocol": "TCP" }],
    });
    // The aggregator of Kubernetes 1.33 resolves a Service by its Endpoints, later ones by its slices.
    let labels = json!({ "endpointslice.kubernetes.io/skip-mirror": "true" });
    let endpoints = json!({
        "metadata": { "name": NAME, "namespace": NAMESPACE, "labels": labels },
        "subsets": [{
            "addresses": [{ "ip": address }],
            "ports": [{ "name": "https", "port": port, "protocol": "TCP" }],
        }],
    });
    let registered = json!({
        "metadata": { "name": API },
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "caBundle": bundle,
            "service": { "name": NAME, "namespace": NAMESPACE, "port": 443 },
            "groupPriorityMinimum": 100, "versionPriority": 100,
        },
    });
    [
        (GroupVersionKind::gvk("", "v1", "Service"), service),
        (GroupVersionKind::gvk("discovery.k8s.io", "v1", "EndpointSlice"), slice),
        (GroupVersionKind::gvk("", "v1", "Endpoints"), endpoints),
        (registration(), registered),
    ]
}

fn api(client: &Client, kind: &GroupVersionKind) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(kind);
    match kind.kind.as_str() {
        "APIService" => Api::all_with(client.clone(), &resource),
        _ => Api::namespaced_with(client.clone(), NAMESPACE, &resource),
    }
}

async fn create(client: &Client, (kind, mut object): (GroupVersionKind, Value)) -> Result<(), Error> {
    (object["apiVersion"], object["kind"]) = (json!(kind.api_version()), json!(kind.kind));
    let object: DynamicObject = serde_json::from_value(object)
        .map_err(|source| Error::Encoding { what: "an object of metrics-server", source })?;
    let created = api(client, &kind).create(&PostParams::default(), &object).await;
    created.map_err(|source| Error::Api { doing: "register metrics-server", source: Box::new(source) })?;
    Ok(())
}

fn is_available(service: &DynamicObject) -> bool {
    let conditions = service.data["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Available" && one["status"] == "True"))
}
