//! The names that definitions have accepted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// A condition of a definition's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The type of the condition.
    pub ty: &'static str,
    /// Whether the condition is true.
    pub is_true: bool,
    /// The reason of the condition.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: String,
}

impl Condition {
    /// The condition of a definition that is terminating: its objects are deleted first.
    pub fn terminating() -> Self {
        Self {
            ty: "Terminating",
            is_true: true,
            reason: "InstanceDeletionInProgress",
            message: "CustomResource deletion is in progress".to_owned(),
        }
    }

    /// Sets the condition in a definition's status. `lastTransitionTime` changes only with the status of the condition.
    pub fn set(&self, definition: &mut Value, now: &str) {
        let status = if self.is_true { "True" } else { "False" };
        if !definition["status"]["conditions"].is_array() {
            definition["status"]["conditions"] = json!([]);
        }
        let Some(list) = definition["status"]["conditions"].as_array_mut() else { return };
        let found = list.iter_mut().find(|condition| condition["type"] == self.ty);
        let since = match &found {
            Some(existing) if existing["status"] == status => existing["lastTransitionTime"].clone(),
            _ => json!(now),
        };
        let condition = json!({
            "type": self.ty, "status": status, "lastTransitionTime": since, "reason": self.reason,
            "message": self.message,
        });
        match found {
            Some(existing) => *existing = condition,
            None => list.push(condition),
        }
    }
}

/// Whether a definition's status has a condition with status `True`.
pub fn is_condition_true(definition: &Value, ty: &str) -> bool {
    let list = definition["status"]["conditions"].as_array();
    list.into_iter().flatten().any(|condition| condition["type"] == ty && condition["status"] == "True")
}

/// Accepts the names of a definition that no other definition of its group has, and establishes the definition if all
/// are accepted. `others` are the other definitions.
pub fn accept_names<'a>(definition: &mut Value, others: impl Iterator<Item = &'a Value>, now: &str) {
    let group = definition["spec"]["group"].clone();
    // Plural, singular and short names share one namespace; kinds and list kinds another.
    let mut resources = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    for other in others.filter(|other| other["spec"]["group"] == group) {
        let names = &other["status"]["acceptedNames"];
        let short = names["shortNames"].as_array().into_iter().flatten();
        let taken = [&names["plural"], &names["singular"]].into_iter().chain(short);
        resources.extend(taken.filter_map(Value::as_str).map(str::to_owned));
        kinds.extend(
            [&names["kind"], &names["listKind"]].into_iter().filter_map(Value::as_str).map(str::to_owned),
        );
    }
    let requested = definition["spec"]["names"].clone();
    let mut accepted = match &definition["status"]["acceptedNames"] {
        names @ Value::Object(_) => names.clone(),
        _ => json!({}),
    };
    let mut conflict: Option<(&'static str, String)> = None;
    for (field, taken, reason) in [
        ("plural", &resources, "PluralConflict"),
        ("singular", &resources, "SingularConflict"),
        ("shortNames", &resources, "ShortNamesConflict"),
        ("kind", &kinds, "KindConflict"),
        ("listKind", &kinds, "ListKindConflict"),
    ] {
        let wanted: Vec<&str> = match &requested[field] {
            Value::String(name) => vec![name],
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let is_accepted = |name: &str| match &accepted[field] {
            Value::String(accepted) => accepted == name,
            Value::Array(list) => list.iter().any(|accepted| accepted == name),
            _ => false,
        };
        let conflicts: Vec<String> = wanted
            .iter()
            .filter(|name| !is_accepted(name) && taken.contains(**name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match conflicts.as_slice() {
            [] => set_name(&mut accepted, field, &requested[field]),
            [one] => conflict = Some((reason, one.clone())),
            several => conflict = Some((reason, format!("[{}]", several.join(", ")))),
        }
    }
    set_name(&mut accepted, "categories", &requested["categories"]);
    definition["status"]["acceptedNames"] = accepted;
    let (names_accepted, reason, message) = match conflict {
        None => (true, "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => (false, reason, message),
    };
    Condition { ty: "NamesAccepted", is_true: names_accepted, reason, message }.set(definition, now);
    // A definition stays established even if another definition takes one of its names.
    if is_condition_true(definition, "Established") {
        return;
    }
    let established = if names_accepted {
        Condition {
            ty: "Established",
            is_true: true,
            reason: "InitialNamesAccepted",
            message: "the initial names have been accepted".to_owned(),
        }
    } else {
        Condition {
            ty: "Established",
            is_true: false,
            reason: "NotAccepted",
            message: "not all names are accepted".to_owned(),
        }
    };
    established.set(definition, now);
}

fn set_name(names: &mut Value, field: &str, value: &Value) {
    let Some(names) = names.as_object_mut() else { return };
    if value.is_null() {
        names.remove(field);
    } else {
        names.insert(field.to_owned(), value.clone());
    }
}
