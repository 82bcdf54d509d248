use serde_json::{Value, json};

use super::*;

fn service(name: &str, more: Value) -> Arc<Service> {
    let mut service = json!({
        "metadata": { "name": name, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.7", "ipFamilies": ["IPv4"],
            "ports": [{ "port": 80, "protocol": "TCP" }],
        },
    });
    for (part, fields) in more.as_object().unwrap() {
        for (key, value) in fields.as_object().unwrap() {
            service[part][key] = value.clone();
        }
    }
    Arc::new(serde_json::from_value(service).unwrap())
}

fn with_addresses(ips: &[&str]) -> Value {
    let ingress: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip, "ipMode": "VIP" })).collect();
    json!({ "loadBalancer": { "ingress": ingress } })
}

fn node(name: &str, addresses: Value, more: Value) -> Option<NodeAddresses> {
    let mut node = json!({
        "metadata": { "name": name },
        "status": { "addresses": addresses, "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    for (part, fields) in more.as_object().unwrap() {
        for (key, value) in fields.as_object().unwrap() {
            node[part][key] = value.clone();
        }
    }
    NodeAddresses::new(&serde_json::from_value(node).unwrap())
}

fn internal(ip: &str) -> Value {
    json!([{ "type": "InternalIP", "address": ip }, { "type": "Hostname", "address": "host" }])
}

/// Two nodes that can take traffic, and three that cannot.
fn nodes() -> Vec<NodeAddresses> {
    let all = [
        node("a", internal("192.0.2.1"), json!({})),
        node("b", internal("192.0.2.2"), json!({})),
        node(
            "c",
            internal("192.0.2.3"),
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
        ),
        node(
            "d",
            internal("192.0.2.4"),
            json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } } }),
        ),
        node(
            "e",
            internal("192.0.2.5"),
            json!({ "spec": { "taints": [{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }] } }),
        ),
    ];
    all.into_iter().flatten().collect()
}

fn state(service: Arc<Service>) -> State {
    State { service, nodes: nodes(), rivals: Vec::new(), slices: Vec::new() }
}

/// The addresses that are written, and the reasons of events.
fn decided(state: &State) -> (Option<Vec<String>>, Vec<&'static str>) {
    let decision = decide(state);
    let ips = decision.ingress.map(|all| all.into_iter().filter_map(|one| one.ip).collect());
    (ips, decision.notes.iter().map(|note| note.reason).collect())
}

#[expect(clippy::unnecessary_wraps, reason = "what it is compared with may be none")]
fn ips(all: &[&str]) -> Option<Vec<String>> {
    Some(all.iter().map(|ip| (*ip).to_owned()).collect())
}

#[test]
fn a_load_balancer_has_the_addresses_of_nodes_that_can_take_traffic() {
    let both = ["192.0.2.1", "192.0.2.2"];
    let table = [
        (json!({}), ips(&both), vec!["EnsuredLoadBalancer"]),
        (json!({ "status": with_addresses(&both) }), None, vec![]),
        (json!({ "status": with_addresses(&["192.0.2.9"]) }), ips(&both), vec!["UpdatedLoadBalancer"]),
        (json!({ "spec": { "loadBalancerClass": CLASS } }), ips(&both), vec!["EnsuredLoadBalancer"]),
        (json!({ "spec": { "loadBalancerClass": "example.com/other" } }), None, vec![]),
        (
            json!({ "spec": { "loadBalancerIP": "192.0.2.2" } }),
            ips(&["192.0.2.2"]),
            vec!["EnsuredLoadBalancer"],
        ),
        (json!({ "spec": { "loadBalancerIP": "198.51.100.1" } }), None, vec!["SyncLoadBalancerFailed"]),
        (
            json!({ "spec": { "loadBalancerIP": "198.51.100.1" }, "status": with_addresses(&both) }),
            ips(&[]),
            vec!["SyncLoadBalancerFailed"],
        ),
        (json!({ "spec": { "ipFamilies": ["IPv6"] } }), None, vec![]),
        // The status is cleared when the type changes.
        (
            json!({ "spec": { "type": "ClusterIP" }, "status": with_addresses(&both) }),
            ips(&[]),
            vec!["DeletedLoadBalancer"],
        ),
        (json!({ "spec": { "type": "ClusterIP" } }), None, vec![]),
    ];
    for (more, wanted, events) in table {
        assert_eq!(decided(&state(service("web", more.clone()))), (wanted, events), "{more}");
    }
    let mut alone = state(service("web", json!({ "status": with_addresses(&both) })));
    alone.nodes.clear();
    assert_eq!(decided(&alone), (ips(&[]), vec!["UnAvailableLoadBalancer"]));
    let mut external = state(service("web", json!({})));
    let addresses = json!([{ "type": "InternalIP", "address": "192.0.2.6" }, { "type": "ExternalIP", "address": "203.0.113.1" }]);
    external.nodes.extend(node("f", addresses, json!({})));
    assert_eq!(decided(&external).0, ips(&["203.0.113.1"]));
}

#[test]
fn local_traffic_goes_to_nodes_with_ready_endpoints() {
    let mut state = state(service("web", json!({ "spec": { "externalTrafficPolicy": "Local" } })));
    assert_eq!(decided(&state), (None, vec![]));
    let endpoint = |node: &str, ready: bool| json!({ "addresses": ["10.64.0.1"], "nodeName": node, "conditions": { "ready": ready } });
    let slice = json!({ "addressType": "IPv4", "metadata": {}, "endpoints": [endpoint("a", false), endpoint("b", true), endpoint("c", true)] });
    state.slices = vec![Arc::new(serde_json::from_value(slice).unwrap())];
    assert_eq!(decided(&state).0, ips(&["192.0.2.2"]));
}

#[test]
fn a_port_belongs_to_the_service_that_has_it_and_then_to_the_older_one() {
    let created = |time: &str| json!({ "creationTimestamp": time });
    let (older, younger) = (created("2025-01-01T00:00:00Z"), created("2027-01-01T00:00:00Z"));
    let held = with_addresses(&["192.0.2.1", "192.0.2.2"]);
    let table = [
        (json!({}), json!({ "metadata": younger }), true),
        (json!({}), json!({ "metadata": older }), false),
        (json!({ "status": held }), json!({ "metadata": older }), true),
        (json!({ "metadata": older }), json!({ "metadata": younger, "status": held }), false),
    ];
    for (own, other, wins) in table {
        let mut state = state(service("web", own.clone()));
        state.rivals = vec![service("rival", other.clone())];
        let decision = decide(&state);
        let message = decision.notes.first().map(|note| &*note.message);
        let lost = "Error syncing load balancer: port TCP/80 is used by the Service n/rival";
        assert_eq!(message == Some(lost), !wins, "{own} {other}");
        // Each of two decides the same.
        let mut mirrored = State { service: state.rivals[0].clone(), ..state.clone() };
        mirrored.rivals = vec![state.service.clone()];
        let loses = decide(&mirrored).notes.iter().any(|note| note.reason == "SyncLoadBalancerFailed");
        assert_eq!(loses, wins);
    }
}
