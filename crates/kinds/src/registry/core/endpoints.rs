//! Endpoints.

mod validation;

use plumb_resize::rules::Rules;
use serde_json::{Value, json};

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::{View, few};
use plumb_apiserver::validation::Errors;

/// The strategy of Endpoints.
#[derive(Debug)]
pub(in crate::registry) struct EndpointsStrategy;

impl Strategy for EndpointsStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn validate(&self, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::validate(new, None, errors);
    }

    fn validate_update(&self, old: &Value, new: &Value, _rules: &Rules, errors: &mut Errors) {
        validation::validate(new, Some(old), errors);
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[NAME, Column::text("Endpoints", "addresses and ports of what serves"), AGE],
    |object| json!([object.name(), endpoints(object), object.age()]),
);

fn endpoints(object: View<'_>) -> String {
    if object.count("/subsets") == 0 {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in object.items("/subsets") {
        let addresses: Vec<&str> = subset.items("/addresses").map(|address| address.text("/ip")).collect();
        // A headless service may have no ports.
        if subset.count("/ports") == 0 {
            all.extend(addresses.iter().map(|ip| (*ip).to_owned()));
        }
        for port in subset.items("/ports").map(|port| port.number("/port")) {
            all.extend(
                addresses.iter().map(|ip| {
                    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
                }),
            );
        }
    }
    few(&all, 3, ",")
}
