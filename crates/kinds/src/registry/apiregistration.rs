//! The kinds of `apiregistration.k8s.io`.

mod api_service;
mod validation;

pub(super) use api_service::ApiServiceStrategy;
