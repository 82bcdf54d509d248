//! Events.

use plumb_resize::rules::Rules;
use serde_json::Value;

use crate::registry::events::print;
use crate::registry::events::validation::check_core_event;
use crate::registry::{MetadataChecks, Strategy};
use crate::table::PrintColumns;
use crate::validation::Errors;

/// The strategy of Events.
#[derive(Debug)]
pub(in crate::registry) struct EventStrategy;

impl Strategy for EventStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::None
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &print::CORE_EVENT
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        check_core_event(new, errors);
    }

    fn validate_update(&self, _old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        check_core_event(new, errors);
    }
}
