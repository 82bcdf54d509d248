//! The objects of `autoscaling.k8s.io`: `VerticalPodAutoscaler` and `VerticalPodAutoscalerCheckpoint`.
//!
//! Field for field those of the Vertical Pod Autoscaler of kubernetes/autoscaler, under the names that its Go types have,
//! so that objects written for the one are read by the other.
//!
//! Reading is lenient where an unreadable object would make a whole LIST unreadable: a value that an enum does not know
//! becomes its `Other` variant, a quantity may be an integer, and bucket weights, which the schema does not check, are
//! judged when a checkpoint is loaded. What is written is always of the strict form.

mod checkpoint;
pub mod crds;
mod policy;
mod resources;
mod schema;
pub mod startup_boost;
mod status;
mod v1beta2;
mod vpa;

pub use checkpoint::{
    BucketWeights, HistogramCheckpoint, VerticalPodAutoscalerCheckpoint, VerticalPodAutoscalerCheckpointSpec,
    VerticalPodAutoscalerCheckpointStatus,
};
pub use policy::DEFAULT_CONTAINER_POLICY;
pub use resources::{Resources, read_resources, resource_list};
pub use status::{
    ConditionStatus, ConditionType, RESIZE_NOT_SERVED, RecommendedContainerResources,
    RecommendedPodResources, VerticalPodAutoscalerCondition, VerticalPodAutoscalerStatus,
    kills_counted_message,
};
pub use vpa::{
    ContainerControlledValues, ContainerResourcePolicy, ContainerScalingMode, CrossVersionObjectReference,
    EvictionChangeRequirement, EvictionRequirement, GenericStartupBoost, PodResourcePolicy, PodUpdatePolicy,
    StartupBoost, StartupBoostType, UpdateMode, VerticalPodAutoscaler,
    VerticalPodAutoscalerRecommenderSelector, VerticalPodAutoscalerSpec,
};

/// Amounts by the name of the resource, as the API carries them.
pub type ResourceList =
    std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

plumb_client::codec!(VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint);

/// The API group.
pub const GROUP: &str = "autoscaling.k8s.io";
