//! Ingresses.

use serde_json::{Value, json};

use crate::registry::core::service::load_balancer_addresses;
use crate::registry::{MetadataChecks, Strategy};
use crate::warnings::no_effect;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;

/// The strategy of Ingresses.
#[derive(Debug)]
pub(in crate::registry) struct IngressStrategy;

impl Strategy for IngressStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn warnings(&self, _new: &Value) -> Vec<String> {
        vec![no_effect::of_kind("no controller forwards requests for its hosts")]
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Class", "the class that carries it out"),
        Column::text("Hosts", "the hosts that its rules are for"),
        Column::text("Address", "where it can be reached"),
        Column::text("Ports", "the ports that it opens"),
        AGE,
    ],
    |object| {
        json!([
            object.name(),
            object.text_or("/spec/ingressClassName", "<none>"),
            hosts(object),
            load_balancer_addresses(object).join(","),
            if object.count("/spec/tls") == 0 { "80" } else { "80, 443" },
            object.age(),
        ])
    },
);

/// The hosts of an ingress: those of the first three rules, and how many more rules there are.
fn hosts(ingress: View<'_>) -> String {
    const SHOWN: usize = 3;
    let mut hosts = Vec::new();
    let mut more = false;
    for rule in ingress.items("/spec/rules") {
        more = hosts.len() == SHOWN;
        let host = rule.text("/host");
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    match (hosts.len(), more) {
        (0, _) => "*".to_owned(),
        (_, false) => hosts.join(","),
        (_, true) => format!("{} + {} more...", hosts.join(","), ingress.count("/spec/rules") - SHOWN),
    }
}
