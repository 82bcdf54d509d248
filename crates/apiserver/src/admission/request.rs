//! `AdmissionRequest`s for webhooks and CEL expressions.

use serde_json::{Value, json};

use super::Attributes;
use super::matching::{Invocation, name};
use crate::kinds::Row;

/// The `AdmissionRequest` of a write, without the objects.
pub(super) fn of(uid: &str, invocation: &Invocation, attributes: &Attributes<'_>, new: &Value) -> Value {
    // The kind of a subresource can have a version of its own.
    let below = (!attributes.is_whole()).then(|| attributes.kind());
    let of_kind = |row: &Row| {
        let (group, version, kind) = below.unwrap_or((row.group(), row.version(), row.kind()));
        json!({ "group": group, "version": version, "kind": kind })
    };
    let of_resource =
        |row: &Row| json!({ "group": row.group(), "version": row.version(), "resource": row.plural() });
    let requested = attributes.request_row();
    let user = attributes.user;
    let mut request = json!({
        "uid": uid,
        "kind": of_kind(&invocation.row),
        "resource": of_resource(&invocation.row),
        "requestKind": of_kind(requested),
        "requestResource": of_resource(requested),
        "operation": attributes.operation.name(),
        "userInfo": { "username": user.name(), "groups": user.groups() },
        "object": null,
        "oldObject": null,
        "dryRun": attributes.dry_run,
        "options": attributes.options.to_value(),
    });
    let texts = [
        ("name", name(attributes, new)),
        ("namespace", attributes.namespace.unwrap_or_default()),
        ("subResource", attributes.subresource.unwrap_or_default()),
        ("requestSubResource", attributes.subresource.unwrap_or_default()),
    ];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        request[field] = json!(text);
    }
    if !user.uid().is_empty() {
        request["userInfo"]["uid"] = json!(user.uid());
    }
    if !user.extra().is_empty() {
        request["userInfo"]["extra"] = json!(user.extra());
    }
    request
}
