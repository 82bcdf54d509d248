//! `EndpointSlices`.

mod validation;

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use crate::registry::{Strategy, generation};
use plumb_apiserver::kinds::Row;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::{View, few, or};
use plumb_apiserver::validation::Errors;

/// The strategy of `EndpointSlices`.
#[derive(Debug)]
pub(in crate::registry) struct EndpointSliceStrategy;

impl Strategy for EndpointSliceStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::validate(new, None, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::validate(new, Some(old), errors);
    }

    fn warnings_on_create(&self, new: &Value) -> Vec<String> {
        let is_deprecated = new["addressType"] == "FQDN";
        // Upstream's path: the field is no child of a spec.
        let warning = is_deprecated.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned());
        warning.into_iter().collect()
    }

    fn counts_generation(&self) -> bool {
        true
    }

    /// Labels count as well: one of them names the Service.
    fn is_new_generation(&self, row: &Row, old: &Value, new: &Value) -> bool {
        let labels = |object: &Value| object["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        labels(old) != labels(new) || generation::is_spec_changed(row, old, new)
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("AddressType", "which kind of addresses it holds"),
        Column::text("Ports", "the ports of each endpoint"),
        Column::text("Endpoints", "the addresses of the endpoints"),
        AGE,
    ],
    slice,
);

fn slice(slice: View<'_>) -> Value {
    let ports: Vec<String> = slice
        .items("/ports")
        // A port without a number means all ports.
        .map(|port| port.number_or_text("/port").unwrap_or_else(|| port.text_or("/name", "*").to_owned()))
        .collect();
    let endpoints = slice.items("/endpoints").flat_map(|endpoint| endpoint.texts("/addresses"));
    let endpoints: Vec<String> = endpoints.map(str::to_owned).collect();
    json!([
        slice.name(),
        slice.text("/addressType"),
        or(few(&ports, 3, ","), "<unset>"),
        or(few(&endpoints, 3, ","), "<unset>"),
        slice.age(),
    ])
}
