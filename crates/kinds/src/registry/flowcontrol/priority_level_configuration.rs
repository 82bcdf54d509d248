//! `PriorityLevelConfigurations`.

use serde_json::{Value, json};

use crate::registry::{FieldPaths, Strategy};
use crate::warnings::no_effect;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;

/// The strategy of `PriorityLevelConfigurations`.
#[derive(Debug)]
pub(in crate::registry) struct PriorityLevelConfigurationStrategy;

impl Strategy for PriorityLevelConfigurationStrategy {
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
        Column::text("Type", "whether the level has a limit"),
        Column::text("NominalConcurrencyShares", "its share of what may be under way at once"),
        Column::text("Queues", "how many queues it has"),
        Column::text("HandSize", "how many queues a flow may use"),
        Column::text("QueueLengthLimit", "how many requests may wait in a queue"),
        AGE,
    ],
    priority_level,
);

fn priority_level(level: View<'_>) -> Value {
    let limited = level.at("/spec/limited");
    let queuing = limited.and_then(|limited| limited.at("/limitResponse/queuing"));
    let cell = |part: Option<View<'_>>, path, default| match part {
        Some(part) => json!(part.number_or(path, default)),
        None => json!("<none>"),
    };
    json!([
        level.name(),
        level.text("/spec/type"),
        cell(limited, "/nominalConcurrencyShares", 30),
        cell(queuing, "/queues", 64),
        cell(queuing, "/handSize", 8),
        cell(queuing, "/queueLengthLimit", 50),
        level.age(),
    ])
}
