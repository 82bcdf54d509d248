//! The kinds of `apiregistration.k8s.io`.

mod api_service;

pub(super) use api_service::ApiServiceStrategy;
