//! What the node says about the resize and the growth of one pod, by its events: who holds the capacity that a resize waits for,
//! and which limits were raised under memory pressure or when throttled, or not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::api::ListParams;
use plumb_client::Api;
use plumb_resize::status::Stage;
use plumb_vpa_explain::printable;

use crate::reading;

/// The event about a resize that does not fit, which is of interest while it does not.
const WAITS: &str = "ResizeWaits";
const REASONS: [&str; 5] = [
    WAITS,
    "MemoryPressureGrowth",
    "MemoryPressureGrowthFailed",
    "ThrottlingGrowth",
    "ThrottlingGrowthFailed",
];

/// The last explanation of each kind, a line for each. Without the right to read events there are none.
pub(super) async fn explanations(client: &Client, pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let list = events.list(&ListParams::default().fields(&of_pod(pod))).await;
    from_events(pod, &list.map(|list| list.items).unwrap_or_default())
}

/// The field selector of the events about a pod.
pub(crate) fn of_pod(pod: &Pod) -> String {
    format!("involvedObject.uid={}", pod.metadata.uid.as_deref().unwrap_or_default())
}

/// The last explanation of each kind among the events about a pod, a line for each.
pub(crate) fn from_events<'a>(pod: &Pod, events: impl IntoIterator<Item = &'a Event>) -> String {
    let waits = reading::of(pod)
        .is_ok_and(|reading| matches!(reading.stage, Stage::Deferred { .. } | Stage::Infeasible { .. }));
    lines(pod, events, waits)
}

fn lines<'a>(pod: &Pod, events: impl IntoIterator<Item = &'a Event>, waits: bool) -> String {
    let mut last: BTreeMap<&str, (Option<Timestamp>, &str)> = BTreeMap::new();
    for event in events {
        let reason = REASONS.iter().find(|reason| event.reason.as_deref() == Some(**reason));
        let (Some(reason), Some(message)) = (reason, event.message.as_deref()) else { continue };
        let found = (seen_at(event), message);
        if last.get(reason).is_none_or(|before| before.0 <= found.0) {
            last.insert(reason, found);
        }
    }
    let mut text = String::new();
    for (_, (_, message)) in last.into_iter().filter(|(reason, _)| waits || *reason != WAITS) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        if text.is_empty() {
            text.push('\n');
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}: {}", printable(message));
    }
    text
}

/// When an event was last emitted.
pub(crate) fn seen_at(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let last = series.map(|time| time.0).or_else(|| event.last_timestamp.as_ref().map(|time| time.0));
    last.or_else(|| event.event_time.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_event_of_each_reason_is_shown_and_a_wait_only_while_there_is_one() {
        let event = |reason: &str, message: &str, at: &str| -> Event {
            serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "reason": reason, "message": message, "lastTimestamp": at,
            }))
            .unwrap()
        };
        let events = [
            event("MemoryPressureGrowth", "second", "2026-01-01T00:00:02Z"),
            event("MemoryPressureGrowth", "first", "2026-01-01T00:00:01Z"),
            event("ResizeWaits", "held by another", "2026-01-01T00:00:03Z"),
            event("Started", "other", "2026-01-01T00:00:04Z"),
            event("ThrottlingGrowth", "throttled", "2026-01-01T00:00:05Z"),
        ];
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "web" } })).unwrap();
        assert_eq!(lines(&pod, &events, false), "\nweb: second\nweb: throttled\n");
        assert_eq!(lines(&pod, &events, true), "\nweb: second\nweb: held by another\nweb: throttled\n");
        assert_eq!(lines(&pod, &[], true), "");
    }
}
