//! Creates the default roles and bindings of a cluster.
//!
//! At every start it restores missing roles, rules and subjects. Added ones stay. A role or binding whose annotation
//! `rbac.authorization.kubernetes.io/autoupdate` is `false` stays as it is.

use plumb_store::{Edit, Key, UpdateError, Write, WriteError};
use serde_json::{Value, json};

use crate::authz::RBAC_GROUP;
use crate::authz::defaults::{AUTOUPDATE, DefaultObject, default_objects};
use crate::authz::escalation::uncovered;
use crate::authz::rule::Rule;
use crate::cluster::Cluster;
use crate::error::{ApiError, store_failed};
use crate::kinds::{Row, encode, rest};
use crate::object::{decode, meta, metadata};

/// How many are created at once: etcd accepts 128 operations in a transaction.
const AT_ONCE: usize = 100;
/// How often it is tried while another API server does the same.
const ATTEMPTS: usize = 10;

/// Creates the default roles and bindings, and restores what they lack.
pub(crate) fn ensure(cluster: &Cluster) -> Result<(), ApiError> {
    for _ in 0..ATTEMPTS {
        if try_ensure(cluster)? {
            return Ok(());
        }
        cluster.store().refresh().wait().map_err(|error| store_failed(&error))?;
    }
    Err(ApiError::internal("another API server keeps changing the default roles"))
}

/// The same, unless another API server that starts at the same time creates some of them first.
fn try_ensure(cluster: &Cluster) -> Result<bool, ApiError> {
    let mut creations = Vec::new();
    for wanted in default_objects() {
        let Some(row) = cluster.kinds().find(RBAC_GROUP, wanted.plural) else { continue };
        let name = meta(&wanted.object, "name").to_owned();
        let key = row.key(wanted.namespace.as_deref(), &name)?;
        if cluster.store().get(&key).is_some() {
            reconcile(cluster, &row, &key, wanted)?;
        } else {
            let object = fresh(cluster, &row, wanted)?;
            creations.push(Write::create(key, encode(&row, &object)?));
        }
    }
    while !creations.is_empty() {
        let rest = creations.split_off(creations.len().min(AT_ONCE));
        let some = std::mem::replace(&mut creations, rest);
        match cluster.store().transact(some).wait() {
            Ok(_) => {}
            Err(WriteError::Conflict(_)) => return Ok(false),
            Err(error) => return Err(store_failed(&error)),
        }
    }
    Ok(true)
}

fn fresh(cluster: &Cluster, row: &Row, wanted: DefaultObject) -> Result<Value, ApiError> {
    let mut object = wanted.object;
    if let Some(namespace) = wanted.namespace {
        metadata(&mut object).insert("namespace".into(), json!(namespace));
    }
    let cx = cluster.context(row);
    row.strategy().apply_defaults(cx, &Value::Null, &mut object)?;
    rest::fill_system_fields(row, &mut object, cluster.now());
    rest::prepare_for_create(cx, &mut object)?;
    Ok(object)
}

fn reconcile(cluster: &Cluster, row: &Row, key: &Key, wanted: DefaultObject) -> Result<(), ApiError> {
    let stored = cluster.store().get(key).map(|stored| decode(&stored.value)).transpose()?;
    let Some(stored) = stored else { return Ok(()) };
    if stored["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return Ok(());
    }
    let expected = wanted.object.clone();
    // The role of a binding is immutable: the binding is created anew.
    let replacement = match stored.get("roleRef") {
        Some(role) if *role != expected["roleRef"] => Some(fresh(cluster, row, wanted)?),
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
    match cluster.store().update(key, edit).wait() {
        Ok(_) | Err(UpdateError::Write(WriteError::Conflict(_))) => Ok(()),
        Err(UpdateError::Refused(error)) => Err(error),
        Err(UpdateError::Write(error)) => Err(store_failed(&error)),
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
