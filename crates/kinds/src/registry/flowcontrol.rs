//! The kinds of `flowcontrol.apiserver.k8s.io`.

mod flow_schema;
mod priority_level_configuration;
mod validation;

pub(super) use flow_schema::FlowSchemaStrategy;
pub(super) use priority_level_configuration::PriorityLevelConfigurationStrategy;
