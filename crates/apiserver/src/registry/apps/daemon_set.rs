//! `DaemonSets`.

use serde_json::{Value, json};

use crate::defaults;
use crate::error::ApiError;
use crate::object::metadata;
use crate::registry::{Context, Strategy, pod_template};

/// The annotation in which a `DaemonSet` counts its templates. Upstream has a field for it in its internal type.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The strategy of `DaemonSets`.
#[derive(Debug)]
pub(in crate::registry) struct DaemonSetStrategy;

impl Strategy for DaemonSetStrategy {
    fn counts_generation(&self) -> bool {
        true
    }

    fn pod_template(&self) -> Option<&'static str> {
        Some("/spec/template")
    }

    fn apply_defaults(&self, cx: Context<'_>, _old: &Value, new: &mut Value) -> Result<(), ApiError> {
        let Context { row, server, .. } = cx;
        defaults::apply(row.group(), row.version(), row.kind(), new, server.rules());
        // Upstream's field is a number, which is shown from the start.
        let annotations = metadata(new).entry("annotations").or_insert_with(|| json!({}));
        if annotations.get(TEMPLATE_GENERATION).is_none() {
            annotations[TEMPLATE_GENERATION] = json!("0");
        }
        Ok(())
    }

    fn prepare_for_create(&self, _cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        count_template(None, new);
        Ok(Vec::new())
    }

    fn prepare_for_update(&self, _cx: Context<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
        count_template(Some(old), new);
        Ok(())
    }

    fn prepare_for_status_update(
        &self,
        _cx: Context<'_>,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        count_template(Some(old), new);
        Ok(())
    }
}

/// Counts the templates of a `DaemonSet` in its annotation.
fn count_template(old: Option<&Value>, new: &mut Value) {
    let count = |set: &Value| {
        set["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().and_then(|text| text.parse::<i64>().ok())
    };
    let count = match old {
        None => count(new).unwrap_or(1).max(1),
        Some(old) => {
            let changed = !pod_template::is_same(&old["spec"]["template"], &new["spec"]["template"]);
            count(old).unwrap_or(0) + i64::from(changed)
        }
    };
    let annotations = metadata(new).entry("annotations").or_insert_with(|| json!({}));
    annotations[TEMPLATE_GENERATION] = json!(count.to_string());
}
