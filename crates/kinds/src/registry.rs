//! The kinds, one file each, below a folder per API group: `registry/policy/pod_disruption_budget.rs` has everything that
//! is special about `PodDisruptionBudgets`.
//!
//! ```text
//!   create, update, patch, delete, list, watch      the generic path: knows no kind
//!        │ kinds::rest                              what is done with every kind
//!        ▼
//!   kinds::Strategy                                 what a kind can decide, each with a default
//!        ▲
//!   core::PodStrategy, apps::DeploymentStrategy, …  a kind overrides what is special about it
//! ```
//!
//! The server makes the table of kinds with these strategies: a [`Row`](plumb_apiserver::kinds::Row) has that of its kind, which
//! `strategy_of` looks up once. Neither the table of kinds nor the generic path imports the registry.

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
mod coordination;
mod core;
mod disabled_fields;
mod discovery;
mod events;
mod flowcontrol;
mod metrics;
mod networking;
mod node;
mod pod_template;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
pub mod validate;

pub(crate) use certificates::certificate_signing_request;
pub(crate) use core::pod;

use crate::Features;
use plumb_apiserver::kinds::strategy::{generation, reset};
use plumb_apiserver::kinds::{
    Context, FieldPaths, GarbageCollectionPolicy, MetadataChecks, ReviewContext, StatusMetadataChecks,
    Storage, Strategy, SubresourceHandler, SubresourceStrategy,
};

/// The strategies of the built-in kinds.
const STRATEGIES: &[(&str, &str, &dyn Strategy)] = &[
    ("", "ComponentStatus", &core::ComponentStatusStrategy),
    ("", "ConfigMap", &core::ConfigMapStrategy),
    ("", "Endpoints", &core::EndpointsStrategy),
    ("", "Event", &core::EventStrategy),
    ("", "LimitRange", &core::LimitRangeStrategy),
    ("", "Namespace", &core::NamespaceStrategy),
    ("", "Node", &core::NodeStrategy),
    ("", "PersistentVolume", &core::PersistentVolumeStrategy),
    ("", "PersistentVolumeClaim", &core::PersistentVolumeClaimStrategy),
    ("", "Pod", &core::PodStrategy),
    ("", "PodTemplate", &core::PodTemplateStrategy),
    ("", "ReplicationController", &core::ReplicationControllerStrategy),
    ("", "ResourceQuota", &core::ResourceQuotaStrategy),
    ("", "Secret", &core::SecretStrategy),
    ("", "Service", &core::ServiceStrategy),
    ("", "ServiceAccount", &core::ServiceAccountStrategy),
    (
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicy",
        &admissionregistration::MutatingAdmissionPolicyStrategy,
    ),
    (
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicyBinding",
        &admissionregistration::MutatingAdmissionPolicyBindingStrategy,
    ),
    (
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        &admissionregistration::MutatingWebhookConfigurationStrategy,
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        &admissionregistration::ValidatingAdmissionPolicyStrategy,
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        &admissionregistration::ValidatingAdmissionPolicyBindingStrategy,
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        &admissionregistration::ValidatingWebhookConfigurationStrategy,
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition", &apiextensions::CustomResourceDefinitionStrategy),
    ("apiregistration.k8s.io", "APIService", &apiregistration::ApiServiceStrategy),
    ("apps", "ControllerRevision", &apps::ControllerRevisionStrategy),
    ("apps", "DaemonSet", &apps::DaemonSetStrategy),
    ("apps", "Deployment", &apps::DeploymentStrategy),
    ("apps", "ReplicaSet", &apps::ReplicaSetStrategy),
    ("apps", "StatefulSet", &apps::StatefulSetStrategy),
    ("authentication.k8s.io", "SelfSubjectReview", &authentication::SelfSubjectReviewStrategy),
    ("authentication.k8s.io", "TokenReview", &authentication::TokenReviewStrategy),
    ("authorization.k8s.io", "LocalSubjectAccessReview", &authorization::LocalSubjectAccessReviewStrategy),
    ("authorization.k8s.io", "SelfSubjectAccessReview", &authorization::SelfSubjectAccessReviewStrategy),
    ("authorization.k8s.io", "SelfSubjectRulesReview", &authorization::SelfSubjectRulesReviewStrategy),
    ("authorization.k8s.io", "SubjectAccessReview", &authorization::SubjectAccessReviewStrategy),
    (
        "autoscaling",
        "HorizontalPodAutoscaler",
        &autoscaling::HorizontalPodAutoscalerStrategy { scale_to_zero: false, configurable_tolerance: true },
    ),
    ("batch", "CronJob", &batch::CronJobStrategy),
    ("batch", "Job", &batch::JobStrategy),
    ("certificates.k8s.io", "CertificateSigningRequest", &certificates::CertificateSigningRequestStrategy),
    ("coordination.k8s.io", "Lease", &coordination::LeaseStrategy),
    ("discovery.k8s.io", "EndpointSlice", &discovery::EndpointSliceStrategy),
    ("events.k8s.io", "Event", &events::EventStrategy),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", &flowcontrol::FlowSchemaStrategy),
    (
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        &flowcontrol::PriorityLevelConfigurationStrategy,
    ),
    ("metrics.k8s.io", "NodeMetrics", &metrics::NodeMetricsStrategy),
    ("metrics.k8s.io", "PodMetrics", &metrics::PodMetricsStrategy),
    ("networking.k8s.io", "IPAddress", &networking::IpAddressStrategy),
    ("networking.k8s.io", "Ingress", &networking::IngressStrategy),
    ("networking.k8s.io", "IngressClass", &networking::IngressClassStrategy),
    ("networking.k8s.io", "NetworkPolicy", &networking::NetworkPolicyStrategy),
    ("networking.k8s.io", "ServiceCIDR", &networking::ServiceCidrStrategy),
    ("node.k8s.io", "RuntimeClass", &node::RuntimeClassStrategy),
    ("policy", "PodDisruptionBudget", &policy::PodDisruptionBudgetStrategy),
    ("rbac.authorization.k8s.io", "ClusterRole", &rbac::ClusterRoleStrategy),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", &rbac::ClusterRoleBindingStrategy),
    ("rbac.authorization.k8s.io", "Role", &rbac::RoleStrategy),
    ("rbac.authorization.k8s.io", "RoleBinding", &rbac::RoleBindingStrategy),
    ("resource.k8s.io", "DeviceClass", &resource::DeviceClassStrategy),
    ("resource.k8s.io", "ResourceClaim", &resource::ResourceClaimStrategy),
    ("resource.k8s.io", "ResourceClaimTemplate", &resource::ResourceClaimTemplateStrategy),
    ("resource.k8s.io", "ResourceSlice", &resource::ResourceSliceStrategy),
    ("scheduling.k8s.io", "PriorityClass", &scheduling::PriorityClassStrategy),
    ("storage.k8s.io", "CSIDriver", &storage::CsiDriverStrategy),
    ("storage.k8s.io", "CSINode", &storage::CsiNodeStrategy),
    ("storage.k8s.io", "CSIStorageCapacity", &storage::CsiStorageCapacityStrategy),
    ("storage.k8s.io", "StorageClass", &storage::StorageClassStrategy),
    ("storage.k8s.io", "VolumeAttachment", &storage::VolumeAttachmentStrategy),
    ("storage.k8s.io", "VolumeAttributesClass", &storage::VolumeAttributesClassStrategy),
];

/// The strategy of a kind about which nothing is special.
#[derive(Debug)]
struct DefaultStrategy;

impl Strategy for DefaultStrategy {}

/// The strategy of a built-in kind.
pub(crate) fn strategy_of(group: &str, kind: &str) -> &'static dyn Strategy {
    let found = STRATEGIES.iter().find(|(of, name, _)| (*of, *name) == (group, kind));
    found.map_or(&DefaultStrategy, |(_, _, strategy)| *strategy)
}

/// The strategies of the built-in kinds with these features.
pub(crate) fn strategies(features: Features) -> fn(&str, &str) -> &'static dyn Strategy {
    match (features.scale_to_zero, features.configurable_tolerance) {
        (false, true) => strategy_of,
        (false, false) => strategy_of_with::<false, false>,
        (true, false) => strategy_of_with::<true, false>,
        (true, true) => strategy_of_with::<true, true>,
    }
}

/// The strategy of a built-in kind where autoscalers have these features.
fn strategy_of_with<const SCALE_TO_ZERO: bool, const CONFIGURABLE_TOLERANCE: bool>(
    group: &str,
    kind: &str,
) -> &'static dyn Strategy {
    match (group, kind) {
        ("autoscaling", "HorizontalPodAutoscaler") => {
            &const {
                autoscaling::HorizontalPodAutoscalerStrategy {
                    scale_to_zero: SCALE_TO_ZERO,
                    configurable_tolerance: CONFIGURABLE_TOLERANCE,
                }
            }
        }
        _ => strategy_of(group, kind),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::STRATEGIES;
    use plumb_apiserver::kinds::Kinds;

    #[test]
    fn every_strategy_is_the_only_one_of_a_kind_that_is_served() {
        let kinds = Kinds::builtin(super::strategy_of, |_, _, _, _, _| {});
        let served: BTreeSet<_> = kinds.iter().map(|row| (row.group(), row.kind())).collect();
        let mut seen = BTreeSet::new();
        for (group, kind, _) in STRATEGIES {
            assert!(served.contains(&(*group, *kind)), "{group} {kind}");
            assert!(seen.insert((*group, *kind)), "{group} {kind}");
        }
    }

    #[test]
    fn every_subresource_that_is_served_has_a_strategy_or_a_handler() {
        for row in Kinds::builtin(super::strategy_of, |_, _, _, _, _| {}).iter() {
            for subresource in &row.resource.subresources {
                let (strategy, name) = (row.strategy(), &*subresource.name);
                let is_generic = matches!(name, "status" | "scale");
                let is_updated = strategy.subresource(name).is_some();
                let has_handler = strategy.subresource_handler(name).is_some();
                let found = [is_generic, is_updated, has_handler].into_iter().filter(|found| *found).count();
                assert_eq!(found, 1, "{} {name}", row.kind());
            }
        }
    }
}
