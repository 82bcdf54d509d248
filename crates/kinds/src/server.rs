//! The API server with the built-in kinds.

use plumb_apiserver::{ApiError, ApiServer, BuiltinKinds, Config};

use crate::{admission, defaults, registry, system_objects};

/// Features of the API that are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `minReplicas` of a `HorizontalPodAutoscaler` may be zero (gate `HPAScaleToZero`).
    pub scale_to_zero: bool,
}

/// An API server over a store, with the kinds of Kubernetes. Creates the objects that every cluster has, if they are missing.
pub fn api_server(config: Config) -> Result<ApiServer, ApiError> {
    api_server_with_features(config, Features::default())
}

/// An API server with features that are off by default.
pub fn api_server_with_features(config: Config, features: Features) -> Result<ApiServer, ApiError> {
    let strategies =
        if features.scale_to_zero { registry::strategy_of_scaling_to_zero } else { registry::strategy_of };
    let builtin = BuiltinKinds {
        strategies,
        defaults: defaults::apply,
        plugins: admission::plugins(),
        create_system_objects: system_objects::ensure,
    };
    ApiServer::new(config, builtin)
}
