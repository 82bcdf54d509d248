//! `ControllerRevisions`.

use serde_json::json;

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;

/// The strategy of `ControllerRevisions`.
#[derive(Debug)]
pub(in crate::registry) struct ControllerRevisionStrategy;

impl Strategy for ControllerRevisionStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Controller", "whose revision it is"),
        Column::text("Revision", "its number among them"),
        AGE,
    ],
    |object| json!([object.name(), controller(object), object.number("/revision"), object.age()]),
);

/// The controller of an object: `statefulset.apps/web`.
fn controller(object: View<'_>) -> String {
    let mut owners = object.items("/metadata/ownerReferences");
    let Some(owner) = owners.find(|owner| owner.flag("/controller")) else { return "<none>".to_owned() };
    let kind = match owner.text("/apiVersion").split_once('/') {
        Some((group, _)) => format!("{}.{group}", owner.text("/kind")),
        None => owner.text("/kind").to_owned(),
    };
    format!("{}/{}", kind.to_lowercase(), owner.text("/name"))
}
