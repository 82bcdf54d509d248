use std::net::{Ipv4Addr, SocketAddrV4};

use serde_json::{Value, json};

use super::*;
use crate::services::name::ServiceName;

fn node() -> Node {
    Node { name: "here".into(), zone: Some("a".into()), addresses: BTreeSet::new() }
}

fn name() -> ServicePortName {
    ServicePortName {
        service: ServiceName::new("default", "web"),
        protocol: Protocol::Tcp,
        port: "http".into(),
    }
}

fn port(internal_local: bool, external: Option<bool>) -> ServicePort {
    ServicePort {
        cluster_ip: Ipv4Addr::new(10, 96, 0, 9),
        port: 80,
        node_port: external.map(|_| 30_080),
        external_ips: BTreeSet::new(),
        load_balancer_ips: BTreeSet::new(),
        source_ranges: Vec::new(),
        affinity: None,
        internal_policy_local: internal_local,
        external_policy_local: external == Some(true),
    }
}

fn slice(endpoints: &Value) -> Slice {
    let slice = json!({
        "metadata": {},
        "addressType": "IPv4",
        "ports": [{ "name": "http", "port": 8080 }, { "name": "other", "port": 9090 }],
        "endpoints": endpoints
    });
    Slice::parse(&serde_json::from_value(slice).unwrap())
}

/// An endpoint by one letter for each of its properties: `r`eady, `s`erving, `t`erminating, `h`ere; `0` has no hints, `a` and
/// `b` are hints for a zone, `n` for this node and `m` for another.
fn endpoint(number: usize, properties: &str) -> Value {
    let has = |letter| properties.contains(letter);
    let mut hints = json!({});
    for (letter, zone) in [('a', "a"), ('b', "b")] {
        if has(letter) {
            hints["forZones"] = json!([{ "name": zone }]);
        }
    }
    for (letter, node) in [('n', "here"), ('m', "there")] {
        if has(letter) {
            hints["forNodes"] = json!([{ "name": node }]);
        }
    }
    json!({
        "addresses": [format!("10.64.0.{number}")],
        "nodeName": if has('h') { "here" } else { "there" },
        "conditions": { "ready": has('r'), "serving": has('s') || has('r'), "terminating": has('t') },
        "hints": hints
    })
}

/// The numbers of the endpoints that are chosen.
fn numbers(chosen: &[SocketAddrV4]) -> Vec<u8> {
    chosen.iter().map(|address| address.ip().octets()[3]).collect()
}

/// What a case has: its name, whether the internal policy is `Local`, the external one if there are external addresses, the
/// endpoints, those chosen for the policies `Cluster` and `Local`, and whether there is any.
type Case = (&'static str, bool, Option<bool>, &'static [&'static str], &'static [u8], &'static [u8], bool);

#[test]
fn endpoints_are_chosen_as_kube_proxy_chooses_them() {
    const CASES: &[Case] = &[
        ("all that are ready", false, None, &["r", "rh", ""], &[0, 1], &[], true),
        ("terminating ones while none is ready", false, None, &["st", "t", "", "sth"], &[0, 3], &[], true),
        ("no terminating ones beside a ready one", false, None, &["st", "r"], &[1], &[], true),
        ("none", false, None, &["", "t"], &[], &[], false),
        ("no endpoint", false, None, &[], &[], &[], false),
        ("local ones", true, None, &["r", "rh", "sth"], &[], &[1], true),
        ("local terminating ones while no local one is ready", true, None, &["r", "sth"], &[], &[1], true),
        ("elsewhere alone", true, None, &["r"], &[], &[], true),
        ("elsewhere alone, terminating", true, None, &["st"], &[], &[], true),
        ("both, from outside", false, Some(true), &["r", "rh"], &[0, 1], &[1], true),
        ("both, from inside", true, Some(false), &["r", "rh"], &[0, 1], &[1], true),
        ("none of them for the other policy", true, Some(false), &["st"], &[0], &[], true),
        ("those of the zone", false, None, &["ra", "rb", "a"], &[0], &[], true),
        ("all, since one has no hints", false, None, &["ra", "rb", "r"], &[0, 1, 2], &[], true),
        ("all, since none is for the zone", false, None, &["rb", "rb"], &[0, 1], &[], true),
        ("hints of those that are not ready do not count", false, None, &["ra", "rb", ""], &[0], &[], true),
        ("those of the node", false, None, &["ran", "ram", "rbn"], &[0, 2], &[], true),
        ("those of the zone, since none is for the node", false, None, &["ram", "rbm"], &[0], &[], true),
        ("a terminating one of another zone", false, None, &["stb"], &[0], &[], true),
        ("hints do not apply to local endpoints", true, None, &["rbh", "ra"], &[], &[0], true),
    ];
    for (what, internal, external, endpoints, cluster, local, any) in CASES {
        let found: Vec<Value> =
            endpoints.iter().enumerate().map(|(number, properties)| endpoint(number, properties)).collect();
        let slice = slice(&json!(found));
        let endpoints = endpoints_of(&name(), [&slice].into_iter(), &node());
        let chosen = choose(&port(*internal, *external), &endpoints, &node());
        assert_eq!(numbers(&chosen.cluster), *cluster, "{what}");
        assert_eq!(numbers(&chosen.local), *local, "{what}");
        assert_eq!(chosen.any, *any, "{what}");
    }
}

#[test]
fn a_node_without_a_zone_ignores_hints() {
    let slice = slice(&json!([endpoint(0, "ra"), endpoint(1, "rb")]));
    let node = Node { zone: None, ..node() };
    let endpoints = endpoints_of(&name(), [&slice].into_iter(), &node);
    assert_eq!(numbers(&choose(&port(false, None), &endpoints, &node).cluster), [0, 1]);
}

#[test]
fn an_endpoint_of_two_slices_counts_once_and_on_this_node_if_either_says_so() {
    let [here, there] = ["rh", "r"].map(|properties| slice(&json!([endpoint(4, properties)])));
    for slices in [[&here, &there], [&there, &here]] {
        let endpoints = endpoints_of(&name(), slices.into_iter(), &node());
        let chosen = choose(&port(true, None), &endpoints, &node());
        assert_eq!(chosen.local, [SocketAddrV4::new(Ipv4Addr::new(10, 64, 0, 4), 8080)]);
        assert_eq!(chosen.on_node, [Ipv4Addr::new(10, 64, 0, 4)].into());
    }
    // An address counts once for health checks, too, however many ports it has.
    assert_eq!(ready_on_node([&here, &there].into_iter(), &node()), 1);
    assert_eq!(ready_on_node([&there].into_iter(), &node()), 0);
}

#[test]
fn endpoints_on_the_loopback_and_the_link_of_the_machine_are_ignored() {
    for address in ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255"] {
        let slice = slice(&json!([{ "addresses": [address] }]));
        assert!(endpoints_of(&name(), [&slice].into_iter(), &node()).is_empty(), "{address}");
    }
}

#[test]
fn what_a_slice_leaves_out_has_the_defaults_of_the_api() {
    let slice = slice(&json!([
        { "addresses": ["10.64.0.7", "10.64.0.8"] },
        { "addresses": ["not an address"] },
        { "addresses": [] },
        { "addresses": ["10.64.0.9"], "conditions": { "ready": false } }
    ]));
    let endpoints = endpoints_of(&name(), [&slice].into_iter(), &node());
    let chosen = choose(&port(false, None), &endpoints, &node());
    assert_eq!(numbers(&chosen.cluster), [7]);
    // It may be on this node.
    assert_eq!(chosen.on_node.len(), 1);
    let other = ServicePortName { port: "third".into(), ..name() };
    assert!(endpoints_of(&other, [&slice].into_iter(), &node()).is_empty());
    let ipv6 = json!({ "metadata": {}, "addressType": "IPv6", "ports": [{ "name": "http", "port": 1 }],
        "endpoints": [{ "addresses": ["fd00::1"] }] });
    assert_eq!(Slice::parse(&serde_json::from_value(ipv6).unwrap()), Slice::default());
}
