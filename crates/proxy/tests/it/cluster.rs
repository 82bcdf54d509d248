//! The objects of a cluster, and the proxy that observes them.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use plumb_controller_runtime::{ObjectRef, WatchEvent};
use plumb_proxy::services::{Event, Pods, Programmer, RulesConfig};
use serde_json::{Value, json};

use crate::machine::{BRIDGE, MACHINE};

pub(crate) const NODE: &str = "here";
pub(crate) const TABLE: &str = "plumb-test-services";

/// The address of a Service.
pub(crate) fn vip(number: u8, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 96, 1, number), port)
}

pub(crate) fn config() -> RulesConfig {
    RulesConfig {
        node: NODE.to_owned(),
        table: TABLE.to_owned(),
        pods: Pods::Bridge(BRIDGE.to_owned()),
        interface: BRIDGE.to_owned(),
        services: (Ipv4Addr::new(10, 96, 0, 0), 12),
        forward: true,
        local: BTreeSet::new(),
    }
}

/// A programmer that has listed nothing but the node; `None`, and the test is skipped, if the kernel lacks what it needs.
pub(crate) fn programmer() -> Option<Programmer> {
    let mut programmer = Programmer::new(&config());
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": NODE },
        "status": { "addresses": [{ "type": "InternalIP", "address": MACHINE.to_string() }] }
    }))
    .unwrap();
    programmer.observe(Event::Node(WatchEvent::Restarted(vec![node])));
    programmer.observe(Event::Service(WatchEvent::Restarted(Vec::new())));
    programmer.observe(Event::Slice(WatchEvent::Restarted(Vec::new())));
    if let Err(error) = programmer.apply() {
        plumb_testkit::skip(
            plumb_testkit::MACHINE,
            &format!("the kernel lacks what the rules need: {error}"),
        );
        return None;
    }
    Some(programmer)
}

/// A Service with the port 80 of TCP, at the virtual address of this number; `spec` is merged into its spec.
pub(crate) fn service(number: u8, spec: Value) -> Event {
    let mut object = json!({
        "metadata": { "name": format!("s{number}"), "namespace": "default" },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": vip(number, 80).ip().to_string(),
            "clusterIPs": [vip(number, 80).ip().to_string()],
            "ports": [{ "port": 80, "protocol": "TCP" }]
        }
    });
    for (key, value) in spec.as_object().unwrap() {
        if key == "status" {
            object["status"] = value.clone();
        } else {
            object["spec"][key] = value.clone();
        }
    }
    let service: Service = serde_json::from_value(object).unwrap();
    Event::Service(WatchEvent::Applied(Box::new(service)))
}

pub(crate) fn deleted(number: u8) -> Event {
    Event::Service(WatchEvent::Deleted(ObjectRef::namespaced("default", format!("s{number}"))))
}

/// An endpoint that is ready, on this node.
pub(crate) fn ready(address: Ipv4Addr) -> Value {
    json!({ "addresses": [address.to_string()], "nodeName": NODE, "conditions": { "ready": true } })
}

/// The endpoints of a Service, at this port.
pub(crate) fn endpoints(number: u8, protocol: &str, port: u16, endpoints: &[Value]) -> Event {
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {
            "name": format!("s{number}-x"),
            "namespace": "default",
            "labels": { "kubernetes.io/service-name": format!("s{number}") }
        },
        "addressType": "IPv4",
        "ports": [{ "port": port, "protocol": protocol, "name": "" }],
        "endpoints": endpoints
    }))
    .unwrap();
    Event::Slice(WatchEvent::Applied(Box::new(slice)))
}

/// Has the proxy observe events and apply them.
pub(crate) fn apply(programmer: &mut Programmer, events: impl IntoIterator<Item = Event>) {
    for event in events {
        programmer.observe(event);
    }
    programmer.apply().unwrap();
}
