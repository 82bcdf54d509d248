//! The API server with the built-in kinds.

use plumb_apiserver::{ApiError, ApiServer, BuiltinKinds, Config};

use crate::{admission, defaults, registry, system_objects};

/// Features of the API that can be switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `minReplicas` of a `HorizontalPodAutoscaler` may be zero (gate `HPAScaleToZero`).
    pub scale_to_zero: bool,
    /// The behavior of a `HorizontalPodAutoscaler` may have a `tolerance` (gate `HPAConfigurableTolerance`).
    pub configurable_tolerance: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self { scale_to_zero: false, configurable_tolerance: true }
    }
}

/// An API server over a store, with the kinds of Kubernetes. Creates the objects that every cluster has, if they are missing.
pub fn api_server(config: Config) -> Result<ApiServer, ApiError> {
    api_server_with_features(config, Features::default())
}

/// An API server with these features.
pub fn api_server_with_features(config: Config, features: Features) -> Result<ApiServer, ApiError> {
    let builtin = BuiltinKinds {
        strategies: registry::strategies(features),
        defaults: defaults::apply,
        plugins: admission::plugins(),
        create_system_objects: system_objects::ensure,
    };
    ApiServer::new(config, builtin)
}
