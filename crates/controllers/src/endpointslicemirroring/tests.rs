use serde_json::{Value, json};

use super::decide::Decision;
use super::*;

fn endpoints(subsets: Value, annotations: Value) -> Endpoints {
    serde_json::from_value(json!({
        "metadata": {
            "name": "db", "namespace": "n", "uid": "u", "labels": { "team": "a" }, "annotations": annotations,
        },
        "subsets": subsets,
    }))
    .unwrap()
}

fn subsets() -> Value {
    json!([
        {
            "addresses": [{ "ip": "192.0.2.1", "hostname": "one", "nodeName": "node" }, { "ip": "2001:db8::1" }],
            "notReadyAddresses": [{ "ip": "192.0.2.2" }],
            "ports": [{ "name": "sql", "port": 5432 }],
        },
    ])
}

fn decided(endpoints: &Endpoints, slices: &[EndpointSlice]) -> Decision {
    let slices: Vec<Arc<EndpointSlice>> = slices.iter().cloned().map(Arc::new).collect();
    decide(endpoints, &slices, MAX_ENDPOINTS)
}

fn stored(changes: &Changes) -> Vec<EndpointSlice> {
    let numbered = changes.create.iter().cloned().enumerate().map(|(number, mut slice)| {
        slice.metadata.name = Some(format!("db-{number}"));
        slice
    });
    numbered.collect()
}

#[test]
fn a_subset_is_a_slice_of_each_family() {
    let annotations = json!({ "keep": "yes", "kubectl.kubernetes.io/last-applied-configuration": "{}" });
    let decision = decided(&endpoints(subsets(), annotations), &[]);
    assert_eq!(decision.notes, []);
    let metadata = json!({
        "generateName": "db-", "namespace": "n",
        "labels": {
            "team": "a", "kubernetes.io/service-name": "db",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
        },
        "annotations": { "keep": "yes" },
        "ownerReferences": [{
            "apiVersion": "v1", "kind": "Endpoints", "name": "db", "uid": "u", "controller": true, "blockOwnerDeletion": true,
        }],
    });
    let slice = |address_type: &str, endpoints: Value| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": address_type,
            "ports": [{ "name": "sql", "port": 5432, "protocol": "TCP" }], "endpoints": endpoints,
        })
    };
    let found: Vec<Value> =
        decision.changes.create.iter().map(|slice| serde_json::to_value(slice).unwrap()).collect();
    assert_eq!(
        found,
        [
            slice(
                "IPv4",
                json!([
                    { "addresses": ["192.0.2.1"], "conditions": { "ready": true }, "hostname": "one", "nodeName": "node" },
                    { "addresses": ["192.0.2.2"], "conditions": { "ready": false } },
                ])
            ),
            slice("IPv6", json!([{ "addresses": ["2001:db8::1"], "conditions": { "ready": true } }])),
        ]
    );
    let slices = stored(&decision.changes);
    assert!(decided(&endpoints(subsets(), json!({ "keep": "yes" })), &slices).changes.is_empty());
}

#[test]
fn changes_are_updates_of_the_slice_that_is_there() {
    let before = endpoints(subsets(), json!({}));
    let slices = stored(&decided(&before, &[]).changes);
    let counts = |decision: &Decision| {
        let Changes { create, update, delete } = &decision.changes;
        (create.len(), update.len(), delete.len())
    };
    let change = |edit: &dyn Fn(&mut Endpoints)| {
        let mut after = before.clone();
        edit(&mut after);
        counts(&decided(&after, &slices))
    };
    let first = |endpoints: &mut Endpoints| endpoints.subsets.as_mut().unwrap().remove(0);
    assert_eq!(change(&|_| {}), (0, 0, 0));
    assert_eq!(change(&|after| _ = after.metadata.labels.take()), (0, 2, 0));
    assert_eq!(change(&|after| after.metadata.uid = Some("other".to_owned())), (0, 2, 0));
    assert_eq!(change(&|after| _ = first(after)), (0, 0, 2));
    // Other ports are other slices, which take the place of those that are there.
    assert_eq!(
        change(&|after| {
            let mut subset = first(after);
            subset.ports.as_mut().unwrap()[0].port = 1;
            after.subsets = Some(vec![subset]);
        }),
        (0, 2, 0)
    );
    let mut twice = slices.clone();
    twice.push(EndpointSlice {
        metadata: kube::api::ObjectMeta { name: Some("more".to_owned()), ..slices[0].metadata.clone() },
        ..slices[0].clone()
    });
    assert_eq!(counts(&decided(&before, &twice)), (0, 0, 1));
}

#[test]
fn what_is_not_mirrored_is_an_event() {
    let addresses: Vec<Value> =
        (0..1003).map(|number| json!({ "ip": format!("10.0.{}.{}", number / 256, number % 256) })).collect();
    let subsets = json!([{ "addresses": addresses, "ports": [{ "port": 80 }] }, { "addresses": [{ "ip": "nonsense" }], "ports": [{ "port": 81 }] }]);
    let decision = decided(&endpoints(subsets, json!({})), &[]);
    let messages: Vec<(&str, &str)> =
        decision.notes.iter().map(|note| (note.reason, &*note.message)).collect();
    assert_eq!(
        messages,
        [
            ("InvalidIPAddress", "Skipped 1 invalid IP addresses when mirroring to EndpointSlices"),
            (
                "TooManyAddressesToMirror",
                "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 4 addresses were skipped",
            ),
        ]
    );
    assert_eq!(decision.changes.create[0].endpoints.as_ref().unwrap().len(), 1000);
}

#[test]
fn endpoints_can_be_left_out() {
    let mut skipped = endpoints(subsets(), json!({}));
    assert!(is_mirrored(&skipped));
    skipped
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert("endpointslice.kubernetes.io/skip-mirror".to_owned(), "true".to_owned());
    assert!(!is_mirrored(&skipped));
    assert!(!is_mirrored(&endpoints(subsets(), json!({ "control-plane.alpha.kubernetes.io/leader": "{}" }))));
}
