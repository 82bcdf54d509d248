//! The default roles and bindings of a cluster, those of Kubernetes 1.36.
//!
//! They are tables (`defaults/*.json`), and those of Plumb's components ([`components`]). The controller of
//! aggregated roles writes the rules of `admin`, `edit` and `view`. [`bootstrap_roles`](crate::bootstrap_roles) creates them.

mod components;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::RBAC_GROUP;
use super::rule::Rule;

const ROLE_TABLES: [(&str, &str); 8] = [
    ("clusterroles", include_str!("defaults/cluster_roles.json")),
    ("clusterroles", include_str!("defaults/controller_roles.json")),
    // Elsewhere metrics-server's manifests create these.
    ("clusterroles", include_str!("defaults/metrics_roles.json")),
    ("roles", include_str!("defaults/roles.json")),
    // Elsewhere kubeadm creates these: machines join with a token, and get certificates.
    ("clusterroles", include_str!("defaults/join_roles.json")),
    ("roles", include_str!("defaults/join_local_roles.json")),
    // Elsewhere the manifests of a provisioner create these.
    ("clusterroles", include_str!("defaults/volume_roles.json")),
    ("roles", include_str!("defaults/volume_local_roles.json")),
];
const BINDING_TABLES: [(&str, &str); 6] = [
    ("clusterrolebindings", include_str!("defaults/cluster_role_bindings.json")),
    ("rolebindings", include_str!("defaults/role_bindings.json")),
    ("clusterrolebindings", include_str!("defaults/join_bindings.json")),
    ("rolebindings", include_str!("defaults/join_local_bindings.json")),
    ("clusterrolebindings", include_str!("defaults/volume_bindings.json")),
    ("rolebindings", include_str!("defaults/volume_local_bindings.json")),
];
pub(crate) const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";

/// A row of a table of roles.
#[derive(Deserialize)]
struct RoleLine {
    #[serde(default)]
    namespace: Option<String>,
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    rules: Vec<Rule>,
    /// The labels of the roles that it aggregates.
    #[serde(default)]
    aggregate: Vec<BTreeMap<String, String>>,
}

/// A row of a table of bindings.
#[derive(Deserialize)]
struct BindingLine {
    #[serde(default)]
    namespace: Option<String>,
    name: String,
    role: String,
    #[serde(default)]
    subjects: Vec<SubjectLine>,
}

#[derive(Deserialize)]
struct SubjectLine {
    kind: String,
    #[serde(default)]
    namespace: Option<String>,
    name: String,
}

/// A default role or binding.
pub(crate) struct DefaultObject {
    pub(crate) plural: &'static str,
    pub(crate) namespace: Option<String>,
    pub(crate) object: Value,
}

fn lines<L: for<'de> Deserialize<'de>>(table: &'static str) -> Vec<L> {
    #[expect(clippy::expect_used, reason = "the table is part of the program, and a test reads all of it")]
    serde_json::from_str(table).expect("a table of default roles is well formed")
}

/// The rules of all nodes.
pub(super) fn node_rules() -> Vec<Rule> {
    let roles: Vec<RoleLine> = lines(ROLE_TABLES[0].1);
    roles.into_iter().find(|role| role.name == "system:node").map(|role| role.rules).unwrap_or_default()
}

/// The default roles and bindings.
pub(crate) fn default_objects() -> impl Iterator<Item = DefaultObject> {
    let tables = ROLE_TABLES.into_iter().map(|(plural, table)| (plural, lines::<RoleLine>(table)));
    let roles = tables.chain(components::roles()).flat_map(|(plural, lines)| {
        lines.into_iter().map(move |line| {
            let mut object = with_metadata(&line.name, &line.labels);
            object["rules"] = json!(line.rules);
            if !line.aggregate.is_empty() {
                let selectors: Vec<Value> =
                    line.aggregate.iter().map(|labels| json!({ "matchLabels": labels })).collect();
                object["aggregationRule"] = json!({ "clusterRoleSelectors": selectors });
                object["rules"] = Value::Null;
            }
            DefaultObject { plural, namespace: line.namespace, object }
        })
    });
    let tables = BINDING_TABLES.into_iter().map(|(plural, table)| (plural, lines::<BindingLine>(table)));
    let bindings = tables.chain(components::bindings()).flat_map(|(plural, lines)| {
        lines.into_iter().map(move |line| {
            let mut object = with_metadata(&line.name, &BTreeMap::new());
            let kind = if line.namespace.is_some() { "Role" } else { "ClusterRole" };
            object["roleRef"] = json!({ "apiGroup": RBAC_GROUP, "kind": kind, "name": line.role });
            let subjects: Vec<Value> = line.subjects.iter().map(SubjectLine::to_json).collect();
            if !subjects.is_empty() {
                object["subjects"] = json!(subjects);
            }
            DefaultObject { plural, namespace: line.namespace, object }
        })
    });
    roles.chain(bindings)
}

impl SubjectLine {
    fn to_json(&self) -> Value {
        let mut subject = json!({ "kind": self.kind, "name": self.name });
        match &self.namespace {
            Some(namespace) => subject["namespace"] = json!(namespace),
            None => subject["apiGroup"] = json!(RBAC_GROUP),
        }
        subject
    }
}

fn with_metadata(name: &str, labels: &BTreeMap<String, String>) -> Value {
    let mut object = json!({ "metadata": {
        "name": name,
        "labels": { BOOTSTRAPPING: "rbac-defaults" },
        "annotations": { AUTOUPDATE: "true" },
    } });
    for (key, value) in labels {
        object["metadata"]["labels"][key] = json!(value);
    }
    object
}
