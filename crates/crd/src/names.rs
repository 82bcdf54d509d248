//! The names that definitions have accepted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// A condition of a definition's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The type of the condition.
    pub ty: &'static str,
    /// Whether the condition is true.
    pub holds: bool,
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
            holds: true,
            reason: "InstanceDeletionInProgress",
            message: "CustomResource deletion is in progress".to_owned(),
        }
    }

    /// Sets the condition in a definition's status. `lastTransitionTime` changes only with the status of the condition.
    pub fn set(&self, definition: &mut Value, now: &str) {
        let status = if self.holds { "True" } else { "False" };
        if !definition["status"]["conditions"].is_array() {
            definition["status"]["conditions"] = json!([]);
        }
        let Some(list) = definition["status"]["conditions"].as_array_mut() else { return };
        let found = list.iter_mut().find(|condition| condition["type"] == self.ty);
        let since = match &found {
            Some(own) if own["status"] == status => own["lastTransitionTime"].clone(),
            _ => json!(now),
        };
        let condition = json!({
            "type": self.ty, "status": status, "lastTransitionTime": since, "reason": self.reason,
            "message": self.message,
        });
        match found {
            Some(own) => *own = condition,
            None => list.push(condition),
        }
    }
}

/// Whether a condition in a definition's status is true.
pub fn holds(definition: &Value, ty: &str) -> bool {
    let list = definition["status"]["conditions"].as_array();
    list.into_iter().flatten().any(|condition| condition["type"] == ty && condition["status"] == "True")
}

/// Accepts the names of a definition that no other definition of its group has, and establishes the definition if all
/// are accepted. `others` are the other definitions.
pub fn settle<'a>(definition: &mut Value, others: impl Iterator<Item = &'a Value>, now: &str) {
    let group = definition["spec"]["group"].clone();
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for other in others.filter(|other| other["spec"]["group"] == group) {
        let names = &other["status"]["acceptedNames"];
        let short = names["shortNames"].as_array().into_iter().flatten();
        let own = [&names["plural"], &names["singular"]].into_iter().chain(short);
        resources.extend(own.filter_map(Value::as_str).map(str::to_owned));
        kinds.extend(
            [&names["kind"], &names["listKind"]].into_iter().filter_map(Value::as_str).map(str::to_owned),
        );
    }
    let asked = definition["spec"]["names"].clone();
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
        let wanted: Vec<&str> = match &asked[field] {
            Value::String(name) => vec![name],
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let own = |name: &str| match &accepted[field] {
            Value::String(own) => own == name,
            Value::Array(list) => list.iter().any(|own| own == name),
            _ => false,
        };
        let clashes: Vec<String> = wanted
            .iter()
            .filter(|name| !own(name) && taken.contains(**name))
            .map(|name| format!("{name:?} is already in use"))
            .collect();
        match clashes.as_slice() {
            [] => put(&mut accepted, field, &asked[field]),
            [one] => conflict = Some((reason, one.clone())),
            several => conflict = Some((reason, format!("[{}]", several.join(", ")))),
        }
    }
    put(&mut accepted, "categories", &asked["categories"]);
    definition["status"]["acceptedNames"] = accepted;
    let (holds_now, reason, message) = match conflict {
        None => (true, "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => (false, reason, message),
    };
    Condition { ty: "NamesAccepted", holds: holds_now, reason, message }.set(definition, now);
    if holds(definition, "Established") {
        return;
    }
    let established = if holds_now {
        Condition {
            ty: "Established",
            holds: true,
            reason: "InitialNamesAccepted",
            message: "the initial names have been accepted".to_owned(),
        }
    } else {
        Condition {
            ty: "Established",
            holds: false,
            reason: "NotAccepted",
            message: "not all names are accepted".to_owned(),
        }
    };
    established.set(definition, now);
}

fn put(names: &mut Value, field: &str, value: &Value) {
    let Some(names) = names.as_object_mut() else { return };
    if value.is_null() {
        names.remove(field);
    } else {
        names.insert(field.to_owned(), value.clone());
    }
}
