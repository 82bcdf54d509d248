//! What the API server fills in when an object leaves something out.
//!
//! Defaults belong to types, not to kinds: a probe is completed in the same way in a pod, in a Deployment's
//! template and in a `CronJob`'s. So the rules are rows of tables, one row per type, and one walk along the
//! schema finds every place where a type occurs. The few that belong to a kind (a pod, but not a template,
//! requests what it limits) are rows of the kind's own type.
//!
//! ```text
//!   rows of  pod, volume, core, apps, …  ──▶  plan: per type, its row and the fields that lead to others
//!                                                       │
//!                                object ──────▶ walk ◀──┘ ──▶ object, complete
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

/// Every row there is.
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

/// Completes an object of a built-in kind as kube-apiserver 1.36 does, on its way in and out.
///
/// The object has been decoded: its types are right. Kinds that are not built in are left alone.
///
/// ```
/// use plumb_apiserver::defaults;
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

/// The text of a field; empty if there is none.
fn text<'a>(object: &'a Object, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A field that holds an object; an empty one is made if there is none.
fn child<'a>(object: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    object.entry(field).or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

/// The elements of a list; none if there is no list.
fn items<'a>(object: &'a mut Object, field: &str) -> impl Iterator<Item = &'a mut Object> {
    let list = object.get_mut(field).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Sets a field that is absent.
fn fill(object: &mut Object, field: &str, value: impl Into<Value>) {
    let slot = object.entry(field).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value.into();
    }
}

/// Sets a field that is absent or an empty text.
fn fill_text(object: &mut Object, field: &str, value: &str) {
    if text(object, field).is_empty() {
        object.insert(field.to_owned(), value.into());
    }
}
