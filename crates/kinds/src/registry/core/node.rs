//! Nodes.

mod validation;

use std::collections::BTreeSet;

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use crate::registry::{Context, MetadataChecks, Strategy, SubresourceHandler, disabled_fields};
use crate::warnings::addresses;
use plumb_apiserver::error::ApiError;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::{View, or};
use plumb_apiserver::validation::Errors;

/// The strategy of Nodes.
#[derive(Debug)]
pub(in crate::registry) struct NodeStrategy;

impl Strategy for NodeStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        Some(&["spec.unschedulable"])
    }

    fn subresource_handler(&self, name: &str) -> Option<SubresourceHandler> {
        (name == "proxy").then_some(SubresourceHandler::NodeProxy)
    }

    /// The node agent registers its node with a status.
    fn allow_status_on_create(&self) -> bool {
        true
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        let old = old.map(|old| &old["spec"]);
        if let Some(spec) = new.get_mut("spec") {
            disabled_fields::drop_unless_used(old, spec, &["configSource"]);
        }
    }

    fn prepare_for_status_update(
        &self,
        _cx: Context<'_>,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        disabled_fields::drop_unless_used(Some(&old["status"]), &mut new["status"], &["config"]);
        Ok(())
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::create(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update(old, new, errors);
    }

    fn validate_status_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update_status(old, new, errors);
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        warnings(&new["spec"])
    }

    fn warnings_on_update(&self, _old: &Value, new: &Value) -> Vec<String> {
        warnings(&new["spec"])
    }
}

/// Warnings about deprecated fields and ambiguous address ranges.
fn warnings(spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if spec.get("configSource").is_some_and(|source| !source.is_null()) {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if spec["externalID"].as_str().is_some_and(|id| !id.is_empty()) {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    for (i, range) in spec["podCIDRs"].as_array().into_iter().flatten().enumerate() {
        let range = range.as_str().unwrap_or_default();
        warnings.extend(addresses::range(&format!("spec.podCIDRs[{i}]"), range));
    }
    warnings
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
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
);

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
