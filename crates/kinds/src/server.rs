//! The API server with the built-in kinds.

use std::sync::Arc;

use plumb_apiserver::{ApiError, ApiServer, BuiltinKinds, Config};

use crate::admission::{AdmissionConfiguration, PodSecurityMetrics};
use crate::{admission, defaults, registry, system_objects};

/// Features of the API that can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `minReplicas` of a `HorizontalPodAutoscaler` may be zero (gate `HPAScaleToZero`).
    pub scale_to_zero: bool,
    /// The behavior of a `HorizontalPodAutoscaler` may have a `tolerance` (gate `HPAConfigurableTolerance`).
    pub configurable_tolerance: bool,
    /// A pod is updated only if its node declares the features that this needs (gate `NodeDeclaredFeatures`).
    pub node_declared_features: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self { scale_to_zero: false, configurable_tolerance: true, node_declared_features: true }
    }
}

/// An API server over a store, with the kinds of Kubernetes. Creates the objects that every cluster has, if they are missing.
pub fn api_server(config: Config) -> Result<ApiServer, ApiError> {
    configured_api_server(config, Features::default(), AdmissionConfiguration::default())
}

/// An API server with these features, and a configuration of admission plugins.
pub fn configured_api_server(
    config: Config,
    features: Features,
    admission: AdmissionConfiguration,
) -> Result<ApiServer, ApiError> {
    let pod_security = Arc::new(PodSecurityMetrics::default());
    let builtin = BuiltinKinds {
        strategies: registry::strategies(features),
        defaults: defaults::apply,
        plugins: admission::plugins(features, admission, Arc::clone(&pod_security)),
        create_system_objects: system_objects::ensure,
    };
    let server = ApiServer::new(config, builtin)?;
    server.also_show(move |text| pod_security.render(text));
    Ok(server)
}
