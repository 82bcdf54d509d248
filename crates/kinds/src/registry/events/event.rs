//! Events.

mod conversion;

use plumb_resize::rules::Rules;
use serde_json::Value;

use super::{print, validation};
use crate::registry::Strategy;
use plumb_apiserver::kinds::conversion::StoredAs;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::validation::Errors;

/// The strategy of Events.
#[derive(Debug)]
pub(in crate::registry) struct EventStrategy;

impl Strategy for EventStrategy {
    fn stored_as(&self, _version: &str) -> Option<StoredAs> {
        Some(StoredAs::builtin(("", "v1", "events"), &conversion::V1))
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &print::EVENT
    }

    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        Some(&[
            "metadata.namespace",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ])
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::create(new, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::update(old, new, errors);
    }
}
