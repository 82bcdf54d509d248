//! `FlowSchemas`.

use serde_json::Value;

use crate::registry::Strategy;
use crate::warnings::{self, no_effect};

/// The strategy of `FlowSchemas`.
#[derive(Debug)]
pub(in crate::registry) struct FlowSchemaStrategy;

impl Strategy for FlowSchemaStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn warnings_on_create(&self, _new: &Value) -> Vec<String> {
        vec![no_effect::of_kind(no_effect::NO_FAIRNESS)]
    }

    fn warnings_on_update(&self, old: &Value, new: &Value) -> Vec<String> {
        if warnings::is_changed(old, new) {
            vec![no_effect::of_kind(no_effect::NO_FAIRNESS)]
        } else {
            Vec::new()
        }
    }
}
