//! The steps of scenarios.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;

/// The scenarios in the repository, by subject; those that take long come first.
const TABLES: [&str; 10] = [
    include_str!("../../../differential/controllers/autoscalers.yaml"),
    include_str!("../../../differential/controllers/cronjobs.yaml"),
    include_str!("../../../differential/controllers/housekeeping.yaml"),
    include_str!("../../../differential/controllers/endpoints.yaml"),
    include_str!("../../../differential/controllers/deployments.yaml"),
    include_str!("../../../differential/controllers/replicas.yaml"),
    include_str!("../../../differential/controllers/statefulsets.yaml"),
    include_str!("../../../differential/controllers/daemonsets.yaml"),
    include_str!("../../../differential/controllers/jobs.yaml"),
    include_str!("../../../differential/controllers/volumes.yaml"),
];

/// A list of steps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name, and the beginning of its namespace's.
    pub name: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A step. Both clusters have to be stable before the next one.
#[derive(Clone, Debug, Deserialize)]
pub struct Step {
    /// The action.
    #[serde(flatten)]
    pub act: Act,
    /// After this many actions of simulated nodes the next step follows, whatever is left.
    #[serde(default)]
    pub moves: Option<usize>,
}

/// An action. In all texts `$namespace` stands for the scenario's namespace. Objects have their keys in [normalized
/// namespaces](super): `deployments/web`, `pods/web#1#2`, or, by a label, `pods?pick=this`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Act {
    /// Create an object.
    Make(Value),
    /// Update an object by a merge patch.
    #[serde(rename_all = "camelCase")]
    Change {
        /// Which.
        of: String,
        /// The patch.
        with: Value,
        /// A subresource instead: `status`, `scale`.
        #[serde(default)]
        part: Option<String>,
    },
    /// Delete an object.
    #[serde(rename_all = "camelCase")]
    Delete {
        /// Which.
        of: String,
        /// The body: propagation, grace period.
        #[serde(default)]
        options: Value,
    },
    /// Evict a pod.
    Evict {
        /// Which.
        of: String,
    },
    /// Wait until objects have (at least) these fields, or, for `null`, are gone.
    Until(BTreeMap<String, Value>),
}

/// Every scenario of the repository.
pub fn scenarios() -> Result<Vec<Scenario>, Error> {
    let mut all = Vec::new();
    for table in TABLES {
        let table: Value = serde_saphyr::from_str(table).map_err(|source| Error::List(source.to_string()))?;
        let table: Vec<Scenario> =
            serde_json::from_value(table).map_err(|source| Error::List(source.to_string()))?;
        all.extend(table);
    }
    Ok(all)
}

impl Act {
    /// The same in a namespace.
    pub(super) fn within(&self, namespace: &str) -> Self {
        let texts = |value: &Value| within(value, namespace);
        match self.clone() {
            Self::Make(object) => Self::Make(texts(&object)),
            Self::Change { of, with, part } => Self::Change { of, with: texts(&with), part },
            other => other,
        }
    }
}

/// The placeholder for the namespace of a scenario.
const NAMESPACE: &str = "$namespace";

fn within(value: &Value, namespace: &str) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace(NAMESPACE, namespace)),
        Value::Array(list) => list.iter().map(|value| within(value, namespace)).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.replace(NAMESPACE, namespace), within(value, namespace)))
            .collect(),
        other => other.clone(),
    }
}

/// Whether a value contains another: fields among others, elements among others in any order.
pub(super) fn has(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(value), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| match wanted {
            Value::Null => value.get(key).is_none_or(Value::is_null),
            wanted => value.get(key).is_some_and(|value| has(value, wanted)),
        }),
        (Value::Array(value), Value::Array(wanted)) => {
            wanted.iter().all(|wanted| value.iter().any(|value| has(value, wanted)))
        }
        (value, wanted) => value == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_scenario_can_be_read_and_has_a_name_of_its_own() {
        let mut names: Vec<String> = scenarios().unwrap().into_iter().map(|scenario| scenario.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        // A namespace's name has at most 63 letters, and a run adds some.
        assert!(names.iter().all(|name| name.len() < 50));
    }

    #[test]
    fn a_value_has_what_is_wanted_among_other_things() {
        let value = json!({"a": 1, "list": [{"type": "X", "status": "True"}, {"type": "Y"}]});
        for (wanted, expected) in [
            (json!({"a": 1}), true),
            (json!({"a": 2}), false),
            (json!({"b": null}), true),
            (json!({"a": null}), false),
            (json!({"list": [{"type": "Y"}, {"type": "X"}]}), true),
            (json!({"list": [{"type": "X", "status": "False"}]}), false),
        ] {
            assert_eq!(has(&value, &wanted), expected, "{wanted}");
        }
    }
}
