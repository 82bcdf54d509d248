//! Pod templates of any kind.

use plumb_apischema::{Schema, semantic};
use serde_json::Value;

use super::disabled_fields;

/// Drops the fields of features that are off from the pod template at a JSON pointer, unless the stored object uses
/// them.
pub(super) fn drop_disabled_fields(template: &str, old: Option<&Value>, new: &mut Value) {
    let pointer = format!("{template}/spec");
    if let Some(spec) = new.pointer_mut(&pointer) {
        disabled_fields::drop_from_pod_spec(old.and_then(|old| old.pointer(&pointer)), spec);
    }
}

/// Whether two pod templates are semantically equal.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    let schema = Schema::builtin();
    let template = schema.kind("", "v1", "PodTemplate").and_then(|kind| schema[kind.body].field("template"));
    template.map_or(one == other, |template| semantic::equal(schema, template.ty, one, other))
}
