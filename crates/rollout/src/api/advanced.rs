//! The Advanced `StatefulSet` and Advanced `DaemonSet` of OpenKruise, as far as rollouts read them.
//!
//! Their definitions and controllers are OpenKruise's. Objects are patched, and never replaced, so these types need not have
//! all fields. `DaemonSet` is read as `v1alpha1`, which all releases of OpenKruise serve.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::CustomResource;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::template::decode_template;

plumb_client::codec!(AdvancedStatefulSet, AdvancedDaemonSet);

/// The desired state.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "StatefulSet",
    root = "AdvancedStatefulSet",
    namespaced,
    schema = "disabled",
    doc = "The Advanced StatefulSet of OpenKruise.",
    status = "AdvancedStatefulSetStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct AdvancedStatefulSetSpec {
    /// How many pods there are to be.
    #[serde(default)]
    pub replicas: Option<i32>,
    /// The template of the pods.
    #[serde(default)]
    pub template: Template,
    /// How pods are updated.
    #[serde(default)]
    pub update_strategy: Value,
}

/// What OpenKruise has observed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdvancedStatefulSetStatus {
    /// The generation that was observed.
    #[serde(default)]
    pub observed_generation: Option<i64>,
    /// How many pods have the update revision.
    #[serde(default)]
    pub updated_replicas: Option<i32>,
    /// The name of the revision of the template.
    #[serde(default)]
    pub update_revision: Option<String>,
}

/// The desired state.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize)]
#[kube(
    group = "apps.kruise.io",
    version = "v1alpha1",
    kind = "DaemonSet",
    root = "AdvancedDaemonSet",
    namespaced,
    schema = "disabled",
    doc = "The Advanced DaemonSet of OpenKruise.",
    status = "AdvancedDaemonSetStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct AdvancedDaemonSetSpec {
    /// The template of the pods.
    #[serde(default)]
    pub template: Template,
    /// How pods are updated.
    #[serde(default)]
    pub update_strategy: Value,
    /// For how long a pod has to be ready to be available.
    #[serde(default)]
    pub min_ready_seconds: Option<i32>,
}

/// What OpenKruise has observed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdvancedDaemonSetStatus {
    /// The generation that was observed.
    #[serde(default)]
    pub observed_generation: Option<i64>,
    /// How many nodes should run a pod.
    #[serde(default)]
    pub desired_number_scheduled: i32,
    /// How many of these run a pod of the latest revision.
    #[serde(default)]
    pub updated_number_scheduled: Option<i32>,
    /// How many nodes run a pod and should not.
    #[serde(default)]
    pub number_misscheduled: i32,
}

/// A template; none if it cannot be read. One that cannot must not make a whole LIST unreadable.
#[derive(Clone, Debug, Default)]
pub struct Template(pub Option<PodTemplateSpec>);

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|template| Self(decode_template(template).ok()))
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().map(plumb_client::encode_template).serialize(serializer)
    }
}
