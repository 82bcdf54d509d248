//! The common parts of the kinds, as JSON: their template, and the fields that hold their controllers.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::Share;
use crate::api::cloneset::GROUP as KRUISE;
use crate::api::template::decode_template;
use crate::engine::Reason;

/// A kind of workload whose pods are resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WorkloadKind {
    /// Held by `spec.paused`.
    Deployment,
    /// Held by `spec.updateStrategy.type: OnDelete`.
    StatefulSet,
    /// Held by `spec.updateStrategy.type: OnDelete`.
    DaemonSet,
    /// That of OpenKruise, held by `spec.updateStrategy.rollingUpdate.paused`.
    AdvancedStatefulSet,
    /// That of OpenKruise, held by `spec.updateStrategy.rollingUpdate.paused`.
    AdvancedDaemonSet,
}

impl WorkloadKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Deployment,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::AdvancedStatefulSet,
        Self::AdvancedDaemonSet,
    ];

    /// The API group.
    pub const fn group(self) -> &'static str {
        match self {
            Self::Deployment | Self::StatefulSet | Self::DaemonSet => "apps",
            Self::AdvancedStatefulSet | Self::AdvancedDaemonSet => KRUISE,
        }
    }

    /// The group and version that objects are read in.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Deployment | Self::StatefulSet | Self::DaemonSet => "apps/v1",
            Self::AdvancedStatefulSet => "apps.kruise.io/v1beta1",
            Self::AdvancedDaemonSet => "apps.kruise.io/v1alpha1",
        }
    }

    /// Whether it is a custom resource, for which the API server has no strategic merge patches.
    pub const fn is_custom(self) -> bool {
        matches!(self, Self::AdvancedStatefulSet | Self::AdvancedDaemonSet)
    }

    /// The name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet | Self::AdvancedStatefulSet => "StatefulSet",
            Self::DaemonSet | Self::AdvancedDaemonSet => "DaemonSet",
        }
    }

    /// The name of the resource.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::StatefulSet | Self::AdvancedStatefulSet => "statefulsets",
            Self::DaemonSet | Self::AdvancedDaemonSet => "daemonsets",
        }
    }

    /// The kind as `plumb rollout` writes it, which is how kubectl names it: `deployment`, `statefulset.apps.kruise.io`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::StatefulSet => "statefulset",
            Self::DaemonSet => "daemonset",
            Self::AdvancedStatefulSet => "statefulset.apps.kruise.io",
            Self::AdvancedDaemonSet => "daemonset.apps.kruise.io",
        }
    }

    /// The kind of a [word](Self::word).
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// The kind of a resource.
    pub fn of_resource(group: &str, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.group() == group && kind.plural() == plural)
    }

    /// The fields of a spec that hold its controller, as they are.
    pub fn held_fields(self, spec: &Value) -> Value {
        let field = self.held_field();
        let mut fields = Map::new();
        fields.insert(field.to_owned(), spec.get(field).cloned().unwrap_or(Value::Null));
        Value::Object(fields)
    }

    /// The field of a spec that holds its controller.
    pub(super) const fn held_field(self) -> &'static str {
        match self {
            Self::Deployment => "paused",
            _ => "updateStrategy",
        }
    }

    /// The same fields of a spec as they hold its controller.
    pub fn holding(self, spec: &Value) -> Value {
        let is_on_delete = spec["updateStrategy"]["type"] == "OnDelete";
        let mut rolling = spec["updateStrategy"]["rollingUpdate"].as_object().cloned().unwrap_or_default();
        match self {
            Self::Deployment => return json!({ "paused": true }),
            // Its controller updates no pod, and creates pods of the new revision. Below a partition it would create those of
            // the old one: a pod that is evicted because it is stuck would be stuck again.
            Self::StatefulSet | Self::DaemonSet => {
                return json!({ "updateStrategy": { "type": "OnDelete" } });
            }
            // Its controller updates no pod.
            Self::AdvancedStatefulSet | Self::AdvancedDaemonSet if is_on_delete => {
                return self.held_fields(spec);
            }
            Self::AdvancedStatefulSet => {
                rolling.insert("paused".to_owned(), json!(true));
                // OpenKruise expects one where there is a `rollingUpdate`.
                rolling.entry("partition").or_insert(json!(0));
            }
            Self::AdvancedDaemonSet => _ = rolling.insert("paused".to_owned(), json!(true)),
        }
        json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling } })
    }

    /// The fields of `rollingUpdate` that a hold sets.
    const fn held_settings(self) -> &'static [&'static str] {
        match self {
            Self::Deployment | Self::DaemonSet => &[],
            // Of a hold by a partition, which earlier versions set.
            Self::StatefulSet => &["partition"],
            Self::AdvancedStatefulSet => &["paused", "partition"],
            Self::AdvancedDaemonSet => &["paused"],
        }
    }

    /// The merge patch of a spec that restores the fields.
    pub fn restoring(self, fields: &Value) -> Value {
        let mut patch = fields.clone();
        // A merge patch adds to an object: a field that was absent has to be removed by name.
        if let Some(strategy) = patch.get_mut("updateStrategy").and_then(Value::as_object_mut)
            && let Value::Object(rolling) = strategy.entry("rollingUpdate").or_insert(Value::Null)
        {
            for setting in self.held_settings() {
                rolling.entry(*setting).or_insert(Value::Null);
            }
        }
        patch
    }

    /// The pods that the partition of a strategy leaves as they are.
    pub fn own_partition(self, fields: &Value) -> Share {
        let none = Share::Count(0);
        match self {
            Self::Deployment | Self::DaemonSet => none,
            Self::StatefulSet | Self::AdvancedStatefulSet | Self::AdvancedDaemonSet => {
                rolling_setting(fields, "partition").as_ref().and_then(Share::read).unwrap_or(none)
            }
        }
    }

    /// Whether a user has paused the workload by these fields.
    pub fn is_paused(self, fields: &Value) -> bool {
        match self {
            Self::Deployment => fields["paused"] == true,
            Self::StatefulSet | Self::DaemonSet => false,
            Self::AdvancedStatefulSet | Self::AdvancedDaemonSet => {
                fields["updateStrategy"]["rollingUpdate"]["paused"] == true
            }
        }
    }

    /// The field by which a user pauses the workload's own controller; none if the kind has none.
    pub(super) const fn pause_field(self) -> Option<&'static str> {
        match self {
            Self::Deployment => Some("paused"),
            Self::StatefulSet | Self::DaemonSet => None,
            Self::AdvancedStatefulSet | Self::AdvancedDaemonSet => {
                Some("updateStrategy.rollingUpdate.paused")
            }
        }
    }

    /// The fields of a workload whose controller is paused: as they are, if the kind cannot be paused.
    #[must_use]
    pub(super) fn paused(self, fields: Value) -> Value {
        match self {
            Self::StatefulSet | Self::DaemonSet => fields,
            // These are held by the same field.
            Self::Deployment | Self::AdvancedStatefulSet | Self::AdvancedDaemonSet => self.holding(&fields),
        }
    }

    /// The settings of rolling updates that bind a rollout while the workload is held.
    pub(super) const fn paced_by(self) -> &'static [&'static str] {
        match self {
            // Its own are not in a field that holds it.
            Self::Deployment => &[],
            Self::DaemonSet => &["maxUnavailable"],
            Self::StatefulSet | Self::AdvancedStatefulSet | Self::AdvancedDaemonSet => {
                &["partition", "maxUnavailable"]
            }
        }
    }

    /// The fields of a workload that its user has resumed.
    #[must_use]
    pub fn resumed(self, mut fields: Value) -> Value {
        match self {
            Self::Deployment => return json!({ "paused": null }),
            Self::StatefulSet | Self::DaemonSet => {}
            Self::AdvancedStatefulSet | Self::AdvancedDaemonSet => {
                let rolling = fields.pointer_mut("/updateStrategy/rollingUpdate");
                if let Some(rolling) = rolling.and_then(Value::as_object_mut) {
                    rolling.remove("paused");
                }
            }
        }
        fields
    }

    /// Whether the controller of a workload with this spec surges, and makes no pod unavailable.
    pub fn surges_only(self, spec: &Value) -> bool {
        let rolling = match self {
            Self::Deployment => &spec["strategy"]["rollingUpdate"],
            Self::DaemonSet => &spec["updateStrategy"]["rollingUpdate"],
            Self::StatefulSet | Self::AdvancedStatefulSet | Self::AdvancedDaemonSet => return false,
        };
        let is_zero = |setting: &str| {
            let share: Option<IntOrString> = serde_json::from_value(rolling[setting].clone()).ok();
            share
                .as_ref()
                .and_then(Share::read)
                .map(|share| matches!(share, Share::Count(0) | Share::Percent(0)))
        };
        is_zero("maxUnavailable") == Some(true) && is_zero("maxSurge") == Some(false)
    }

    /// Why only the workload's own controller can update its pods, whatever changes in the template. The spec is that without a
    /// hold.
    pub fn left_to_controller(self, spec: &Value) -> Option<Reason> {
        if self != Self::Deployment && spec["updateStrategy"]["type"] == "OnDelete" {
            return Some(Reason::OnDelete);
        }
        let path = match self {
            Self::AdvancedStatefulSet => "/lifecycle/inPlaceUpdate",
            Self::AdvancedDaemonSet => "/updateStrategy/rollingUpdate/selector",
            Self::Deployment | Self::StatefulSet | Self::DaemonSet => return None,
        };
        spec.pointer(path)
            .filter(|value| !value.is_null())
            .map(|_| Reason::LeftToController { path: format!("spec{}", path.replace('/', ".")) })
    }
}

/// A setting of the rolling updates of a strategy.
pub(super) fn rolling_setting(fields: &Value, setting: &str) -> Option<IntOrString> {
    let value = fields["updateStrategy"]["rollingUpdate"].get(setting)?;
    serde_json::from_value(value.clone()).ok()
}

/// The template of a workload.
pub(super) fn template(workload: &Value) -> Option<PodTemplateSpec> {
    decode_template(workload["spec"]["template"].clone()).ok()
}
