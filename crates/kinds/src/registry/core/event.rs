//! Events.

use plumb_resize::rules::Rules;
use serde_json::Value;

use crate::registry::events::print;
use crate::registry::events::validation::check_core_event;
use crate::registry::{GarbageCollectionPolicy, MetadataChecks, Strategy};
use plumb_apiserver::kinds::Attribute;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::validation::Errors;

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

    fn selectable_fields(&self) -> Option<&'static [&'static str]> {
        Some(&[
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ])
    }

    fn attributes(&self) -> &'static [Attribute] {
        &[Attribute { field: "involvedObject.uid", indexed: false }]
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        check_core_event(new, errors);
    }

    fn default_garbage_collection_policy(&self) -> GarbageCollectionPolicy {
        GarbageCollectionPolicy::Unsupported
    }
}
