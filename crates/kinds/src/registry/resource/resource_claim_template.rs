//! `ResourceClaimTemplates`.

use crate::registry::Strategy;

/// The strategy of `ResourceClaimTemplates`.
#[derive(Debug)]
pub(in crate::registry) struct ResourceClaimTemplateStrategy;

impl Strategy for ResourceClaimTemplateStrategy {
    fn returns_deleted_object(&self) -> bool {
        true
    }
}
