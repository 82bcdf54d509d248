//! Services and EndpointSlices.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use plumb_dns::{Name, Zone};
use serde_json::{Value, json};

/// The address of the server.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// A Service in a namespace, with a spec.
pub(crate) fn service(namespace: &str, name: &str, spec: Value) -> Service {
    let metadata = json!({ "namespace": namespace, "name": name });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// A slice of a Service. Its endpoints are named like the Service and a suffix.
pub(crate) fn slice(
    namespace: &str,
    service: &str,
    suffix: &str,
    ports: Value,
    endpoints: Value,
) -> EndpointSlice {
    serde_json::from_value(json!({
        "metadata": {
            "namespace": namespace, "name": format!("{service}-{suffix}"),
            "labels": { "kubernetes.io/service-name": service },
        },
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    }))
    .unwrap()
}

pub(crate) fn domain() -> Name {
    Name::from_text("cluster.local").unwrap()
}

/// Services of every sort.
pub(crate) fn services() -> Vec<Service> {
    let http = json!({ "name": "http", "protocol": "TCP", "port": 80 });
    let metrics = json!({ "name": "metrics", "protocol": "UDP", "port": 9100 });
    vec![
        service(
            "shop",
            "web",
            json!({ "clusterIP": "10.96.1.1", "clusterIPs": ["10.96.1.1", "fd00::1"], "ports": [http, metrics] }),
        ),
        service("shop", "unnamed", json!({ "clusterIP": "10.96.1.2", "ports": [{ "port": 80 }] })),
        service("shop", "db", json!({ "clusterIP": "None", "clusterIPs": ["None"], "ports": [http] })),
        service("shop", "empty", json!({ "clusterIP": "None", "ports": [http] })),
        service("shop", "portless", json!({ "clusterIP": "None" })),
        service("shop", "outside", json!({ "type": "ExternalName", "externalName": "www.Example.com" })),
        service(
            "shop",
            "inside",
            json!({ "type": "ExternalName", "externalName": "web.shop.svc.cluster.local" }),
        ),
        service("shop", "address", json!({ "type": "ExternalName", "externalName": "192.0.2.1" })),
        service(
            "shop",
            "ring",
            json!({ "type": "ExternalName", "externalName": "ring.shop.svc.cluster.local" }),
        ),
        service(
            "default",
            "kubernetes",
            json!({ "clusterIP": "10.96.0.1", "ports": [{ "name": "https", "port": 443 }] }),
        ),
    ]
}

/// Slices of these Services.
pub(crate) fn slices() -> Vec<EndpointSlice> {
    let http = json!([{ "name": "http", "protocol": "TCP", "port": 8080 }]);
    let two = json!([
        { "name": "http", "protocol": "TCP", "port": 8080 }, { "name": "peer", "protocol": "TCP", "port": 7000 }
    ]);
    vec![
        slice("shop", "web", "a", http.clone(), json!([{ "addresses": ["10.64.0.2"] }])),
        slice(
            "shop",
            "db",
            "a",
            two.clone(),
            json!([
                { "addresses": ["10.64.0.10"], "hostname": "db-0", "conditions": { "ready": true } },
                { "addresses": ["10.64.0.11"], "hostname": "db-1", "conditions": { "ready": false } },
                { "addresses": ["10.64.0.12"], "conditions": {} },
            ]),
        ),
        // The same endpoint in a second slice, while it moves.
        slice("shop", "db", "b", two, json!([{ "addresses": ["10.64.0.10"], "hostname": "db-0" }])),
        slice(
            "shop",
            "empty",
            "a",
            http,
            json!([{ "addresses": ["10.64.0.20"], "conditions": { "ready": false } }]),
        ),
        slice(
            "shop",
            "portless",
            "a",
            Value::Null,
            json!([{ "addresses": ["10.64.0.30"], "hostname": "One" }]),
        ),
    ]
}

/// A zone of these.
pub(crate) fn zone() -> Zone {
    let mut zone = Zone::new(domain(), SERVER);
    zone.replace_services(&services());
    zone.replace_slices(&slices());
    zone
}
