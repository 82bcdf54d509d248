use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointSubset, Pod};
use serde_json::{Value, json};

use super::decide::MAX_ADDRESSES;
use super::subsets::{repack, truncate};
use super::*;

fn service(more: Value) -> Arc<Service> {
    let mut spec = json!({
        "clusterIP": "10.96.0.7", "ipFamilies": ["IPv4"], "selector": { "app": "web" },
        "ports": [{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080 }],
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let metadata = json!({ "name": "web", "namespace": "n", "uid": "u", "labels": { "team": "a" } });
    Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap())
}

/// A pod: `r` ready, `n` not ready, `t` terminating, `f` failed.
fn pod(kind: char, number: usize) -> Arc<Pod> {
    let ip = format!("10.64.{}.{}", number / 256, number % 256);
    let name = format!("{kind}{number}");
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "n", "uid": name },
        "spec": { "nodeName": "node", "containers": [] },
        "status": {
            "phase": if kind == 'f' { "Failed" } else { "Running" }, "podIP": ip, "podIPs": [{ "ip": ip }],
            "conditions": [{ "type": "Ready", "status": if kind == 'n' { "False" } else { "True" } }],
        },
    });
    if kind == 't' {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn state(service: Arc<Service>, pods: Vec<Arc<Pod>>, current: Option<Endpoints>) -> State {
    let trigger_time = Some("2026-01-01T00:00:00Z".parse().unwrap());
    State { service, pods, current: current.map(Arc::new), trigger_time }
}

fn created(service: Arc<Service>, pods: &str) -> Endpoints {
    let pods = pods.chars().enumerate().map(|(number, kind)| pod(kind, number)).collect();
    match decide(&state(service, pods, None)) {
        Some(Action::Create(endpoints)) => endpoints,
        other => panic!("{other:?}"),
    }
}

/// The subsets: the last bytes of ready addresses, of others, and the ports.
fn describe(subsets: &[EndpointSubset]) -> Vec<String> {
    let subset = |subset: &EndpointSubset| {
        let ips = |list: &Option<Vec<k8s_openapi::api::core::v1::EndpointAddress>>| -> String {
            let all = list.iter().flatten().map(|address| address.ip.rsplit('.').next().unwrap().to_owned());
            all.collect::<Vec<_>>().join(",")
        };
        let ports: Vec<String> = subset.ports.iter().flatten().map(|port| port.port.to_string()).collect();
        format!("{}/{}:{}", ips(&subset.addresses), ips(&subset.not_ready_addresses), ports.join(","))
    };
    subsets.iter().map(subset).collect()
}

#[test]
fn pods_are_ready_addresses_or_others() {
    let publish = json!({ "publishNotReadyAddresses": true });
    let table = [
        (json!({}), "rntf", vec!["0/1:8080"]),
        (publish, "rntf", vec!["0,1,2/:8080"]),
        (json!({ "clusterIP": "None", "ports": null }), "rn", vec!["0/1:"]),
        (json!({ "ports": null }), "rn", vec![]),
        (json!({}), "f", vec![]),
    ];
    for (spec, pods, wanted) in table {
        let endpoints = created(service(spec.clone()), pods);
        assert_eq!(describe(&endpoints.subsets.unwrap_or_default()), wanted, "{spec} {pods}");
    }
    let endpoints = created(service(json!({ "clusterIP": "None" })), "r");
    assert_eq!(
        serde_json::to_value(endpoints).unwrap(),
        json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {
                "name": "web", "namespace": "n",
                "labels": {
                    "team": "a", "service.kubernetes.io/headless": "",
                    "endpoints.kubernetes.io/managed-by": "endpoint-controller",
                },
                "annotations": { "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z" },
            },
            "subsets": [{
                "addresses": [{
                    "ip": "10.64.0.0", "nodeName": "node",
                    "targetRef": { "kind": "Pod", "namespace": "n", "name": "r0", "uid": "r0" },
                }],
                "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
            }],
        })
    );
}

#[test]
fn only_a_difference_is_written() {
    let pods = || vec![pod('r', 0), pod('n', 1)];
    let endpoints = created(service(json!({})), "rn");
    let again = |current: &Endpoints| decide(&state(service(json!({})), pods(), Some(current.clone())));
    assert_eq!(again(&endpoints), None);
    let mut other = endpoints.clone();
    other.metadata.labels.as_mut().unwrap().insert("more".to_owned(), String::new());
    assert_eq!(again(&other).map(|action| matches!(action, Action::Update(update) if update.metadata.labels == endpoints.metadata.labels)), Some(true));
    let mut versioned = endpoints.clone();
    let addresses = versioned.subsets.as_mut().unwrap()[0].addresses.as_mut().unwrap();
    addresses[0].target_ref.as_mut().unwrap().resource_version = Some("7".to_owned());
    assert_eq!(again(&versioned), None);
}

#[test]
fn endpoints_have_at_most_a_thousand_addresses() {
    let pods: Vec<Arc<Pod>> =
        (0..1200).map(|number| pod(if number % 10 == 0 { 'n' } else { 'r' }, number)).collect();
    let Some(Action::Create(mut endpoints)) = decide(&state(service(json!({})), pods.clone(), None)) else {
        panic!()
    };
    let subset = &endpoints.subsets.as_ref().unwrap()[0];
    assert_eq!(subset.addresses.as_ref().unwrap().len(), MAX_ADDRESSES);
    assert_eq!(subset.not_ready_addresses, None);
    assert_eq!(
        endpoints.metadata.annotations.as_ref().unwrap()["endpoints.kubernetes.io/over-capacity"],
        "truncated"
    );
    endpoints.metadata.resource_version = Some("1".to_owned());
    assert_eq!(decide(&state(service(json!({})), pods[..].to_vec(), Some(endpoints.clone()))), None);
    // The annotation goes with the surplus.
    let Some(Action::Update(less)) = decide(&state(service(json!({})), pods[..9].to_vec(), Some(endpoints)))
    else {
        panic!()
    };
    assert!(!less.metadata.annotations.unwrap().contains_key("endpoints.kubernetes.io/over-capacity"));
}

fn subsets(json: Value) -> Vec<EndpointSubset> {
    serde_json::from_value(json).unwrap()
}

#[test]
fn subsets_are_packed_by_ports_and_addresses() {
    let [a, b, c] = [1, 2, 3].map(|number| json!({ "ip": format!("10.0.0.{number}") }));
    let [web, more] =
        [80, 81].map(|port| json!([{ "name": format!("p{port}"), "port": port, "protocol": "TCP" }]));
    let both = json!([web[0], more[0]]);
    let table = [
        // Ports of the same addresses are one subset.
        (
            json!([{ "addresses": [b, a], "ports": web }, { "addresses": [a, b], "ports": more }]),
            vec!["1,2/:80,81"],
        ),
        // So are addresses of the same ports.
        (
            json!([{ "addresses": [a], "ports": both }, { "addresses": [c], "ports": both }]),
            vec!["1,3/:80,81"],
        ),
        // Not ready prevails.
        (
            json!([{ "addresses": [a], "ports": web }, { "notReadyAddresses": [a], "ports": web }]),
            vec!["/1:80"],
        ),
        (
            json!([{ "addresses": [a], "ports": web }, { "notReadyAddresses": [a], "ports": more }]),
            vec!["/1:81", "1/:80"],
        ),
        (json!([{ "addresses": [a] }, { "addresses": [b] }]), vec!["1,2/:"]),
    ];
    for (before, wanted) in table {
        let repacked = repack(&subsets(before.clone()));
        let mut found = describe(&repacked);
        assert_eq!(repack(&repacked), repacked);
        for line in &mut found {
            // The order of ports is that of their hashes.
            *line = line.replace("81,80", "80,81");
        }
        found.sort();
        assert_eq!(found, wanted, "{before}");
    }
}

#[test]
fn each_subset_loses_its_share() {
    let addresses = |count: usize, part: usize| -> Vec<Value> {
        (0..count).map(|number| json!({ "ip": format!("10.0.{part}.{number}") })).collect()
    };
    let two = |ready: usize, not_ready: usize| {
        subsets(json!([
            { "addresses": addresses(ready, 0), "notReadyAddresses": addresses(not_ready, 1) },
            { "addresses": addresses(ready, 2), "notReadyAddresses": addresses(not_ready, 3) },
        ]))
    };
    let sizes = |subsets: &[EndpointSubset]| -> Vec<(usize, usize)> {
        let len = |list: &Option<Vec<_>>| list.as_ref().map_or(0, Vec::len);
        subsets.iter().map(|subset| (len(&subset.addresses), len(&subset.not_ready_addresses))).collect()
    };
    let table = [
        (two(5, 5), 20, false, vec![(5, 5), (5, 5)]),
        (two(5, 5), 15, true, vec![(5, 3), (5, 2)]),
        (two(5, 5), 7, true, vec![(4, 0), (3, 0)]),
    ];
    for (mut subsets, max, wanted, left) in table {
        assert_eq!((truncate(&mut subsets, max), sizes(&subsets)), (wanted, left), "{max}");
    }
}
