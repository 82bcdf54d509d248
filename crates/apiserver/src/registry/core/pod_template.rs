//! `PodTemplates`.

use crate::registry::Strategy;

/// The strategy of `PodTemplates`.
#[derive(Debug)]
pub(in crate::registry) struct PodTemplateStrategy;

impl Strategy for PodTemplateStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn pod_template(&self) -> Option<&'static str> {
        Some("/template")
    }
}
