//! The built-in kinds of a server: their strategies, their defaults, and the admission plugins that decide by kind.

use crate::admission::{Plugin, Plugins, UnknownPlugin};
use crate::admission::{
    certificates, claim_resize, defaults as admission_defaults, limit_ranger, node_restriction, pod_resize,
    priority, resource_quota, runtime_class, service_account,
};
use crate::error::ApiError;
use crate::state::{ApiServer, BuiltinKinds, Config};
use crate::{defaults, registry, system_objects};

/// The names of all admission plugins: those that decide by kind, and those of the generic server.
const PLUGIN_NAMES: &[&str] = &[
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
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
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];

/// Features of the API that are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `minReplicas` of a `HorizontalPodAutoscaler` may be zero (gate `HPAScaleToZero`).
    pub scale_to_zero: bool,
}

impl BuiltinKinds {
    /// The kinds of Kubernetes.
    fn new(features: Features) -> Self {
        Self {
            strategies: if features.scale_to_zero {
                registry::strategy_of_scaling_to_zero
            } else {
                registry::strategy_of
            },
            defaults: defaults::apply,
            plugins: plugins(),
            create_system_objects: system_objects::ensure,
        }
    }
}

impl ApiServer {
    /// An API server over a store. Creates the objects that every cluster has, if they are missing.
    pub fn new(config: Config) -> Result<Self, ApiError> {
        Self::with_features(config, Features::default())
    }

    /// An API server with features that are off by default.
    pub fn with_features(config: Config, features: Features) -> Result<Self, ApiError> {
        Self::with_kinds(config, BuiltinKinds::new(features))
    }
}

impl Plugins {
    /// All plugins, minus those in `disable`: comma-separated names.
    pub fn new(enable: &str, disable: &str) -> Result<Self, UnknownPlugin> {
        Self::from_flags(PLUGIN_NAMES, enable, disable)
    }
}

/// The admission plugins that decide by kind, in the order of kube-apiserver.
fn plugins() -> Vec<Box<dyn Plugin>> {
    vec![
        Box::new(limit_ranger::LimitRanger),
        Box::new(service_account::ServiceAccount),
        Box::new(node_restriction::NodeRestriction),
        Box::new(admission_defaults::TaintNodesByCondition),
        Box::new(priority::Priority),
        Box::new(admission_defaults::DefaultTolerationSeconds),
        Box::new(admission_defaults::DefaultStorageClass),
        Box::new(admission_defaults::StorageObjectInUseProtection),
        Box::new(claim_resize::PersistentVolumeClaimResize),
        Box::new(runtime_class::RuntimeClass),
        Box::new(certificates::CertificateApproval),
        Box::new(certificates::CertificateSigning),
        Box::new(certificates::CertificateSubjectRestriction),
        Box::new(admission_defaults::DefaultIngressClass),
        Box::new(pod_resize::PodResize),
        Box::new(resource_quota::ResourceQuotaPlugin),
    ]
}
