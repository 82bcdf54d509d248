//! `LimitRanges`.

mod validation;

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use crate::registry::{Context, MetadataChecks, Strategy};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::{meta, metadata};
use plumb_apiserver::table::{NAME_AND_CREATED_AT, PrintColumns};
use plumb_apiserver::validation::Errors;

/// The strategy of `LimitRanges`.
#[derive(Debug)]
pub(in crate::registry) struct LimitRangeStrategy;

impl Strategy for LimitRangeStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::Create
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &NAME_AND_CREATED_AT
    }

    /// SPEC: upstream generates a name for a `LimitRange` without one.
    fn prepare_for_create(&self, _cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        if meta(new, "name").is_empty() {
            metadata(new).insert("name".into(), json!(uuid::Uuid::new_v4().to_string()));
        }
        Ok(Vec::new())
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::validate_limit_range(new, errors);
    }
}
