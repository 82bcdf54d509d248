//! Events pass: what happened is forgotten an hour after it was last said.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{DeleteParams, Preconditions};
use plumb_client::Api;
use plumb_controller::{Clock, ObjectRef, Reflector, WatchConfig, WatchEvent};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Clients;

/// How long an event is kept.
pub const KEPT_FOR: SignedDuration = SignedDuration::from_hours(1);
/// How many are deleted at a time.
const AT_ONCE: usize = 16;
/// How long it waits after it could not delete one.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// How much that happened waits to be taken in.
const UNREAD: usize = 1024;

/// When something was last said.
pub fn last_said(event: &Event) -> Option<Timestamp> {
    let times = [
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
        event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0),
        event.metadata.creation_timestamp.as_ref().map(|time| time.0),
    ];
    times.into_iter().flatten().max()
}

/// Which event is forgotten when.
#[derive(Debug, Default)]
pub struct Diary {
    due: BTreeSet<(Timestamp, Arc<ObjectRef>)>,
    events: HashMap<Arc<ObjectRef>, (Timestamp, Option<String>)>,
}

impl Diary {
    /// Applies an event of the watch.
    pub fn apply(&mut self, event: WatchEvent<Event>) {
        match event {
            WatchEvent::Restarted(events) => {
                (self.due, self.events) = Default::default();
                for event in events {
                    self.put(&event);
                }
            }
            WatchEvent::Applied(event) => self.put(&event),
            WatchEvent::Deleted(at) => self.remove(&at),
        }
    }

    fn put(&mut self, event: &Event) {
        // Who does not say when is forgotten at once.
        let when = last_said(event).unwrap_or(Timestamp::UNIX_EPOCH);
        let due = when.checked_add(KEPT_FOR).unwrap_or(Timestamp::MAX);
        self.plan(ObjectRef::of(event), due, event.metadata.resource_version.clone());
    }

    fn plan(&mut self, at: ObjectRef, due: Timestamp, revision: Option<String>) {
        self.remove(&at);
        let at = Arc::new(at);
        self.due.insert((due, at.clone()));
        self.events.insert(at, (due, revision));
    }

    fn remove(&mut self, at: &ObjectRef) {
        if let Some((at, (due, _))) = self.events.remove_entry(at) {
            self.due.remove(&(due, at));
        }
    }

    /// The next event that is to be forgotten, and of which version.
    pub fn pass(&mut self, now: Timestamp) -> Option<(ObjectRef, Option<String>)> {
        let (_, at) = self.due.first().filter(|(due, _)| *due <= now)?.clone();
        let (_, revision) = self.events.get(&at)?.clone();
        self.remove(&at);
        Some((Arc::unwrap_or_clone(at), revision))
    }

    /// When the next is due.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }
}

/// The name of the task.
pub const TASK: &str = "event-ttl-controller";

/// Forgets events until it is dropped.
pub fn run(clients: Clients, clock: Clock) -> BoxFuture<'static, ()> {
    Box::pin(expire(clients, clock))
}

async fn expire(clients: Clients, clock: Clock) {
    let (sender, mut events) = mpsc::channel(UNREAD);
    let api = Api::<Event>::all(clients.watch.clone());
    let reflecting = Reflector::new(api, WatchConfig::default()).run(sender);
    let working = async {
        let mut diary = Diary::default();
        let mut under_way: JoinSet<Option<(ObjectRef, Option<String>)>> = JoinSet::new();
        loop {
            let now = clock.now();
            while under_way.len() < AT_ONCE
                && let Some((at, revision)) = diary.pass(now)
            {
                let (client, supervisor) = (clients.write.clone(), clients.supervisor.clone());
                under_way.spawn(async move {
                    let again = Some((at.clone(), revision.clone()));
                    supervisor.guard(TASK, forget(client, at, revision)).await.unwrap_or(again)
                });
            }
            let wait: Option<Duration> = diary
                .next_at()
                .filter(|_| under_way.len() < AT_ONCE)
                .map(|when| when.duration_since(now).try_into().unwrap_or_default());
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => diary.apply(event),
                    None => return,
                },
                Some(done) = under_way.join_next() => {
                    if let Ok(Some((at, revision))) = done {
                        diary.plan(at, clock.now() + AGAIN, revision);
                    }
                }
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
    };
    tokio::join!(reflecting, working);
}

/// Deletes an event, if nobody said it again. Answers with it if that failed.
async fn forget(
    client: Client,
    at: ObjectRef,
    revision: Option<String>,
) -> Option<(ObjectRef, Option<String>)> {
    let this_version = Preconditions { uid: None, resource_version: revision.clone() };
    let params = DeleteParams { preconditions: Some(this_version), ..DeleteParams::default() };
    match Api::<Event>::namespaced(client, &at.namespace).delete(&at.name, &params).await {
        Ok(()) => None,
        // It is gone, or said again, which is heard of.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.code == 409 => None,
        Err(error) => {
            tracing::debug!(%error, event = at.name, "an event could not be forgotten, will try again");
            Some((at, revision))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_forgotten_an_hour_after_it_was_last_said() {
        let event = |name: &str, last: &str| -> Event {
            serde_json::from_value(json!({
                "metadata": { "name": name, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1" },
                "lastTimestamp": last, "involvedObject": {},
            }))
            .unwrap()
        };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let mut diary = Diary::default();
        diary.apply(WatchEvent::Restarted(vec![
            event("a", "2026-01-01T00:10:00Z"),
            event("b", "2026-01-01T00:00:00Z"),
        ]));
        assert_eq!(diary.next_at(), Some(at("2026-01-01T01:00:00Z")));
        diary.apply(WatchEvent::Applied(Box::new(event("b", "2026-01-01T00:30:00Z"))));
        assert_eq!(diary.pass(at("2026-01-01T01:09:59Z")), None);
        let passed = diary.pass(at("2026-01-01T01:10:00Z")).map(|(at, _)| at.name);
        assert_eq!((passed, diary.pass(at("2026-01-01T01:10:00Z"))), (Some("a".to_owned()), None));
        diary.apply(WatchEvent::Deleted(ObjectRef::namespaced("n", "b")));
        assert_eq!(diary.next_at(), None);
    }
}
