//! Leases.

use serde_json::Value;

use crate::registry::{Strategy, disabled_fields};

/// The strategy of Leases.
#[derive(Debug)]
pub(in crate::registry) struct LeaseStrategy;

impl Strategy for LeaseStrategy {
    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        let fields = ["strategy", "preferredHolder"];
        disabled_fields::drop_unless_used(old.map(|old| &old["spec"]), &mut new["spec"], &fields);
    }
}
