//! Random objects, small enough to meet each other.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use proptest::prelude::*;
use serde_json::{Value, json};

pub(crate) const NAMESPACES: [&str; 2] = ["red", "blue"];
pub(crate) const PORTS: [u16; 3] = [80, 81, 5000];
pub(crate) const PROTOCOLS: [&str; 2] = ["TCP", "UDP"];

fn pick<T: Clone + std::fmt::Debug + 'static>(from: &[T]) -> impl Strategy<Value = T> + use<T> {
    proptest::sample::select(from.to_vec())
}

pub(crate) fn labels() -> impl Strategy<Value = Value> {
    (pick(&["a", "b", ""]), pick(&["x", "y", ""])).prop_map(|(app, tier)| {
        let mut labels = serde_json::Map::new();
        for (key, value) in [("app", app), ("tier", tier)] {
            if !value.is_empty() {
                labels.insert(key.to_owned(), value.into());
            }
        }
        labels.into()
    })
}

fn selector() -> impl Strategy<Value = Value> {
    let expression =
        (pick(&["app", "tier"]), pick(&["In", "NotIn", "Exists", "DoesNotExist"]), pick(&["a", "x"]));
    prop_oneof![
        2 => Just(json!({})),
        4 => labels().prop_map(|labels| json!({ "matchLabels": labels })),
        1 => expression.prop_map(|(key, operator, value)| {
            let values = if matches!(operator, "In" | "NotIn") { json!([value, "b"]) } else { Value::Null };
            json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
        }),
    ]
}

fn peer(blocks: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let block = (pick(blocks), proptest::option::of(pick(blocks)));
    prop_oneof![
        2 => selector().prop_map(|pods| json!({ "podSelector": pods })),
        1 => selector().prop_map(|namespaces| json!({ "namespaceSelector": namespaces })),
        1 => (selector(), selector())
            .prop_map(|(namespaces, pods)| json!({ "namespaceSelector": namespaces, "podSelector": pods })),
        1 => block.prop_map(|(cidr, except)| json!({ "ipBlock": { "cidr": cidr, "except": except.map(|one| [one]) } })),
    ]
}

fn port() -> impl Strategy<Value = Value> {
    let protocol = || pick(&PROTOCOLS);
    prop_oneof![
        1 => protocol().prop_map(|protocol| json!({ "protocol": protocol })),
        3 => (protocol(), pick(&PORTS)).prop_map(|(protocol, port)| json!({ "protocol": protocol, "port": port })),
        1 => protocol().prop_map(|protocol| json!({ "protocol": protocol, "port": 80, "endPort": 81 })),
        1 => protocol().prop_map(|protocol| json!({ "protocol": protocol, "port": 79, "endPort": 80 })),
        1 => (protocol(), pick(&["web", "other"])).prop_map(|(protocol, name)| json!({ "protocol": protocol, "port": name })),
    ]
}

fn rules(peers: &'static str, blocks: &'static [&'static str]) -> impl Strategy<Value = Option<Vec<Value>>> {
    let rule = (proptest::collection::vec(peer(blocks), 0..3), proptest::collection::vec(port(), 0..3))
        .prop_map(move |(found, ports)| json!({ peers: found, "ports": ports }));
    proptest::option::weighted(0.7, proptest::collection::vec(rule, 0..3))
}

/// The spec of a policy, with blocks of these.
pub(crate) fn policy(blocks: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let types = pick(&[Value::Null, json!(["Ingress"]), json!(["Egress"]), json!(["Ingress", "Egress"])]);
    (selector(), types, rules("from", blocks), rules("to", blocks)).prop_map(|(pods, types, ingress, egress)| {
        json!({ "podSelector": pods, "policyTypes": types, "ingress": ingress, "egress": egress })
    })
}

pub(crate) fn named_policy(namespace: &str, name: &str, spec: &Value) -> NetworkPolicy {
    let object = json!({ "metadata": { "namespace": namespace, "name": name }, "spec": spec });
    serde_json::from_value(object).unwrap()
}
