//! Nodes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME};
use super::layout::Layout;
use super::view::{View, or};

pub(super) const LAYOUTS: &[Layout] = &[
    Layout::new(
        "",
        "Node",
        &[
            NAME,
            Column::text("Status", "whether the node is ready, and whether it takes new pods"),
            Column::text("Roles", "what the node is for, by its labels"),
            AGE,
            Column::text("Version", "the version of the node agent"),
            Column::text("Internal-IP", "the node's first address inside the cluster").wide(),
            Column::text("External-IP", "the node's first address outside the cluster").wide(),
            Column::text("OS-Image", "the operating system").wide(),
            Column::text("Kernel-Version", "the version of the kernel, and the architecture").wide(),
            Column::text("Container-Runtime", "the container runtime and its version").wide(),
        ],
        node,
    ),
    Layout::new(
        "node.k8s.io",
        "RuntimeClass",
        &[NAME, Column::text("Handler", "the runtime configuration that runs the class's pods"), AGE],
        |object| json!([object.name(), object.text("/handler"), object.age()]),
    ),
];

fn node(node: View<'_>) -> Value {
    let info = |field: &str| node.text_or(field, "<unknown>");
    let architecture = node.text("/status/nodeInfo/architecture");
    let mut kernel = info("/status/nodeInfo/kernelVersion").to_owned();
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    json!([
        node.name(),
        status(node),
        roles(node),
        node.age(),
        node.text("/status/nodeInfo/kubeletVersion"),
        address(node, "InternalIP"),
        address(node, "ExternalIP"),
        info("/status/nodeInfo/osImage"),
        kernel,
        info("/status/nodeInfo/containerRuntimeVersion"),
    ])
}

fn status(node: View<'_>) -> String {
    let ready = match node.condition("Ready").map(|ready| ready.text("/status")) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    };
    let cordoned = if node.flag("/spec/unschedulable") { ",SchedulingDisabled" } else { "" };
    format!("{ready}{cordoned}")
}

/// A node's roles are in the keys of labels below `node-role.kubernetes.io`, or in the value of one label.
fn roles(node: View<'_>) -> String {
    let roles: BTreeSet<&str> = node
        .entries("/metadata/labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => (key == "kubernetes.io/role").then_some(value),
        })
        .filter(|role| !role.is_empty())
        .collect();
    or(roles.into_iter().collect::<Vec<_>>().join(","), "<none>")
}

fn address<'a>(node: View<'a>, kind: &str) -> &'a str {
    let mut addresses = node.items("/status/addresses");
    addresses.find(|address| address.text("/type") == kind).map_or("<none>", |found| found.text("/address"))
}
