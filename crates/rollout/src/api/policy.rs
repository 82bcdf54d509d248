//! `RolloutPolicy`: at which pace the pods of workloads are resized, and what a failure leads to.

#![expect(clippy::duplicated_attributes, reason = "printer columns have the same type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::schema;

/// The API group.
pub const POLICY_GROUP: &str = "plumb.dev";

/// The pace at which the controller resizes the pods of workloads in place, and its reaction to failures.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "plumb.dev",
    version = "v1alpha1",
    kind = "RolloutPolicy",
    plural = "rolloutpolicies",
    namespaced,
    doc = "RolloutPolicy makes the rollout controller resize the running pods of workloads in place when the resources of their template change.",
    shortname = "rop",
    category = "plumb",
    status = "RolloutPolicyStatus",
    derive = "PartialEq",
    printcolumn(name = "Concurrent", type_ = "string", json_path = ".spec.maxConcurrent"),
    printcolumn(name = "OnFailure", type_ = "string", json_path = ".spec.onFailure"),
    printcolumn(name = "Workloads", type_ = "integer", json_path = ".status.workloads"),
    printcolumn(
        name = "Conflict",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Conflicting')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.targetRef) != has(self.selector)",
    "message": "exactly one of targetRef and selector must be set",
}]))]
pub struct RolloutPolicySpec {
    /// The workload, in the namespace of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// The workloads, in the namespace of the policy, by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// How many pods are resized at a time without a restart, as a number or a part of all pods, rounded up. A pod counts
    /// until its resize is applied and it has soaked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::max_concurrent")]
    pub max_concurrent: Option<IntOrString>,
    /// How many pods may be unavailable while pods are restarted for a resize or recreated, as a number or a part of all
    /// pods, rounded down; the workload's own maxUnavailable if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::max_unavailable")]
    pub max_unavailable: Option<IntOrString>,
    /// The number of pods that the controller does not resize, as a number or a part of all pods, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::partition")]
    pub partition: Option<IntOrString>,
    /// Steps after which the rollout pauses, before the rest of the pods is resized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = [
        {
            "rule": "self.map(step, type(step.pods) == int, int(step.pods)).isSorted()",
            "message": "a step includes the pods of those before it: numbers of pods must not decrease",
        },
        {
            "rule": "self.map(step, type(step.pods) == string, int(step.pods.substring(0, step.pods.size() - 1))).isSorted()",
            "message": "a step includes the pods of those before it: percentages must not decrease",
        },
        {
            "rule": "!self.exists(step, step.pods == 1) || self[0].pods == 1",
            "message": "a step includes the pods of those before it: a step of 1 pod must be the first",
        },
    ]))]
    pub canary: Vec<CanaryStep>,
    /// For how many seconds a resized pod has to stay ready, without a restart and an OOM kill, before it counts as done.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    pub soak_seconds: i32,
    /// How many seconds a resize may be deferred, failing or in progress before the controller considers the pod stuck.
    #[serde(default = "deferred_deadline")]
    #[schemars(range(min = 1, max = 86400))]
    pub deferred_deadline_seconds: i32,
    /// What the controller does with a stuck pod.
    #[serde(default, deserialize_with = "known_or_default")]
    pub on_failure: OnFailure,
    /// Whether pods that another client has resized after a rollout are resized to the template again. A resource that a
    /// VerticalPodAutoscaler of the workload controls is left to the autoscaler, whatever this says.
    #[serde(default, deserialize_with = "known_or_default")]
    pub drift: Drift,
    /// Whether the rollout is paused: the controller resizes no further pods.
    #[serde(default)]
    pub paused: bool,
}

/// Reads a value, or the default instead of one that this version does not know: one object that a newer schema admitted
/// must not make a whole LIST unreadable. The defaults are the values that do least.
fn known_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + DeserializeOwned,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

fn deferred_deadline() -> i32 {
    300
}

impl Default for RolloutPolicySpec {
    fn default() -> Self {
        Self {
            target_ref: None,
            selector: None,
            max_concurrent: None,
            max_unavailable: None,
            partition: None,
            canary: Vec::new(),
            soak_seconds: 0,
            deferred_deadline_seconds: deferred_deadline(),
            on_failure: OnFailure::Hold,
            drift: Drift::Ignore,
            paused: false,
        }
    }
}

/// A workload in the namespace of the policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic", "x-kubernetes-validations" = [
    {
        "rule": "self.kind != 'CloneSet' || self.apiVersion.startsWith('apps.kruise.io/')",
        "message": "a CloneSet is of apps.kruise.io: set apiVersion to apps.kruise.io/v1alpha1",
    },
    {
        "rule": "self.kind != 'Deployment' || self.apiVersion.startsWith('apps/')",
        "message": "a Deployment of apps can be a target: set apiVersion to apps/v1",
    },
    {
        "rule": "self.apiVersion.startsWith('apps/') || self.apiVersion.startsWith('apps.kruise.io/')",
        "message": "apiVersion must be one of the group apps or apps.kruise.io",
    },
]))]
pub struct TargetRef {
    /// Group and version of the workload, such as apps/v1.
    #[serde(default = "apps_v1")]
    pub api_version: String,
    /// Kind of the workload, such as Deployment.
    #[schemars(extend("enum" = ["CloneSet", "DaemonSet", "Deployment", "StatefulSet"]))]
    pub kind: String,
    /// Name of the workload.
    #[schemars(length(min = 1))]
    pub name: String,
}

fn apps_v1() -> String {
    "apps/v1".to_owned()
}

/// A step of a canary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStep {
    /// How many pods are resized in this step and those before it together, as a number or a part of all pods, rounded up.
    #[schemars(schema_with = "schema::step_pods")]
    pub pods: IntOrString,
    /// For how many seconds the rollout pauses once these pods are done; until it is resumed if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 604_800))]
    pub pause_seconds: Option<i32>,
}

/// What the controller does with a stuck pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// It is reported, and the other pods are resized.
    #[default]
    Hold,
    /// It is resized back, and the other pods are resized.
    RollbackPod,
    /// All pods are resized back, and the resources of the template are restored.
    RollbackAll,
    /// It is evicted, and the other pods are resized.
    RecreatePod,
    /// The workload's own controller recreates all pods.
    RecreateAll,
}

impl OnFailure {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Hold, Self::RollbackPod, Self::RollbackAll, Self::RecreatePod, Self::RecreateAll];

    /// The value in `onFailure`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hold => "Hold",
            Self::RollbackPod => "RollbackPod",
            Self::RollbackAll => "RollbackAll",
            Self::RecreatePod => "RecreatePod",
            Self::RecreateAll => "RecreateAll",
        }
    }
}

/// What is done about a pod that was done and has other resources than its template now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Drift {
    /// Nothing until the next rollout.
    #[default]
    Ignore,
    /// It is resized to the template again.
    Enforce,
}

/// The observed state of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutPolicyStatus {
    /// The metadata.generation that the controller has acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// The number of workloads that the policy applies to.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub workloads: i32,
    /// Whether the policy applies to the workloads that it selects: `Active`, and `Conflicting` with another policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

plumb_client::codec!(RolloutPolicy);
