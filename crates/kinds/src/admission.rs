//! The admission plugins that decide by kind. How to add one: [`plumb_apiserver::admission`].

mod bound_pod;
mod certificates;
mod claim_resize;
mod configuration;
mod defaults;
mod limit_ranger;
mod node_declared_features;
mod node_restriction;
mod pod_resize;
mod pod_security;
pub(crate) mod priority;
mod resource_quota;
mod runtime_class;
mod service_account;

use std::sync::Arc;

use plumb_apiserver::admission::{Plugin, Plugins, UnknownPlugin};

use crate::server::Features;

pub use configuration::{AdmissionConfiguration, AdmissionConfigurationError};
pub(crate) use pod_security::Metrics as PodSecurityMetrics;

/// The names of all admission plugins on the command line of kube-apiserver: these, and those that the API server has for
/// every kind.
const NAMES: &[&str] = &[
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "PodSecurity",
    "Priority",
    "DefaultTolerationSeconds",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "NodeDeclaredFeatureValidator",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];

/// The enabled admission plugins: all, minus those in `disable`, a list of names with commas. What `enable` names is enabled
/// anyway, and must not be disabled.
pub fn admission_plugins(enable: &str, disable: &str) -> Result<Plugins, UnknownPlugin> {
    Plugins::from_flags(NAMES, enable, disable)
}

/// The plugins, in the order of kube-apiserver.
pub(crate) fn plugins(
    features: Features,
    configuration: AdmissionConfiguration,
    pod_security: Arc<PodSecurityMetrics>,
) -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(limit_ranger::LimitRanger),
        Box::new(service_account::ServiceAccount),
        Box::new(node_restriction::NodeRestriction),
        Box::new(defaults::TaintNodesByCondition),
        Box::new(pod_security::PodSecurity::new(configuration.pod_security, pod_security)),
        Box::new(priority::Priority),
        Box::new(defaults::DefaultTolerationSeconds),
        Box::new(defaults::DefaultStorageClass),
        Box::new(defaults::StorageObjectInUseProtection),
        Box::new(claim_resize::PersistentVolumeClaimResize),
        Box::new(runtime_class::RuntimeClass),
        Box::new(certificates::CertificateApproval),
        Box::new(certificates::CertificateSigning),
        Box::new(certificates::CertificateSubjectRestriction),
        Box::new(defaults::DefaultIngressClass),
        Box::new(node_declared_features::NodeDeclaredFeatures::new(features.node_declared_features)),
        Box::new(pod_resize::PodResize),
        Box::new(resource_quota::ResourceQuotaPlugin),
    ]
}
