//! `FlowSchemas`.

use serde_json::{Value, json};

use crate::registry::{FieldPaths, Strategy};
use crate::warnings::no_effect;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;

/// The strategy of `FlowSchemas`.
#[derive(Debug)]
pub(in crate::registry) struct FlowSchemaStrategy;

impl Strategy for FlowSchemaStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn counts_generation(&self) -> bool {
        true
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["metadata"]]
    }

    fn warnings(&self, _new: &Value) -> Vec<String> {
        vec![no_effect::of_kind(no_effect::NO_FAIRNESS)]
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("PriorityLevel", "the level that its requests are of"),
        Column::text("MatchingPrecedence", "which schema is tried first; the lower goes first"),
        Column::text("DistinguisherMethod", "how the flows of its requests are distinguished"),
        AGE,
        Column::text("MissingPL", "whether its level is not there"),
    ],
    flow_schema,
);

fn flow_schema(schema: View<'_>) -> Value {
    let dangling = schema.condition("Dangling").map_or("?", |condition| condition.text("/status"));
    // A precedence of 0 means the default.
    let precedence = match schema.number("/spec/matchingPrecedence") {
        0 => 1000,
        given => given,
    };
    json!([
        schema.name(),
        schema.text("/spec/priorityLevelConfiguration/name"),
        precedence,
        schema.text_or("/spec/distinguisherMethod/type", "<none>"),
        schema.age(),
        dangling,
    ])
}
