//! Defaulting of built-in kinds.
//!
//! Defaults belong to types, not to kinds: a probe has the same defaults in a pod, in the pod template of a Deployment
//! and in that of a `CronJob`. So the defaults are rows of tables, one row per type, and a walk along the schema finds
//! all values of a type. The few that belong to a kind (requests default to limits in a pod, but not in a pod template)
//! are rows of the kind's own type.
//!
//! ```text
//!   rows of  pod, volume, core, apps, …  ──▶  plan: per type, its row and the fields that lead to others
//!                                                       │
//!                                object ──────▶ walk ◀──┘ ──▶ object with defaults
//! ```

mod access;
mod apps;
mod autoscaling;
mod batch;
mod core;
mod image;
mod network;
mod plan;
mod pod;
mod resources;
mod storage;
mod volume;

pub(crate) use pod::service_account;

use plumb_apischema::Schema;
use plumb_resize::rules::Rules;
use serde_json::{Map, Value};

use plan::{PLAN, Row};

/// A JSON object.
type Object = Map<String, Value>;

/// The tables of all defaults.
const TABLES: [&[Row]; 9] = [
    pod::ROWS,
    volume::ROWS,
    core::ROWS,
    apps::ROWS,
    batch::ROWS,
    autoscaling::ROWS,
    network::ROWS,
    storage::ROWS,
    access::ROWS,
];

/// Applies the defaults of kube-apiserver 1.36 to a decoded object of a built-in kind. Other kinds do not change.
///
/// ```
/// use plumb_kinds::defaults;
/// use plumb_resize::rules::Rules;
/// use serde_json::json;
///
/// let mut secret = json!({"data": {}});
/// defaults::apply("", "v1", "Secret", &mut secret, &Rules::kep());
/// assert_eq!(secret["type"], "Opaque");
/// ```
pub fn apply(group: &str, version: &str, kind: &str, object: &mut Value, rules: &Rules) {
    let schema = Schema::builtin();
    if let (Some(kind), Some(object)) = (schema.kind(group, version, kind), object.as_object_mut()) {
        PLAN.visit(schema, kind.body, object, rules);
    }
}

/// The string in a field; empty if the field is missing.
fn text<'a>(object: &'a Object, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The object in a field, which is created if it is missing.
fn child<'a>(object: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    object.entry(field).or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

/// The objects in a list; none if the list is missing.
fn items<'a>(object: &'a mut Object, field: &str) -> impl Iterator<Item = &'a mut Object> {
    let list = object.get_mut(field).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Sets a field that is missing.
fn fill(object: &mut Object, field: &str, value: impl Into<Value>) {
    let slot = object.entry(field).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value.into();
    }
}

/// Sets a field that is missing or an empty string.
fn fill_text(object: &mut Object, field: &str, value: &str) {
    if text(object, field).is_empty() {
        object.insert(field.to_owned(), value.into());
    }
}
