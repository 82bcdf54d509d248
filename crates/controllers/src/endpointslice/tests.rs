use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointHints;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decide::{Changes, Decision};
use super::*;

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn service(more: Value) -> Service {
    let mut service = json!({
        "metadata": { "name": "web", "namespace": "n", "uid": "service", "labels": { "team": "a" } },
        "spec": {
            "clusterIP": "10.96.0.7", "ipFamilies": ["IPv4"], "selector": { "app": "web" },
            "ports": [{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080 }],
        },
    });
    merge(&mut service, more);
    serde_json::from_value(service).unwrap()
}

/// A pod that is ready, on the node `n1`.
fn pod(number: usize, more: Value) -> Arc<Pod> {
    let name = format!("pod-{number:04}");
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "n", "uid": name, "labels": { "app": "web" } },
        "spec": { "nodeName": "n1", "containers": [] },
        "status": {
            "phase": "Running", "podIP": ip(number), "podIPs": [{ "ip": ip(number) }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    merge(&mut pod, more);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn ip(number: usize) -> String {
    // Three digits, so that endpoints are sorted by number.
    format!("10.64.{}.{}", 100 + number / 100, 100 + number % 100)
}

fn state(service: Service, pods: Vec<Arc<Pod>>, slices: Vec<Arc<EndpointSlice>>) -> State {
    let zones = [("n1", Some("east")), ("n2", Some("west")), ("n3", None)];
    State {
        service: Arc::new(service),
        pods,
        zones: zones.into_iter().map(|(node, zone)| (node.to_owned(), zone.map(str::to_owned))).collect(),
        cpu_ratios: CpuRatios::default(),
        assigned_hints: AssignedHints::default(),
        slices,
        trigger_time: Some("2026-01-01T00:00:00Z".parse().unwrap()),
    }
}

/// What an API server has after changes: slices of the names `slice-0`, `slice-1`, …
fn apply(slices: &[Arc<EndpointSlice>], changes: &Changes) -> Vec<Arc<EndpointSlice>> {
    let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap();
    let mut all: BTreeMap<String, Arc<EndpointSlice>> =
        slices.iter().map(|slice| (name(slice), slice.clone())).collect();
    for slice in &changes.update {
        assert!(
            all.insert(name(slice), Arc::new(slice.clone())).is_some(),
            "an update of a slice that is missing"
        );
    }
    for slice in &changes.delete {
        assert!(all.remove(&name(slice)).is_some());
    }
    let mut number = 0;
    for slice in &changes.create {
        let mut slice = slice.clone();
        while all.contains_key(&format!("slice-{number}")) {
            number += 1;
        }
        slice.metadata.name = Some(format!("slice-{number}"));
        all.insert(name(&slice), Arc::new(slice));
    }
    all.into_values().collect()
}

fn decided(service: Service, pods: Vec<Arc<Pod>>) -> Decision {
    decide(&state(service, pods, Vec::new()), MAX_ENDPOINTS)
}

/// The only slice of a Service.
fn only(service: Service, pods: Vec<Arc<Pod>>) -> EndpointSlice {
    let mut decision = decided(service, pods);
    assert_eq!(decision.changes.len(), 1, "{decision:?}");
    decision.changes.create.pop().unwrap()
}

#[test]
fn a_pod_is_an_endpoint_with_its_conditions() {
    let not_ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let terminating = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    let both = {
        let mut both = not_ready.clone();
        merge(&mut both, terminating.clone());
        both
    };
    let publish = json!({ "spec": { "publishNotReadyAddresses": true } });
    // Ready, serving, terminating; none if it is no endpoint.
    let table = [
        (json!({}), json!({}), Some([true, true, false])),
        (json!({}), not_ready.clone(), Some([false, false, false])),
        (json!({}), terminating.clone(), Some([false, true, true])),
        (json!({}), both.clone(), Some([false, false, true])),
        (publish.clone(), not_ready, Some([true, false, false])),
        (publish.clone(), terminating, Some([true, true, true])),
        (publish, both, Some([true, false, true])),
        (json!({}), json!({ "status": { "phase": "Succeeded" } }), None),
        (json!({}), json!({ "status": { "phase": "Failed" } }), None),
        (json!({}), json!({ "status": { "podIP": "", "podIPs": [] } }), None),
    ];
    for (of_service, of_pod, wanted) in table {
        let slice = only(service(of_service.clone()), vec![pod(1, of_pod.clone())]);
        let conditions = slice.endpoints.unwrap().pop().map(|endpoint| {
            let all = endpoint.conditions.unwrap();
            [all.ready, all.serving, all.terminating].map(Option::unwrap)
        });
        assert_eq!(conditions, wanted, "{of_service} {of_pod}");
    }
}

#[test]
fn a_slice_says_whose_it_is_and_where_its_endpoints_are() {
    let slice = only(service(json!({})), vec![pod(1, json!({}))]);
    assert_eq!(
        serde_json::to_value(&slice).unwrap(),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "generateName": "web-", "namespace": "n",
                "labels": {
                    "team": "a", "kubernetes.io/service-name": "web",
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                },
                "annotations": { "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z" },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "service",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "addressType": "IPv4",
            "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
            "endpoints": [{
                "addresses": [ip(1)], "nodeName": "n1", "zone": "east",
                "conditions": { "ready": true, "serving": true, "terminating": false },
                "targetRef": { "kind": "Pod", "namespace": "n", "name": "pod-0001", "uid": "pod-0001" },
            }],
        })
    );
}

#[test]
fn pods_whose_named_ports_differ_are_in_different_slices() {
    let port = |name: &str, number: i32| json!({ "containerPort": number, "name": name, "protocol": "TCP" });
    let container = |ports: Value| json!({ "spec": { "containers": [{ "name": "c", "ports": ports }] } });
    let sidecar = json!({ "spec": { "initContainers": [
        { "name": "no", "ports": [port("http", 1)] },
        { "name": "yes", "restartPolicy": "Always", "ports": [port("http", 9000)] },
    ] } });
    let pods = vec![
        pod(1, container(json!([port("http", 8080)]))),
        pod(2, container(json!([port("other", 1), port("http", 8080)]))),
        pod(3, container(json!([port("http", 9090)]))),
        pod(4, sidecar),
        // It has no such port, and is in a slice without it.
        pod(5, container(json!([{ "containerPort": 8080, "name": "http", "protocol": "UDP" }]))),
    ];
    let ports = json!({ "spec": { "ports": [{ "name": "http", "port": 80, "protocol": "TCP", "targetPort": "http" }] } });
    let decision = decided(service(ports), pods);
    let mut found: Vec<(Option<i32>, Vec<String>)> = decision
        .changes
        .create
        .into_iter()
        .map(|slice| {
            let endpoints = slice.endpoints.unwrap().into_iter().flat_map(|endpoint| endpoint.addresses);
            (slice.ports.unwrap().first().and_then(|port| port.port), endpoints.collect())
        })
        .collect();
    found.sort();
    let wanted = [
        (None, vec![ip(5)]),
        (Some(8080), vec![ip(1), ip(2)]),
        (Some(9000), vec![ip(4)]),
        (Some(9090), vec![ip(3)]),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn headless_services_have_hostnames_and_need_no_ports() {
    let headless = json!({ "spec": { "clusterIP": "None", "ports": null } });
    let named = json!({ "spec": { "hostname": "web-0", "subdomain": "web" } });
    let elsewhere = json!({ "spec": { "hostname": "web-1", "subdomain": "other" } });
    let slice = only(service(headless), vec![pod(1, named), pod(2, elsewhere)]);
    assert_eq!(slice.metadata.labels.unwrap()["service.kubernetes.io/headless"], "");
    assert_eq!(slice.ports, Some(vec![]));
    let hostnames: Vec<_> = slice.endpoints.unwrap().into_iter().map(|endpoint| endpoint.hostname).collect();
    assert_eq!(hostnames, [Some("web-0".to_owned()), None]);
}

#[test]
fn each_family_has_its_slices() {
    let both = json!({ "status": { "podIPs": [{ "ip": "10.64.0.1" }, { "ip": "fd00:0::1" }] } });
    let dual = service(json!({ "spec": { "ipFamilies": ["IPv6", "IPv4"] } }));
    let decision = decided(dual, vec![pod(1, both.clone())]);
    let found: Vec<_> = decision
        .changes
        .create
        .iter()
        .map(|slice| (&*slice.address_type, &*slice.endpoints.as_ref().unwrap()[0].addresses[0]))
        .collect();
    assert_eq!(found, [("IPv4", "10.64.0.1"), ("IPv6", "fd00::1")]);
    // A slice of a family that the Service lost is deleted.
    let slices = apply(&[], &decision.changes);
    let single = decide(&state(service(json!({})), vec![pod(1, both)], slices), MAX_ENDPOINTS);
    assert_eq!((single.changes.len(), &*single.changes.delete[0].address_type), (1, "IPv6"));
}

#[test]
fn a_pod_on_an_unknown_node_is_left_out_and_asked_about_again() {
    let lost = json!({ "spec": { "nodeName": "gone" } });
    let decision = decided(service(json!({})), vec![pod(1, lost.clone()), pod(2, json!({}))]);
    assert_eq!(decision.skipped, ["skipping Pod pod-0001 for Service n/web: Node gone Not Found"]);
    assert_eq!(decision.changes.create[0].endpoints.as_ref().unwrap().len(), 1);
    let publish = service(json!({ "spec": { "publishNotReadyAddresses": true } }));
    assert_eq!(decided(publish, vec![pod(1, lost)]).skipped, [""; 0]);
}

#[test]
fn hints_follow_the_traffic_distribution() {
    let pods = || {
        vec![
            pod(1, json!({})),
            pod(2, json!({ "spec": { "nodeName": "n2" } })),
            pod(3, json!({ "spec": { "nodeName": "n3" } })),
            pod(4, json!({ "status": { "conditions": [] } })),
        ]
    };
    let hints = |slice: &EndpointSlice| -> Vec<String> {
        let all = slice.endpoints.as_ref().unwrap().iter().map(|endpoint| {
            let hints = endpoint.hints.clone().unwrap_or_default();
            let zones = hints.for_zones.unwrap_or_default().into_iter().map(|zone| zone.name);
            zones
                .chain(hints.for_nodes.unwrap_or_default().into_iter().map(|node| node.name))
                .collect::<Vec<_>>()
                .join("+")
        });
        all.collect()
    };
    let with = |distribution: &str| service(json!({ "spec": { "trafficDistribution": distribution } }));
    let table = [
        (service(json!({})), ["", "", "", ""]),
        (with("PreferClose"), ["east", "west", "", ""]),
        (with("PreferSameZone"), ["east", "west", "", ""]),
        (with("PreferSameNode"), ["east+n1", "west+n2", "n3", ""]),
        (with("example.com/other"), ["", "", "", ""]),
    ];
    for (service, wanted) in &table {
        assert_eq!(hints(&only(service.clone(), pods())), wanted);
    }
    // A Service that changes its distribution changes its slices, whatever they were.
    for (before, _) in &table {
        for (after, wanted) in &table {
            let slices = apply(&[], &decided(before.clone(), pods()).changes);
            let changes = decide(&state(after.clone(), pods(), slices.clone()), MAX_ENDPOINTS).changes;
            let slices = apply(&slices, &changes);
            assert_eq!(hints(&slices[0]), wanted);
        }
    }
    let annotated = json!({
        "metadata": { "annotations": { "service.kubernetes.io/topology-mode": "Auto" } },
        "spec": { "trafficDistribution": "PreferClose" },
    });
    assert_eq!(hints(&only(service(annotated), pods())), ["", "", "", ""]);
}

#[test]
fn a_service_without_pods_has_an_empty_slice_which_the_first_pod_takes() {
    let decision = decided(service(json!({})), vec![]);
    let slices = apply(&[], &decision.changes);
    assert_eq!(slices[0].endpoints, Some(vec![]));
    let again = decide(&state(service(json!({})), vec![], slices.clone()), MAX_ENDPOINTS);
    assert!(again.changes.is_empty());
    let first =
        decide(&state(service(json!({})), vec![pod(1, json!({}))], slices.clone()), MAX_ENDPOINTS).changes;
    assert_eq!((first.create.len(), first.update.len(), first.delete.len()), (0, 1, 0));
    let slices = apply(&slices, &first);
    let last = decide(&state(service(json!({})), vec![], slices), MAX_ENDPOINTS).changes;
    assert_eq!((last.create.len(), last.update.len(), last.delete.len()), (0, 1, 0));
    assert_eq!(last.update[0].endpoints, Some(vec![]));
    assert_eq!(last.update[0].ports, Some(vec![]));
}

#[test]
fn labels_follow_the_service_and_slices_of_a_former_service_are_deleted() {
    let slices = apply(&[], &decided(service(json!({})), vec![pod(1, json!({}))]).changes);
    let relabelled =
        service(json!({ "metadata": { "labels": { "team": "b", "kubernetes.io/service-name": "x" } } }));
    let changes = decide(&state(relabelled, vec![pod(1, json!({}))], slices.clone()), MAX_ENDPOINTS).changes;
    let labels = changes.update[0].metadata.labels.clone().unwrap();
    assert_eq!((&*labels["team"], &*labels["kubernetes.io/service-name"]), ("b", "web"));
    let other = service(json!({ "metadata": { "uid": "other" } }));
    let changes = decide(&state(other, vec![pod(1, json!({}))], slices.clone()), MAX_ENDPOINTS).changes;
    assert_eq!((changes.create.len(), changes.update.len(), changes.delete.len()), (1, 0, 1));
    // No slice is created for a Service that is being deleted.
    let terminating = service(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    assert!(decided(terminating, vec![pod(1, json!({}))]).changes.is_empty());
}

/// Ranges of pods, the sizes of slices, and how many writes it takes.
type Row = (&'static [(usize, usize)], &'static [usize], usize);

#[test]
fn slices_are_filled_as_upstream_fills_them() {
    let pods = |numbers: &[(usize, usize)]| -> Vec<Arc<Pod>> {
        numbers.iter().flat_map(|(from, to)| *from..*to).map(|number| pod(number, json!({}))).collect()
    };
    let sizes = |slices: &[Arc<EndpointSlice>]| -> Vec<usize> {
        slices.iter().map(|slice| slice.endpoints.as_ref().unwrap().len()).collect()
    };
    let mut slices = Vec::new();
    let table: [Row; 6] = [
        (&[(0, 250)], &[100, 100, 50], 3),
        // The last slice takes the new one.
        (&[(0, 251)], &[100, 100, 51], 1),
        // Pods that are gone leave gaps that are not closed.
        (&[(0, 10), (20, 251)], &[90, 100, 51], 1),
        // The rest goes into the one slice that all of it fits into best.
        (&[(0, 10), (20, 260)], &[99, 100, 51], 1),
        // Slices that change anyway are filled first, the fullest of them before the others.
        (&[(0, 10), (20, 99), (101, 270)], &[100, 100, 58], 3),
        // What fits into no slice is a new one, though others have gaps.
        (&[(0, 10), (20, 99), (101, 325)], &[100, 100, 58, 55], 1),
    ];
    for (numbers, wanted, writes) in table {
        let changes =
            decide(&state(service(json!({})), pods(numbers), slices.clone()), MAX_ENDPOINTS).changes;
        slices = apply(&slices, &changes);
        assert_eq!((sizes(&slices), changes.len()), (wanted.to_vec(), writes), "{numbers:?}");
    }
}

/// A round of changes: which pods there are, and which of them are ready.
fn rounds() -> impl Strategy<Value = Vec<(BTreeSet<usize>, BTreeSet<usize>)>> {
    vec((btree_set(0..40_usize, 0..40), btree_set(0..40_usize, 0..8)), 1..8)
}

proptest! {
    /// Whatever changes, each pod is in one slice, no slice is too large, nothing is written twice, and there are few writes: at
    /// most one for each slice that loses or changes an endpoint, and as many as the new endpoints fill.
    #[test]
    fn each_endpoint_is_in_one_slice_and_writes_are_few(rounds in rounds(), max in 1..9_usize) {
        let mut slices: Vec<Arc<EndpointSlice>> = Vec::new();
        for (present, unready) in rounds {
            let pods: Vec<Arc<Pod>> = present.iter().map(|number| {
                let status = if unready.contains(number) { "False" } else { "True" };
                pod(*number, json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } }))
            }).collect();
            let state = state(service(json!({})), pods, slices.clone());
            let changes = decide(&state, max).changes;
            let addresses = |slice: &EndpointSlice| -> Vec<String> {
                slice.endpoints.iter().flatten().flat_map(|endpoint| endpoint.addresses.clone()).collect()
            };
            let wanted: BTreeSet<String> = present.iter().map(|number| ip(*number)).collect();
            let had: BTreeSet<String> = slices.iter().flat_map(|slice| addresses(slice)).collect();
            let touched = slices.iter().filter(|slice| slice.endpoints.iter().flatten().any(|endpoint| {
                let number = present.iter().find(|number| ip(**number) == endpoint.addresses[0]);
                let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
                number.is_none_or(|number| ready == Some(unready.contains(number)))
            })).count();
            let added = wanted.difference(&had).count();
            // One more for the empty slice of a Service without endpoints.
            prop_assert!(changes.len() <= touched + added.div_ceil(max) + 1, "{} writes", changes.len());
            let after = apply(&slices, &changes);
            let found: Vec<String> = after.iter().flat_map(|slice| addresses(slice)).collect();
            prop_assert_eq!(found.len(), wanted.len());
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), wanted);
            for slice in &after {
                prop_assert!(addresses(slice).len() <= max);
            }
            prop_assert!(after.len() == 1 || after.iter().all(|slice| !addresses(slice).is_empty()));
            let again = State { slices: after.clone(), ..state };
            prop_assert!(decide(&again, max).changes.is_empty());
            slices = after;
        }
    }
}

#[test]
fn the_annotation_for_topology_aware_routing_has_precedence_over_the_traffic_distribution() {
    let annotated = |annotation: &str| {
        service(json!({
            "metadata": { "annotations": { annotation: "Auto" } },
            "spec": { "trafficDistribution": "PreferSameNode" },
        }))
    };
    let node = |zone: &str| {
        json!({
            "metadata": { "labels": { "topology.kubernetes.io/zone": zone } },
            "status": { "allocatable": { "cpu": "1" }, "conditions": [{ "type": "Ready", "status": "True" }] },
        })
    };
    let nodes: Vec<Node> =
        ["east", "west"].map(|zone| serde_json::from_value(node(zone)).unwrap()).into_iter().collect();
    let pods = || vec![pod(1, json!({})), pod(2, json!({ "spec": { "nodeName": "n2" } }))];
    let decide_for = |service: Service, slices: Vec<Arc<EndpointSlice>>, assigned: AssignedHints| {
        let cpu_ratios = CpuRatios::from_nodes(&nodes);
        let state = State { cpu_ratios, assigned_hints: assigned, ..state(service, pods(), slices) };
        decide(&state, MAX_ENDPOINTS)
    };
    let zones = |slice: &EndpointSlice| -> Vec<Option<Vec<String>>> {
        let hints = slice.endpoints.iter().flatten().map(|endpoint| endpoint.hints.clone());
        let names = |hints: Option<EndpointHints>| {
            let hints = hints?;
            assert_eq!(hints.for_nodes, None);
            Some(hints.for_zones?.into_iter().map(|zone| zone.name).collect())
        };
        hints.map(names).collect()
    };
    let both = [Some(vec!["east".to_owned()]), Some(vec!["west".to_owned()])];
    for annotation in ["service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints"] {
        let first = decide_for(annotated(annotation), Vec::new(), AssignedHints::default());
        assert_eq!(zones(&first.changes.create[0]), both, "{annotation}");
        assert_eq!(first.notes[0].reason, "TopologyAwareHintsEnabled");
        let slices = apply(&[], &first.changes);
        let again = decide_for(annotated(annotation), slices.clone(), first.assigned_hints.clone());
        assert!(again.changes.is_empty() && again.notes.is_empty(), "{again:?}");
        // Without the annotation there are none.
        let removed = decide_for(service(json!({})), slices, first.assigned_hints);
        assert_eq!(zones(&removed.changes.update[0]), [None, None]);
        assert_eq!(removed.notes[0].reason, "TopologyAwareHintsDisabled");
        assert!(removed.assigned_hints.is_empty());
    }
}
