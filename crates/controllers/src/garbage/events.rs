//! Deletes events an hour after they were last observed, as kube-apiserver's `--event-ttl` does.
//!
//! No store holds the events: there may be ten thousand, and all that is needed of each is when it expires.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{DeleteParams, Preconditions};
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::{
    Clock, ObjectRef, Reconciler, Reflector, Requeue, WatchConfig, WatchEvent, WorkQueue,
};

use crate::Clients;

/// How long an event is kept after it was last observed.
pub const TTL: SignedDuration = SignedDuration::from_hours(1);
/// The number of events that are deleted concurrently.
const WORKERS: usize = 16;
/// The name of the task, in health checks and metrics.
pub const TASK: &str = "event-ttl-controller";

/// When an event expires. One without any time has expired.
pub fn expires_at(event: &Event) -> Timestamp {
    let times = [
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
        event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0),
        event.metadata.creation_timestamp.as_ref().map(|time| time.0),
    ];
    let last = times.into_iter().flatten().max().unwrap_or(Timestamp::UNIX_EPOCH);
    last.checked_add(TTL).unwrap_or(Timestamp::MAX)
}

/// Deletes events that have expired until the future is dropped.
pub fn run(clients: Clients, clock: Clock) -> BoxFuture<'static, ()> {
    let reconciler = EventExpiry { client: clients.write.clone(), clock: clock.clone() };
    let controller = clients.controller(TASK, reconciler).with_clock(clock).with_workers(WORKERS);
    let queue = controller.queue().clone();
    let Clients { watch, supervisor, metrics, .. } = clients;
    let watching = supervisor.keep("informer/events", move || {
        let reflector = Reflector::new(Api::<Event>::all(watch.clone()), WatchConfig::default());
        enqueue(reflector.with_metrics(&metrics), queue.clone())
    });
    Box::pin(async move { _ = tokio::join!(watching, controller.run()) })
}

/// Adds events to the queue for when they expire. An event that is repeated meanwhile stays in the queue for its new time.
async fn enqueue(reflector: Reflector<Event>, queue: Arc<WorkQueue>) {
    let mut observed = std::pin::pin!(reflector.into_stream());
    while let Some(event) = observed.next().await {
        match event {
            WatchEvent::Restarted(events) => {
                for event in events {
                    queue.add_at(ObjectRef::of(&event), expires_at(&event));
                }
            }
            WatchEvent::Applied(event) => queue.add_at(ObjectRef::of(&*event), expires_at(&event)),
            WatchEvent::Deleted(_) => {}
        }
    }
}

/// Reconciles events.
struct EventExpiry {
    client: Client,
    clock: Clock,
}

impl Reconciler for EventExpiry {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, event: &ObjectRef) -> kube::Result<Requeue> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &event.namespace);
        let Some(found) = events.get_opt(&event.name).await? else { return Ok(Requeue::AwaitChange) };
        let left = expires_at(&found).duration_since(self.clock.now());
        if left.is_positive() {
            return Ok(Requeue::After(left.try_into().unwrap_or_default()));
        }
        let this_version =
            Preconditions { uid: None, resource_version: found.metadata.resource_version.clone() };
        let params = DeleteParams { preconditions: Some(this_version), ..DeleteParams::default() };
        // An event that was repeated just now is observed again.
        settled_or_conflict(events.delete(&event.name, &params).await)?;
        Ok(Requeue::AwaitChange)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_event_expires_an_hour_after_its_latest_time() {
        let created = "2026-01-01T00:00:00Z";
        for (times, wanted) in [
            (json!({}), "2026-01-01T01:00:00Z"),
            (json!({ "lastTimestamp": "2026-01-01T00:10:00Z" }), "2026-01-01T01:10:00Z"),
            (json!({ "eventTime": "2026-01-01T00:20:00.000000Z" }), "2026-01-01T01:20:00Z"),
            (
                json!({
                    "eventTime": "2026-01-01T00:20:00.000000Z",
                    "series": { "count": 2, "lastObservedTime": "2026-01-01T00:30:00.000000Z" },
                }),
                "2026-01-01T01:30:00Z",
            ),
            (json!({ "metadata": {} }), "1970-01-01T01:00:00Z"),
        ] {
            let mut event = json!({ "metadata": { "creationTimestamp": created }, "involvedObject": {} });
            for (field, value) in times.as_object().into_iter().flatten() {
                event[field] = Value::clone(value);
            }
            let event: Event = serde_json::from_value(event).unwrap();
            assert_eq!(expires_at(&event), wanted.parse::<Timestamp>().unwrap(), "{times}");
        }
    }
}
