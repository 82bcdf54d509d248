//! The default roles and bindings of a cluster, those of Kubernetes 1.36.
//!
//! They are tables (`defaults/*.json`), and those of Plumb's components ([`components`]). At every start missing roles and rules
//! are restored, and added ones stay, unless the annotation `rbac.authorization.kubernetes.io/autoupdate` is `false`. The
//! controller of aggregated roles writes the rules of `admin`, `edit` and `view`.

mod components;

use std::collections::BTreeMap;

use plumb_store::{Edit, Key, UpdateError, Write, WriteError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::RBAC_GROUP;
use super::escalation::uncovered;
use super::rule::Rule;
use crate::error::ApiError;
use crate::kinds::Row;
use crate::object::{decode, encode, metadata};
use crate::registry::{Context, rest};
use crate::server::ApiServer;
use crate::write;

const ROLE_TABLES: [(&str, &str); 6] = [
    ("clusterroles", include_str!("defaults/cluster_roles.json")),
    ("clusterroles", include_str!("defaults/controller_roles.json")),
    // Elsewhere metrics-server's manifests create these.
    ("clusterroles", include_str!("defaults/metrics_roles.json")),
    ("roles", include_str!("defaults/roles.json")),
    // Elsewhere kubeadm creates these: machines join with a token, and get certificates.
    ("clusterroles", include_str!("defaults/join_roles.json")),
    ("roles", include_str!("defaults/join_local_roles.json")),
];
const BINDING_TABLES: [(&str, &str); 4] = [
    ("clusterrolebindings", include_str!("defaults/cluster_role_bindings.json")),
    ("rolebindings", include_str!("defaults/role_bindings.json")),
    ("clusterrolebindings", include_str!("defaults/join_bindings.json")),
    ("rolebindings", include_str!("defaults/join_local_bindings.json")),
];
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
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
struct Wanted {
    plural: &'static str,
    namespace: Option<String>,
    object: Value,
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

fn wanted() -> impl Iterator<Item = Wanted> {
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
            Wanted { plural, namespace: line.namespace, object }
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
            Wanted { plural, namespace: line.namespace, object }
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

/// Creates the default roles and bindings, and restores what they lack.
pub(crate) fn ensure(server: &ApiServer) -> Result<(), ApiError> {
    let mut creations = Vec::new();
    for wanted in wanted() {
        let Some(row) = server.kinds().find(RBAC_GROUP, wanted.plural) else { continue };
        let name = crate::object::meta(&wanted.object, "name").to_owned();
        let key = row.key(wanted.namespace.as_deref(), &name)?;
        if server.store().get(&key).is_some() {
            reconcile(server, &row, &key, wanted)?;
        } else {
            let object = fresh(server, &row, wanted)?;
            creations.push(Write::create(key, encode(&row, &object)?));
        }
    }
    if creations.is_empty() {
        return Ok(());
    }
    // The server is not ready yet, so there are no other writers.
    server.store().transact(creations).wait().map(drop).map_err(|error| write::store_failed(&error))
}

fn fresh(server: &ApiServer, row: &Row, wanted: Wanted) -> Result<Value, ApiError> {
    let mut object = wanted.object;
    if let Some(namespace) = wanted.namespace {
        metadata(&mut object).insert("namespace".into(), json!(namespace));
    }
    let cx = Context::of_server(server, row);
    row.strategy().apply_defaults(cx, &Value::Null, &mut object)?;
    write::fill_system_fields(server, row, &mut object);
    rest::prepare_for_create(cx, &mut object)?;
    Ok(object)
}

fn reconcile(server: &ApiServer, row: &Row, key: &Key, wanted: Wanted) -> Result<(), ApiError> {
    let stored = server.store().get(key).map(|stored| decode(&stored.value)).transpose()?;
    let Some(stored) = stored else { return Ok(()) };
    if stored["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return Ok(());
    }
    let expected = wanted.object.clone();
    // The role of a binding is immutable: the binding is created anew.
    let replacement = match stored.get("roleRef") {
        Some(role) if *role != expected["roleRef"] => Some(fresh(server, row, wanted)?),
        _ => None,
    };
    let edit = |current: Option<&std::sync::Arc<plumb_store::Object>>| -> Result<Option<Edit>, ApiError> {
        let Some(current) = current else { return Ok(None) };
        let old = decode(&current.value)?;
        let new = replacement.clone().unwrap_or_else(|| completed(&old, &expected));
        if new == old {
            return Ok(None);
        }
        Ok(Some(Edit::put(encode(row, &new)?)))
    };
    match server.store().update(key, edit).wait() {
        Ok(_) | Err(UpdateError::Write(WriteError::Conflict(_))) => Ok(()),
        Err(UpdateError::Refused(error)) => Err(error),
        Err(UpdateError::Write(error)) => Err(write::store_failed(&error)),
    }
}

/// The stored object with what it lacks of the default one.
fn completed(old: &Value, expected: &Value) -> Value {
    let mut new = old.clone();
    for field in ["labels", "annotations"] {
        let own = metadata(&mut new).entry(field).or_insert_with(|| json!({}));
        for (key, value) in expected["metadata"][field].as_object().into_iter().flatten() {
            if own.get(key).is_none() {
                own[key] = value.clone();
            }
        }
    }
    let missing = uncovered(&Rule::all_of(old), &Rule::all_of(expected));
    if !missing.is_empty() {
        let mut rules = Rule::all_of(old);
        rules.extend(missing);
        new["rules"] = json!(rules);
    }
    add_missing(&mut new, expected, "/subjects", "subjects");
    let selectors = "/aggregationRule/clusterRoleSelectors";
    if expected.pointer(selectors).is_none() {
        if let Some(fields) = new.as_object_mut() {
            fields.remove("aggregationRule");
        }
    } else {
        if !new["aggregationRule"].is_object() {
            new["aggregationRule"] = json!({});
        }
        let mut inner = new["aggregationRule"].take();
        add_missing(
            &mut inner,
            &expected["aggregationRule"],
            "/clusterRoleSelectors",
            "clusterRoleSelectors",
        );
        new["aggregationRule"] = inner;
    }
    new
}

/// Adds to a list the items that it lacks.
fn add_missing(new: &mut Value, expected: &Value, pointer: &str, field: &str) {
    for item in expected.pointer(pointer).and_then(Value::as_array).into_iter().flatten() {
        let list = new.pointer(pointer).and_then(Value::as_array);
        if !list.is_some_and(|list| list.contains(item)) {
            let mut list = list.cloned().unwrap_or_default();
            list.push(item.clone());
            new[field] = json!(list);
        }
    }
}
