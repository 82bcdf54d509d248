//! The labels that a node agent may not set on its Node: those that restrict where pods run.

use std::collections::BTreeSet;

use serde_json::Value;

/// The labels of Kubernetes that a node agent may set.
const OWN: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// The domains of Kubernetes in which a node agent may set all labels.
const OWN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const RESTRICTED: &str = "node-restriction.kubernetes.io";

/// The changed labels that a node agent may not change, in order.
pub(super) fn forbidden(old: Option<&Value>, new: &Value) -> Vec<String> {
    let none = serde_json::Map::new();
    let labels = |object: Option<&Value>| {
        object.and_then(|object| object.pointer("/metadata/labels")).and_then(Value::as_object).cloned()
    };
    let (old, new) = (labels(old), labels(Some(new)));
    let (old, new) = (old.as_ref().unwrap_or(&none), new.as_ref().unwrap_or(&none));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter()
        .filter(|key| old.get(*key) != new.get(*key) && is_forbidden(key))
        .map(String::to_owned)
        .collect()
}

fn is_forbidden(label: &str) -> bool {
    let Some((domain, _)) = label.split_once('/') else { return false };
    if is_in(domain, RESTRICTED) {
        return true;
    }
    let of_kubernetes = is_in(domain, "kubernetes.io") || is_in(domain, "k8s.io");
    of_kubernetes && !OWN.contains(&label) && !OWN_DOMAINS.iter().any(|own| is_in(domain, own))
}

fn is_in(domain: &str, parent: &str) -> bool {
    domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
