//! Print columns of Events of the core group and of `events.k8s.io`, whose fields have different names.

use serde_json::{Value, json};

use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{Column, NAME};
use plumb_apiserver::table::view::View;

const COLUMNS: &[Column] = &[
    Column::text("Last Seen", "how long ago it last happened"),
    Column::text("Type", "whether it is normal or a warning"),
    Column::text("Reason", "why it happened, in one word"),
    Column::text("Object", "what it is about"),
    Column::text("Subobject", "which part of that it is about").wide(),
    Column::text("Source", "the component that reported it").wide(),
    Column::text("Message", "what happened"),
    Column::text("First Seen", "how long ago it first happened").wide(),
    Column::text("Count", "how often it happened").wide(),
    NAME.wide(),
];

/// The print columns of Events of the core group.
pub(in crate::registry) static CORE_EVENT: PrintColumns =
    PrintColumns::new(COLUMNS, |event| cells(event, &CORE));

/// The print columns of Events of `events.k8s.io`.
pub(super) static EVENT: PrintColumns = PrintColumns::new(COLUMNS, |event| cells(event, &EVENTS));

/// The names of the fields that differ between the groups.
struct Names {
    object: &'static str,
    message: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
    source: &'static str,
    reporter: &'static str,
}

const CORE: Names = Names {
    object: "/involvedObject",
    message: "/message",
    first: "/firstTimestamp",
    last: "/lastTimestamp",
    count: "/count",
    source: "/source",
    reporter: "/reportingComponent",
};

const EVENTS: Names = Names {
    object: "/regarding",
    message: "/note",
    first: "/deprecatedFirstTimestamp",
    last: "/deprecatedLastTimestamp",
    count: "/deprecatedCount",
    source: "/deprecatedSource",
    reporter: "/reportingController",
};

fn cells(event: View<'_>, names: &Names) -> Value {
    let first = event.time(names.first).or_else(|| event.time("/eventTime"));
    let (last, count) = match event.at("/series") {
        Some(series) => (series.time("/lastObservedTime"), series.number("/count")),
        // Reporters that use `events.k8s.io` count only the events of a series.
        None => (event.time(names.last).or(first), event.number(names.count).max(1)),
    };
    let about = |field: &str| event.text(&format!("{}/{field}", names.object));
    let (kind, name) = (about("kind").to_lowercase(), about("name"));
    json!([
        event.ago(last),
        event.text("/type"),
        event.text("/reason"),
        if name.is_empty() { kind } else { format!("{kind}/{name}") },
        about("fieldPath"),
        source(event, names),
        event.text(names.message).trim(),
        event.ago(first),
        count,
        event.name(),
    ])
}

fn source(event: View<'_>, names: &Names) -> String {
    let component = event.text_or(&format!("{}/component", names.source), event.text(names.reporter));
    let instance = event.text_or(&format!("{}/host", names.source), event.text("/reportingInstance"));
    if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") }
}
