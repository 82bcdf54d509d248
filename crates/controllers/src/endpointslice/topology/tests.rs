use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::*;

const IPV4: &str = "IPv4";

/// The zones of nodes with their CPU.
type Zones = &'static [(&'static str, &'static str)];
/// The zones of nodes, the zones of the endpoints, and the zones that these are for.
type Balanced = (Zones, &'static [&'static str], &'static [&'static str]);
/// The zones of nodes, the zones of the endpoints, and the reason of the event.
type Unbalanced = (Zones, &'static [&'static str], &'static str);

/// A ready node with so much CPU.
fn node(zone: &str, cpu: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": { "labels": { "topology.kubernetes.io/zone": zone } },
        "status": {
            "allocatable": { "cpu": cpu }, "conditions": [{ "type": "Ready", "status": "True" }],
        },
    }))
    .unwrap()
}

fn ratios(zones: &[(&str, &str)]) -> CpuRatios {
    let nodes: Vec<Node> = zones.iter().map(|(zone, cpu)| node(zone, cpu)).collect();
    CpuRatios::from_nodes(&nodes)
}

/// A slice with a ready endpoint in each of these zones: `-` makes one that is not ready, an empty name one without a zone.
fn slice(name: &str, zones: &[&str]) -> EndpointSlice {
    let endpoint = |zone: &&str| {
        let zone = Some(*zone).filter(|zone| !zone.is_empty());
        json!({ "addresses": ["10.0.0.1"], "zone": zone, "conditions": { "ready": zone != Some("-") } })
    };
    let endpoints: Vec<Value> = zones.iter().map(endpoint).collect();
    serde_json::from_value(json!({
        "metadata": { "name": name }, "addressType": IPV4, "endpoints": endpoints,
    }))
    .unwrap()
}

/// The zones that the endpoints of a slice are for.
fn hints(slice: &EndpointSlice) -> Vec<String> {
    let zones = slice.endpoints.iter().flatten().map(|endpoint| {
        let zones = endpoint.hints.as_ref().and_then(|hints| hints.for_zones.as_deref()).unwrap_or_default();
        zones.iter().map(|zone| zone.name.as_str()).collect::<Vec<_>>().join("+")
    });
    zones.collect()
}

fn message(note: Option<Note>) -> String {
    note.map(|note| format!("{}: {}", note.reason, note.message)).unwrap_or_default()
}

#[test]
fn each_zone_gets_endpoints_for_its_part_of_the_cpu() {
    let table: [Balanced; 5] = [
        (&[("a", "1"), ("b", "1")], &["a", "b"], &["a", "b"]),
        (&[("a", "1"), ("b", "1")], &["a", "a", "a", "b"], &["b", "a", "a", "b"]),
        // Several nodes, and CPU that is not equal.
        (&[("a", "500m"), ("a", "1500m"), ("b", "4")], &["a", "a", "b"], &["b", "a", "b"]),
        // A zone without an endpoint of its own.
        (&[("a", "1"), ("b", "1"), ("c", "1")], &["a", "a", "b"], &["c", "a", "b"]),
        // One that is not ready does not count.
        (&[("a", "1"), ("b", "1")], &["a", "-", "b"], &["a", "", "b"]),
    ];
    for (zones, endpoints, wanted) in table {
        let mut changes = Changes { create: vec![slice("new", endpoints)], ..Changes::default() };
        let mut assigned = AssignedHints::default();
        let note = assign(IPV4, &ratios(zones), Vec::new(), &mut changes, &mut assigned);
        assert_eq!(hints(&changes.create[0]), wanted, "{zones:?} {endpoints:?}");
        let enabled = "TopologyAwareHintsEnabled: Topology Aware Hints has been enabled, addressType: IPv4";
        assert_eq!(message(note), enabled);
        // The event is emitted once.
        let unchanged = vec![Arc::new(changes.create.remove(0))];
        assert_eq!(assign(IPV4, &ratios(zones), unchanged, &mut changes, &mut assigned), None);
    }
}

#[test]
fn there_are_no_hints_where_zones_cannot_be_balanced_and_an_event_says_why() {
    let even: Zones = &[("a", "1"), ("b", "1")];
    let nodes = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
    let table: [Unbalanced; 7] = [
        (&[("a", "1")], &["a", "a"], nodes),
        (&[("a", "1"), ("b", "1"), ("", "1")], &["a", "b"], nodes),
        (&[("a", "1"), ("b", "0")], &["a", "b"], nodes),
        (even, &["a"], "Insufficient number of endpoints (1 endpoints, 2 zones)"),
        (even, &["a", "-"], "Insufficient number of endpoints (1 endpoints, 2 zones)"),
        (
            &[("a", "1"), ("b", "1"), ("c", "1")],
            &["a", "a", "b", "c"],
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
             (4 endpoints, 3 zones)",
        ),
        (even, &["a", ""], "One or more endpoints do not have a zone specified"),
    ];
    for (zones, endpoints, reason) in table {
        let mut assigned = AssignedHints::default();
        let mut changes = Changes { create: vec![slice("new", endpoints)], ..Changes::default() };
        // Those of a slice that would stay as it is are removed.
        let mut hinted = slice("old", &["-"]);
        hinted.endpoints.as_mut().unwrap()[0].hints = Some(for_zone("a".to_owned()));
        let note = assign(IPV4, &ratios(zones), vec![Arc::new(hinted)], &mut changes, &mut assigned);
        assert_eq!(message(note), format!("TopologyAwareHintsDisabled: {reason}, addressType: IPv4"));
        assert!(hints(&changes.create[0]).iter().all(String::is_empty), "{reason}");
        assert_eq!((changes.update.len(), hints(&changes.update[0])), (1, vec![String::new()]), "{reason}");
        assert!(assigned.is_empty(), "{reason}");
    }
}

#[test]
fn nodes_that_are_not_ready_or_of_the_control_plane_do_not_count() {
    let mut unready = node("c", "8");
    unready.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "Unknown".to_owned();
    let mut control_plane = node("", "8");
    let label = ("node-role.kubernetes.io/control-plane".to_owned(), String::new());
    control_plane.metadata.labels.as_mut().unwrap().extend([label]);
    let nodes = [node("a", "1"), node("b", "3"), unready, control_plane];
    let found = CpuRatios::from_nodes(&nodes);
    let wanted = BTreeMap::from([("a".to_owned(), 0.25), ("b".to_owned(), 0.75)]);
    assert_eq!(found.by_zone(), Some(&wanted));
}

#[test]
fn a_slice_keeps_its_hints_while_other_zones_can_have_their_minimum() {
    let hinted = |zones: &[&str]| {
        let mut slice = slice("old", zones);
        for (endpoint, zone) in slice.endpoints.iter_mut().flatten().zip(zones) {
            endpoint.hints = Some(for_zone((*zone).to_owned()));
        }
        Arc::new(slice)
    };
    let even = ratios(&[("a", "1"), ("b", "1")]);
    // The hints of the slice, whether it is written, and the hints after it.
    let table: [(&[&str], usize); 3] =
        [(&["a", "a", "b", "b"], 0), (&["a", "a", "a", "a"], 1), (&["a", "z"], 1)];
    for (zones, writes) in table {
        let mut changes = Changes::default();
        assign(IPV4, &even, vec![hinted(zones)], &mut changes, &mut AssignedHints::default());
        assert_eq!(changes.update.len(), writes, "{zones:?}");
    }
}

#[test]
fn a_service_is_overloaded_when_a_zone_has_too_few_endpoints_by_now() {
    let mut assigned = AssignedHints::default();
    let even = ratios(&[("a", "1"), ("b", "1")]);
    let mut changes =
        Changes { create: vec![slice("new", &["a", "a", "a", "b", "b", "b"])], ..Changes::default() };
    assign(IPV4, &even, Vec::new(), &mut changes, &mut assigned);
    let table = [
        (even, false),
        (ratios(&[("a", "5"), ("b", "4")]), false),
        (ratios(&[("a", "3"), ("b", "1")]), true),
        (ratios(&[("a", "1"), ("b", "1"), ("c", "1")]), true),
        (ratios(&[("a", "1")]), true),
    ];
    for (ratios, wanted) in table {
        assert_eq!(assigned.is_overloaded(&ratios), wanted, "{ratios:?}");
        assert!(!AssignedHints::default().is_overloaded(&ratios));
    }
}

#[test]
fn removing_the_annotation_emits_an_event_if_there_were_hints() {
    let mut assigned = AssignedHints::default();
    assert_eq!(assigned.disable(IPV4), None);
    assigned.set(IPV4, Endpoints::from([("a".to_owned(), 1)]));
    let disabled = "TopologyAwareHintsDisabled: Topology Aware Hints has been disabled, addressType: IPv4";
    assert_eq!(message(assigned.disable(IPV4)), disabled);
    assert!(assigned.is_empty());
}
