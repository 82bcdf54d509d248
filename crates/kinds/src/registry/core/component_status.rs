//! `ComponentStatuses`.

use serde_json::{Value, json};

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{Column, NAME};
use plumb_apiserver::table::view::View;

/// The strategy of `ComponentStatuses`.
#[derive(Debug)]
pub(in crate::registry) struct ComponentStatusStrategy;

impl Strategy for ComponentStatusStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Status", "whether the component is healthy"),
        Column::text("Message", "what the component says of its health"),
        Column::text("Error", "why its health is not known"),
    ],
    component,
);

fn component(component: View<'_>) -> Value {
    let health = component.items("/conditions").find(|one| one.text("/type") == "Healthy");
    let status = match health.map(|health| health.text("/status")) {
        None => "Unknown",
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
    };
    let said = |field| health.map_or("", |health| health.text(field));
    json!([component.name(), status, said("/message"), said("/error")])
}
