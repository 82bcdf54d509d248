//! `StatefulSets`.

use serde_json::Value;

use crate::registry::{Strategy, disabled_fields, pod_template};

const TEMPLATE: &str = "/spec/template";

/// The strategy of `StatefulSets`.
#[derive(Debug)]
pub(in crate::registry) struct StatefulSetStrategy;

impl Strategy for StatefulSetStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn pod_template(&self) -> Option<&'static str> {
        Some(TEMPLATE)
    }

    fn drop_disabled_fields(&self, old: Option<&Value>, new: &mut Value) {
        let pointer = "/spec/updateStrategy/rollingUpdate";
        if let Some(update) = new.pointer_mut(pointer) {
            let old = old.and_then(|old| old.pointer(pointer));
            disabled_fields::drop_unless_used(old, update, &["maxUnavailable"]);
        }
        pod_template::drop_disabled_fields(TEMPLATE, old, new);
    }
}
