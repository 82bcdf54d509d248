//! What the three kinds have in common, as JSON: their template, and the fields that hold their controllers.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A kind of workload whose pods are resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WorkloadKind {
    /// Held by `spec.paused`.
    Deployment,
    /// Held by `spec.updateStrategy.rollingUpdate.partition`.
    StatefulSet,
    /// Held by `spec.updateStrategy.type: OnDelete`.
    DaemonSet,
}

impl WorkloadKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Deployment, Self::StatefulSet, Self::DaemonSet];

    /// The name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
        }
    }

    /// The name of the resource.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
            Self::DaemonSet => "daemonsets",
        }
    }

    /// The kind of a resource.
    pub fn of_resource(plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.plural() == plural)
    }

    /// The fields of a spec that hold its controller, as they are.
    pub fn held_fields(self, spec: &Value) -> Value {
        let field = self.held_field();
        let mut fields = Map::new();
        fields.insert(field.to_owned(), spec.get(field).cloned().unwrap_or(Value::Null));
        Value::Object(fields)
    }

    const fn held_field(self) -> &'static str {
        match self {
            Self::Deployment => "paused",
            Self::StatefulSet | Self::DaemonSet => "updateStrategy",
        }
    }

    /// The same fields of a spec as they hold its controller.
    pub fn holding(self, spec: &Value) -> Value {
        match self {
            Self::Deployment => json!({ "paused": true }),
            Self::StatefulSet if spec["updateStrategy"]["type"] == "OnDelete" => self.held_fields(spec),
            Self::StatefulSet => {
                let mut rolling =
                    spec["updateStrategy"]["rollingUpdate"].as_object().cloned().unwrap_or_default();
                // No pod has a number as high as this, but new ones.
                let replicas = spec["replicas"].as_i64().unwrap_or(1);
                rolling.insert("partition".to_owned(), json!(replicas));
                json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling } })
            }
            Self::DaemonSet => json!({ "updateStrategy": { "type": "OnDelete" } }),
        }
    }

    /// The merge patch of a spec that makes the fields what they were.
    pub fn restoring(self, fields: &Value) -> Value {
        let mut patch = fields.clone();
        // A merge patch adds to an object: what was not there has to be removed by name.
        if let Some(strategy) = patch.get_mut("updateStrategy").and_then(Value::as_object_mut) {
            strategy.entry("rollingUpdate").or_insert(Value::Null);
        }
        patch
    }

    /// The number of pods that the partition of a strategy leaves as they are.
    pub fn own_partition(self, fields: &Value) -> usize {
        let partition = fields["updateStrategy"]["rollingUpdate"]["partition"].as_u64().unwrap_or(0);
        if self == Self::StatefulSet { usize::try_from(partition).unwrap_or(usize::MAX) } else { 0 }
    }

    /// Whether a user has paused the workload by these fields.
    pub fn is_paused(self, fields: &Value) -> bool {
        self == Self::Deployment && fields["paused"] == true
    }
}

/// The template of a workload.
pub(super) fn template(workload: &Value) -> Option<PodTemplateSpec> {
    plumb_client::decode_template(workload["spec"]["template"].clone()).ok()
}
