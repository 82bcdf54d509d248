//! Taints and tolerations.

use k8s_openapi::api::core::v1::{self as core, Taint};

/// The taint of a node that is cordoned.
pub const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// A toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    key: String,
    value: String,
    effect: String,
    /// Whether the operator is `Exists`, which ignores the value.
    any_value: bool,
}

impl Toleration {
    /// Parses an entry of `tolerations`.
    pub fn read(toleration: &core::Toleration) -> Self {
        Self {
            key: toleration.key.clone().unwrap_or_default(),
            value: toleration.value.clone().unwrap_or_default(),
            effect: toleration.effect.clone().unwrap_or_default(),
            any_value: toleration.operator.as_deref() == Some("Exists"),
        }
    }

    /// Whether the toleration matches a taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key.is_empty() || self.key == taint.key;
        let value = self.any_value || self.value == taint.value.as_deref().unwrap_or_default();
        effect && key && value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_toleration_matches_by_key_effect_and_value() {
        let gpu = json!({ "key": "gpu", "value": "a100", "effect": "NoSchedule" });
        for (toleration, expected) in [
            (json!({ "key": "gpu", "operator": "Exists", "effect": "NoSchedule" }), true),
            (json!({ "key": "gpu", "operator": "Exists", "effect": "NoExecute" }), false),
            (json!({ "key": "gpu", "operator": "Equal", "value": "a100" }), true),
            (json!({ "key": "gpu", "value": "h100" }), false),
            (json!({ "key": "disk", "operator": "Exists" }), false),
            (json!({ "operator": "Exists" }), true),
        ] {
            let read = |value: &Value| serde_json::from_value::<core::Toleration>(value.clone()).unwrap();
            let taint: Taint = serde_json::from_value(gpu.clone()).unwrap();
            assert_eq!(Toleration::read(&read(&toleration)).tolerates(&taint), expected, "{toleration}");
        }
    }
}
