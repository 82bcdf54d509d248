//! The plugin `Priority`: it resolves the priority class of a pod to a number.

use serde_json::{Value, json};

use plumb_apiserver::admission::{Attributes, Operation, Plugin};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::meta;
use plumb_apiserver::stored;

const CLASSES: (&str, &str) = ("scheduling.k8s.io", "priorityclasses");

/// Resolves the priority of pods, and rejects a second default class.
pub(crate) struct Priority;

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation != Operation::Delete
            && (attributes.is("", "pods") || attributes.is(CLASSES.0, CLASSES.1))
    }

    fn mutate(&self, attributes: &Attributes<'_>, new: &mut Value) -> Result<(), ApiError> {
        if !attributes.is("", "pods") {
            return Ok(());
        }
        if attributes.operation == Operation::Update {
            keep(&attributes.old["spec"], &mut new["spec"]);
            return Ok(());
        }
        let name = new["spec"]["priorityClassName"].as_str().unwrap_or_default();
        let class = match name {
            "" => the_default(attributes)?,
            name => {
                let missing =
                    || attributes.forbidden(&format!("no PriorityClass with name {name} was found"));
                Some(stored::one(attributes.cluster.store(), CLASSES, None, name)?.ok_or_else(missing)?)
            }
        };
        resolve(&mut new["spec"], class.as_ref()).map_err(|why| attributes.forbidden(&why))
    }

    fn validate(&self, attributes: &Attributes<'_>, new: &Value) -> Result<(), ApiError> {
        if !attributes.is(CLASSES.0, CLASSES.1) || new["globalDefault"] != true {
            return Ok(());
        }
        match the_default(attributes)? {
            Some(other)
                if attributes.operation == Operation::Create || meta(&other, "name") != attributes.name =>
            {
                let why = format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    meta(&other, "name")
                );
                Err(attributes.forbidden(&why))
            }
            _ => Ok(()),
        }
    }
}

/// The default class; the one with the lowest priority if concurrent writes created several.
fn the_default(attributes: &Attributes<'_>) -> Result<Option<Value>, ApiError> {
    let classes: Vec<Value> = stored::all(attributes.cluster.store(), CLASSES, None)?;
    let defaults = classes.into_iter().filter(|class| class["globalDefault"] == true);
    Ok(defaults.min_by_key(|class| class["value"].as_i64()))
}

/// Copies the priority fields that an update omits from the stored pod.
fn keep(old: &Value, new: &mut Value) {
    for field in ["priority", "preemptionPolicy"] {
        if new.get(field).is_none_or(Value::is_null)
            && let Some(value) = old.get(field)
        {
            new[field] = value.clone();
        }
    }
}

/// Sets the priority of a class in a spec, and rejects a spec with another one.
fn resolve(spec: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let (name, priority, policy) = match class {
        Some(class) => {
            (meta(class, "name"), class["value"].as_i64().unwrap_or(0), class.get("preemptionPolicy"))
        }
        None => ("", 0, Some(&Value::Null)),
    };
    if !name.is_empty() {
        spec["priorityClassName"] = json!(name);
    }
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
             controller computed {priority} from the given PriorityClass name"
        ));
    }
    spec["priority"] = json!(priority);
    let Some(policy) = policy else { return Ok(()) };
    let policy = policy.as_str().unwrap_or("PreemptLowerPriority");
    if let Some(given) = spec["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        ));
    }
    spec["preemptionPolicy"] = json!(policy);
    Ok(())
}

/// The two built-in classes.
pub(crate) fn system_classes() -> [Value; 2] {
    [
        (
            "system-cluster-critical",
            2_000_000_000,
            "For pods that the cluster needs, on whichever node they run.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "For pods that their node needs, and that cannot run elsewhere.",
        ),
    ]
    .map(|(name, value, description)| {
        json!({
            "metadata": { "name": name }, "value": value, "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_of_a_pod_is_that_of_its_class() {
        let class = json!({ "metadata": { "name": "high" }, "value": 7, "preemptionPolicy": "Never" });
        let mut spec = json!({});
        assert_eq!(resolve(&mut spec, Some(&class)), Ok(()));
        assert_eq!(spec, json!({ "priorityClassName": "high", "priority": 7, "preemptionPolicy": "Never" }));
        let mut spec = json!({ "priority": 8 });
        let why = resolve(&mut spec, Some(&class)).unwrap_err();
        assert!(why.starts_with("the integer value of priority (8) must not be provided"), "{why}");
        let mut spec = json!({});
        assert_eq!(resolve(&mut spec, None), Ok(()));
        assert_eq!(spec, json!({ "priority": 0, "preemptionPolicy": "PreemptLowerPriority" }));
    }
}
