//! `FlowSchemas`.

use crate::registry::Strategy;

/// The strategy of `FlowSchemas`.
#[derive(Debug)]
pub(in crate::registry) struct FlowSchemaStrategy;

impl Strategy for FlowSchemaStrategy {
    fn counts_generation(&self) -> bool {
        true
    }
}
