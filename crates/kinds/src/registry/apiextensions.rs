//! The kinds of `apiextensions.k8s.io`.

mod custom_resource_definition;

pub(super) use custom_resource_definition::CustomResourceDefinitionStrategy;
