//! Defaults of the kinds of the core group other than pods.

use serde_json::{Map, Value, json};

use super::plan::Fill::{Int, Text};
use super::plan::Row;
use super::plan::Rule::{Do, Set};
use super::{Object, child, fill, items, text};

const CORE: &str = "api/core/v1";

pub(super) const ROWS: &[Row] = &[
    (CORE, "ReplicationController", &[Do(replication_controller)]),
    (CORE, "ReplicationControllerSpec", &[Set("replicas", Int(1))]),
    (CORE, "Service", &[Do(service), Do(balanced_addresses)]),
    (CORE, "Secret", &[Do(string_data), Set("type", Text("Opaque"))]),
    (CORE, "PersistentVolumeStatus", &[Set("phase", Text("Pending"))]),
    (
        CORE,
        "PersistentVolumeSpec",
        &[Set("persistentVolumeReclaimPolicy", Text("Retain")), Set("volumeMode", Text("Filesystem"))],
    ),
    (CORE, "PersistentVolumeClaimStatus", &[Set("phase", Text("Pending"))]),
    (CORE, "PersistentVolumeClaimSpec", &[Set("volumeMode", Text("Filesystem"))]),
    (CORE, "EndpointPort", &[Set("protocol", Text("TCP"))]),
    (CORE, "Namespace", &[Do(namespace)]),
    (CORE, "NamespaceStatus", &[Set("phase", Text("Active"))]),
    (CORE, "NodeSpec", &[Do(node_ranges)]),
    (CORE, "NodeStatus", &[Do(allocatable)]),
    (CORE, "PodStatus", &[Do(pod_addresses)]),
    (CORE, "LimitRangeItem", &[Do(limits)]),
    ("api/resource/v1", "ExactDeviceRequest", &[Do(device_count)]),
    ("api/resource/v1", "DeviceSubRequest", &[Do(device_count)]),
    ("api/authentication/v1", "TokenRequestSpec", &[Set("expirationSeconds", Int(60 * 60))]),
];

fn replication_controller(controller: &mut Object) {
    let labels = controller.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels"));
    let Some(labels) = labels.filter(|labels| labels.is_object()).cloned() else { return };
    let is_empty = |value: Option<&Value>| value.and_then(Value::as_object).is_none_or(Map::is_empty);
    if let Some(spec) = child(controller, "spec").filter(|spec| is_empty(spec.get("selector"))) {
        spec.insert("selector".to_owned(), labels.clone());
    }
    if let Some(metadata) = child(controller, "metadata").filter(|meta| is_empty(meta.get("labels"))) {
        metadata.insert("labels".to_owned(), labels);
    }
}

fn service(service: &mut Object) {
    let Some(spec) = child(service, "spec") else { return };
    super::fill_text(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => drop(spec.remove("sessionAffinityConfig")),
        "ClientIP" => {
            let given = spec.get("sessionAffinityConfig").and_then(|c| c.pointer("/clientIP/timeoutSeconds"));
            if given.is_none_or(Value::is_null) {
                let three_hours = json!({"clientIP": {"timeoutSeconds": 3 * 60 * 60}});
                spec.insert("sessionAffinityConfig".to_owned(), three_hours);
            }
        }
        _ => {}
    }
    super::fill_text(spec, "type", "ClusterIP");
    for port in items(spec, "ports") {
        super::fill_text(port, "protocol", "TCP");
        let target = port.get("targetPort");
        let unset = target.is_none_or(|t| t.is_null() || t.as_i64() == Some(0) || t.as_str() == Some(""));
        if unset {
            let own = port.get("port").cloned().unwrap_or_else(|| 0.into());
            port.insert("targetPort".to_owned(), own);
        }
    }
    let kind = text(spec, "type").to_owned();
    let has_external = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    if kind == "LoadBalancer" || kind == "NodePort" || (kind == "ClusterIP" && has_external) {
        super::fill_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if ["NodePort", "LoadBalancer", "ClusterIP"].contains(&kind.as_str()) {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn balanced_addresses(service: &mut Object) {
    let balanced = service.get("spec").is_some_and(|spec| spec["type"] == "LoadBalancer");
    let status = service.get_mut("status").and_then(|status| status.get_mut("loadBalancer"));
    let Some(status) = status.filter(|_| balanced).and_then(Value::as_object_mut) else { return };
    for ingress in items(status, "ingress") {
        if !text(ingress, "ip").is_empty() {
            fill(ingress, "ipMode", "VIP");
        }
    }
}

/// Merges `stringData` of a Secret into `data`, which it overwrites.
fn string_data(secret: &mut Object) {
    use base64::Engine as _;
    let Some(Value::Object(clear)) = secret.remove("stringData") else { return };
    if clear.is_empty() {
        return;
    }
    if let Some(data) = child(secret, "data") {
        for (key, value) in clear {
            let bytes = value.as_str().unwrap_or_default();
            data.insert(key, base64::engine::general_purpose::STANDARD.encode(bytes).into());
        }
    }
}

/// Sets the label `kubernetes.io/metadata.name` of a namespace with a name.
fn namespace(namespace: &mut Object) {
    let Some(metadata) = namespace.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let name = text(metadata, "name").to_owned();
    if !name.is_empty()
        && let Some(labels) = child(metadata, "labels")
    {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
}

/// Makes `podCIDR` and `podCIDRs` agree. The single value takes precedence.
fn node_ranges(spec: &mut Object) {
    let one = text(spec, "podCIDR").to_owned();
    let first = spec.get("podCIDRs").and_then(|list| list.get(0)).and_then(Value::as_str).unwrap_or_default();
    match (one.is_empty(), first.is_empty()) {
        (true, false) => {
            let first = first.to_owned();
            spec.insert("podCIDR".to_owned(), first.into());
        }
        (false, _) if one != first => drop(spec.insert("podCIDRs".to_owned(), json!([one]))),
        _ => {}
    }
}

fn pod_addresses(status: &mut Object) {
    let one = text(status, "podIP").to_owned();
    let first = status.get("podIPs").and_then(|list| list.pointer("/0/ip")).and_then(Value::as_str);
    match (one.is_empty(), first) {
        (true, Some(first)) => {
            let first = first.to_owned();
            status.insert("podIP".to_owned(), first.into());
        }
        (false, first) if first != Some(one.as_str()) => {
            status.insert("podIPs".to_owned(), json!([{"ip": one}]));
        }
        _ => {}
    }
}

fn allocatable(status: &mut Object) {
    if let Some(capacity) = status.get("capacity").cloned() {
        fill(status, "allocatable", capacity);
    }
}

/// Defaults of container limits in a `LimitRange`: `default` from `max`, `defaultRequest` from `default` or `min`.
fn limits(item: &mut Object) {
    if text(item, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(Value::Object(from)) = item.get(from).cloned() else { continue };
        if from.is_empty() {
            continue;
        }
        if let Some(to) = child(item, to) {
            for (resource, amount) in from {
                to.entry(resource).or_insert(amount);
            }
        }
    }
}

fn device_count(request: &mut Object) {
    super::fill_text(request, "allocationMode", "ExactCount");
    let counted = request.get("count").and_then(Value::as_i64).unwrap_or(0) != 0;
    if text(request, "allocationMode") == "ExactCount" && !counted {
        request.insert("count".to_owned(), 1.into());
    }
}
