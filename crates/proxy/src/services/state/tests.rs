use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::*;
use crate::services::decide::{ChainRules, SharedMap, Target};
use crate::services::kernel_table::Pods;

fn state() -> State {
    let mut state = State::new(&RulesConfig {
        node: "here".to_owned(),
        table: "t".to_owned(),
        pods: Pods::Addresses,
        interface: "lo".to_owned(),
        services: (Ipv4Addr::new(10, 96, 0, 0), 12),
        forward: false,
        local: ["10.96.0.1:443".parse().unwrap()].into(),
    });
    assert!(!state.is_synced());
    state.observe(Event::Node(WatchEvent::Restarted(Vec::new())));
    state.observe(Event::Service(WatchEvent::Restarted(Vec::new())));
    assert!(!state.is_synced());
    state.observe(Event::Slice(WatchEvent::Restarted(Vec::new())));
    assert!(state.is_synced());
    state
}

fn service(spec: &Value, labels: &Value) -> v1::Service {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "default", "labels": labels },
        "spec": spec,
        "status": { "loadBalancer": { "ingress": [{ "ip": "203.0.113.9" }, { "hostname": "x" }] } }
    }))
    .unwrap()
}

fn slice(endpoints: &Value) -> EndpointSlice {
    serde_json::from_value(json!({
        "metadata": {
            "name": "web-x",
            "namespace": "default",
            "labels": { "kubernetes.io/service-name": "web" },
            "annotations": { "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z" }
        },
        "addressType": "IPv4",
        "ports": [{ "name": "", "port": 8080 }],
        "endpoints": endpoints
    }))
    .unwrap()
}

fn applied(state: &mut State, service: v1::Service) -> BTreeMap<ServicePortName, PortRules> {
    state.observe(Event::Service(WatchEvent::Applied(Box::new(service))));
    let (mut changes, _) = state.take_changes();
    changes.pop_first().map(|(_, rules)| rules).unwrap_or_default()
}

fn targets(rules: &BTreeMap<ServicePortName, PortRules>) -> Vec<(SharedMap, String, Target)> {
    let entries = rules.values().flat_map(|rules| &rules.entries);
    entries
        .map(|(entry, target)| {
            let address = entry.address.map_or_else(String::new, |address| address.to_string());
            (entry.map, format!("{address}:{}", entry.port), target.clone())
        })
        .collect()
}

fn balancer(more: &Value) -> Value {
    let mut spec = json!({
        "type": "LoadBalancer", "clusterIP": "10.96.0.7", "externalIPs": ["198.51.100.4", "fd00::1"],
        "ports": [{ "port": 80, "nodePort": 30080 }]
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

#[test]
fn a_load_balancer_has_an_entry_for_each_of_its_addresses() {
    let mut state = state();
    let ready = json!([{ "addresses": ["10.64.0.2"], "nodeName": "there" }]);
    state.observe(Event::Slice(WatchEvent::Applied(Box::new(slice(&ready)))));
    let rules = applied(&mut state, service(&balancer(&json!({})), &json!({})));
    let inner = Target::Chain("service/default/web/tcp/".to_owned());
    let outer = Target::Chain("external/default/web/tcp/".to_owned());
    assert_eq!(
        targets(&rules),
        [
            (SharedMap::Cluster, "10.96.0.7:80".to_owned(), inner),
            (SharedMap::External, "198.51.100.4:80".to_owned(), outer.clone()),
            (SharedMap::External, "203.0.113.9:80".to_owned(), outer.clone()),
            (SharedMap::NodePorts, ":30080".to_owned(), outer.clone()),
        ]
    );
    // From outside only endpoints of this node: there is none, and packets that no other rule takes are dropped.
    let local = balancer(&json!({ "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000 }));
    let rules = applied(&mut state, service(&local, &json!({})));
    let dropped: Vec<_> = targets(&rules)
        .into_iter()
        .filter(|(_, _, target)| *target == Target::Drop)
        .map(|(map, ..)| map)
        .collect();
    assert_eq!(
        dropped,
        [SharedMap::ExternalUnavailable, SharedMap::ExternalUnavailable, SharedMap::NodePortsUnavailable]
    );
    let chains = &rules.values().next().unwrap().chains;
    assert!(
        matches!(&chains["external/default/web/tcp/"], ChainRules::OnNode { cluster: Some(_), local: None }),
        "{chains:?}"
    );
    let check = &state.health_checks()[&ServiceName::new("default", "web")];
    assert_eq!((check.port, check.ready), (31000, 0));
    // A health check is for load balancers with that policy alone.
    applied(&mut state, service(&balancer(&json!({ "healthCheckNodePort": 31000 })), &json!({})));
    assert!(state.health_checks().is_empty());
}

#[test]
fn services_that_others_serve_have_no_rules() {
    let mut state = state();
    let spec = json!({ "clusterIP": "10.96.0.7", "ports": [{ "port": 80 }] });
    assert_eq!(targets(&applied(&mut state, service(&spec, &json!({})))).len(), 2);
    for (what, spec, labels) in [
        ("headless", json!({ "clusterIP": "None", "ports": [{ "port": 80 }] }), json!({})),
        (
            "a name",
            json!({ "type": "ExternalName", "externalName": "x", "clusterIP": "10.96.0.7" }),
            json!({}),
        ),
        ("another proxy", spec.clone(), json!({ "service.kubernetes.io/service-proxy-name": "x" })),
        ("labelled headless", spec.clone(), json!({ "service.kubernetes.io/headless": "" })),
        ("IPv6", json!({ "clusterIP": "fd00::1", "ports": [{ "port": 80 }] }), json!({})),
        ("the machine", json!({ "clusterIP": "10.96.0.1", "ports": [{ "port": 443 }] }), json!({})),
    ] {
        let rules = applied(&mut state, service(&spec, &labels));
        // The address of the load balancer is not the machine's to serve itself.
        let served: Vec<_> =
            targets(&rules).into_iter().filter(|(map, ..)| *map != SharedMap::ExternalUnavailable).collect();
        assert_eq!(served, [], "{what}");
    }
}

#[test]
fn only_what_changes_is_computed_again() {
    let mut state = state();
    let spec = json!({ "clusterIP": "10.96.0.7", "ports": [{ "port": 80 }] });
    applied(&mut state, service(&spec, &json!({})));
    // Neither a change of something else nor the same object again is a change.
    assert_eq!(applied(&mut state, service(&spec, &json!({ "app": "web" }))), BTreeMap::new());
    let endpoints = json!([{ "addresses": ["10.64.0.2"] }]);
    let event = || Event::Slice(WatchEvent::Applied(Box::new(slice(&endpoints))));
    state.observe(event());
    let (changes, triggers) = state.take_changes();
    assert_eq!((changes.len(), triggers.len()), (1, 1));
    state.observe(event());
    assert!(state.take_changes().0.is_empty());
    // A list without the slice is a change, and so is one without the Service.
    state.observe(Event::Slice(WatchEvent::Restarted(Vec::new())));
    let (changes, _) = state.take_changes();
    let rules = changes.values().next().unwrap();
    assert_eq!(targets(rules)[0].2, Target::Reject);
    state.observe(Event::Service(WatchEvent::Restarted(Vec::new())));
    let (changes, _) = state.take_changes();
    assert!(changes.values().all(BTreeMap::is_empty), "{changes:?}");
}

#[test]
fn source_ranges_admit_the_addresses_of_the_balancer_where_they_admit_the_node() {
    let mut state = state();
    let node: v1::Node = serde_json::from_value(json!({
        "metadata": { "name": "here", "labels": { "topology.kubernetes.io/zone": "a" } },
        "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }] }
    }))
    .unwrap();
    state.observe(Event::Node(WatchEvent::Applied(Box::new(node))));
    for (ranges, expected) in [
        (json!(["198.51.100.0/24", "fd00::/8"]), vec![("198.51.100.0", 24)]),
        (json!(["192.1.0.0/16"]), vec![("192.1.0.0", 16)]),
        (json!([" 192.0.2.0/24 "]), vec![("192.0.2.0", 24), ("203.0.113.9", 32)]),
    ] {
        let spec = balancer(&json!({ "loadBalancerSourceRanges": ranges }));
        let rules = applied(&mut state, service(&spec, &json!({})));
        let chains = &rules.values().next().unwrap().chains;
        let expected: Vec<_> =
            expected.into_iter().map(|(network, prefix)| (network.parse().unwrap(), prefix)).collect();
        assert_eq!(
            chains["firewall/default/web/tcp/"],
            ChainRules::Firewall { allowed: expected },
            "{ranges}"
        );
    }
}
