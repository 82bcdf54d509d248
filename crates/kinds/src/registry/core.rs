//! The kinds of the core group.

mod component_status;
mod config_map;
pub(super) mod data;
mod endpoints;
mod event;
mod limit_range;
mod namespace;
mod node;
mod persistent_volume;
pub(in crate::registry) mod persistent_volume_claim;
pub(crate) mod pod;
mod pod_template;
mod replication_controller;
mod resource_quota;
mod secret;
pub(in crate::registry) mod service;
mod service_account;

pub(super) use component_status::ComponentStatusStrategy;
pub(super) use config_map::ConfigMapStrategy;
pub(super) use endpoints::EndpointsStrategy;
pub(super) use event::EventStrategy;
pub(super) use limit_range::LimitRangeStrategy;
pub(super) use namespace::NamespaceStrategy;
pub(super) use node::NodeStrategy;
pub(super) use persistent_volume::PersistentVolumeStrategy;
pub(super) use persistent_volume_claim::PersistentVolumeClaimStrategy;
pub(super) use pod::PodStrategy;
pub(super) use pod_template::PodTemplateStrategy;
pub(super) use replication_controller::ReplicationControllerStrategy;
pub(super) use resource_quota::ResourceQuotaStrategy;
pub(super) use secret::SecretStrategy;
pub(super) use service::ServiceStrategy;
pub(super) use service_account::ServiceAccountStrategy;
