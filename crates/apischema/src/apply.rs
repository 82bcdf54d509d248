//! Server-side apply: managed fields, merging and conflicts.
//!
//! ```text
//!   an update ─▶ compare old and new ──▶ the manager owns what it changed, the others lose it ──▶ managedFields
//!   an apply ──▶ merge into the object ─▶ prune what is no longer applied ─▶ compare ─▶ conflict, or managedFields
//! ```
//!
//! All functions take a [`Type`], which is built from the schema table or from the schema of a CRD. The rules are those
//! of Kubernetes 1.36: associative lists are merged by their keys, atomic lists and maps are one value, and field paths
//! are those of `FieldsV1`.
//!
//! ```
//! use plumb_apischema::Schema;
//! use plumb_apischema::apply::{Ignored, OneVersion, Tracker};
//! use serde_json::json;
//!
//! let schema = Schema::builtin();
//! let kind = schema.kind("", "v1", "ConfigMap").ok_or("no config maps")?;
//! let versions = OneVersion { kind, api_version: "v1", ignored: &Ignored::Nothing };
//! let now = "2026-01-02T03:04:05Z";
//! let tracker = Tracker { versions: &versions, api_version: "v1", kind: "ConfigMap", subresource: "", now };
//!
//! let mut live = json!({"metadata": {"name": "a", "uid": "1"}, "data": {"x": "1"}});
//! tracker.create(&mut live, "kubectl-create");
//! let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "2"}});
//! let refused = tracker.apply(&live, &wanted, "robot", false).map_err(|error| error.to_string());
//!
//! assert_eq!(
//!     refused,
//!     Err("Apply failed with 1 conflict: conflict with \"kubectl-create\" using v1: .data.x".to_owned())
//! );
//! let forced = tracker.apply(&live, &wanted, "robot", true).map_err(|_| "refused")?;
//! assert_eq!(forced["data"]["x"], "2");
//! # Ok::<(), &str>(())
//! ```

mod conflict;
mod element;
mod fields;
mod managers;
mod scale;
mod set;
mod tracker;
mod types;
mod value;
mod versions;
mod walk;

use serde_json::{Map, Value};

pub use conflict::{Conflict, message as conflict_message};
pub use element::Element;
pub use fields::FieldsError;
pub use managers::{Manager, Managers, ManagersError, Operation};
pub use scale::{Replicas, Scale};
pub use set::FieldSet;
pub use tracker::{ApplyError, Tracker};
pub use types::{Type, Types};
pub use versions::{CustomVersions, Ignored, OneVersion, Versions};
pub use walk::{Comparison, TypeErrors};

use crate::schema::{Kind, Schema};
use crate::zero;

/// The set of all fields of an object, down to the leaves.
pub fn fields<'a>(ty: Type<'a>, object: &'a Value) -> Result<FieldSet<'a>, TypeErrors> {
    walk::collect(ty, object)
}

/// Compares two objects of a type.
pub fn compare<'a>(ty: Type<'a>, old: &'a Value, new: &'a Value) -> Result<Comparison<'a>, TypeErrors> {
    walk::compare(ty, old, new)
}

/// Merges `applied` into `live`.
pub fn merge(ty: Type<'_>, live: &Value, applied: &Value) -> Result<Value, TypeErrors> {
    walk::merge(ty, live, applied)
}

/// The paths of all atomic lists and maps in an object.
pub fn atomics(ty: Type<'_>, object: &Value) -> Vec<String> {
    walk::atomics(ty, object)
}

/// Extracts the fields of a set from an object.
pub fn extract(ty: Type<'_>, object: &Value, set: &FieldSet<'_>) -> Value {
    walk::extract(ty, object, set)
}

/// Removes the fields of a set from an object.
pub fn remove(ty: Type<'_>, object: &Value, set: &FieldSet<'_>) -> Value {
    walk::remove(ty, object, set)
}

/// Validates an applied object against its type: associative lists have no duplicates.
pub fn validate(ty: Type<'_>, object: &Value) -> Result<(), TypeErrors> {
    walk::validate(ty, object, false)
}

/// The empty object of a built-in kind, with the zero values that Go writes.
pub fn empty(schema: &Schema, kind: &Kind) -> Value {
    let mut object = Map::new();
    // An empty object does not exceed the budget.
    let _ = zero::fill(schema, kind.body, &mut object, &mut zero::Budget::new());
    object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    Value::Object(object)
}
