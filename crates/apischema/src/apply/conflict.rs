//! Conflicts between field managers.

use serde_json::Value;

use super::element::{Element, display_path};
use super::managers::{Manager, Operation};
use super::set::FieldSet;

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The path of the field, as error messages display it.
    pub field: String,
    /// The manager: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The identifier of the manager, by which conflicts are sorted.
    pub(super) identity: String,
    pub(super) path: Vec<Element<'static>>,
}

impl Conflict {
    /// The conflicts with a manager that owns these fields.
    pub(super) fn all(manager: &Manager<'_>, fields: &FieldSet<'_>) -> Vec<Self> {
        let identity = manager.identity();
        let name = name(manager);
        let conflicts = fields.paths().into_iter().map(|path| Self {
            field: display_path(&path),
            manager: name.clone(),
            identity: identity.clone(),
            path: path.into_iter().map(Element::into_owned).collect(),
        });
        conflicts.collect()
    }
}

/// A manager as error messages display it.
fn name(manager: &Manager<'_>) -> String {
    let mut name = plumb_go::quote(&manager.name);
    if !manager.subresource.is_empty() {
        name = format!("{name} with subresource {:?}", manager.subresource);
    }
    if manager.operation == Operation::Update {
        name = format!("{name} using {}", manager.api_version);
    }
    name
}

/// The error message about conflicts.
pub fn message(conflicts: &[Conflict]) -> String {
    if let [conflict] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            conflict.manager, conflict.field
        );
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        if last != Some(&conflict.identity) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            last = Some(&conflict.identity);
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Sorts conflicts in the order of the message.
pub(super) fn ordered(mut conflicts: Vec<Conflict>) -> Vec<Conflict> {
    conflicts.sort_by(|one, other| one.identity.cmp(&other.identity));
    conflicts
}

/// The value of an annotation; empty if it is missing.
pub(super) fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations.and_then(|all| all.get(name)).and_then(Value::as_str).unwrap_or_default()
}
