//! Whose requests wait for whose.

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME};
use super::layout::Layout;
use super::view::View;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

pub(super) const LAYOUTS: &[Layout] = &[
    Layout::new(
        GROUP,
        "FlowSchema",
        &[
            NAME,
            Column::text("PriorityLevel", "the level that its requests are of"),
            Column::text("MatchingPrecedence", "which schema is tried first; the lower goes first"),
            Column::text("DistinguisherMethod", "how its requests are told apart"),
            AGE,
            Column::text("MissingPL", "whether its level is not there"),
        ],
        flow_schema,
    ),
    Layout::new(
        GROUP,
        "PriorityLevelConfiguration",
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
    ),
];

fn flow_schema(schema: View<'_>) -> Value {
    let dangling = schema.condition("Dangling").map_or("?", |condition| condition.text("/status"));
    // Zero is no precedence: it stands for the default.
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
