//! Observes all events of the cluster in the order of their resource versions.
//!
//! There is a watch for each kind, which delivers its events in order; resource versions order the events of different kinds. The
//! observer delivers an event when no earlier one can be missing: virtual time has advanced since, which it does only when no task
//! has anything left to do.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How often the observer delivers events.
const TICK: Duration = Duration::from_millis(100);

/// An observed object.
#[derive(Clone, Debug)]
pub(super) enum ObservedObject {
    Pod(Box<Pod>),
    ReplicaSet(Box<ReplicaSet>),
    Deployment(Box<Deployment>),
    StatefulSet(Box<StatefulSet>),
    DaemonSet(Box<DaemonSet>),
    Job(Box<Job>),
    CronJob(Box<CronJob>),
    Node(Box<Node>),
}

/// An observed event.
#[derive(Clone, Debug)]
pub(super) struct ObservedEvent {
    pub(super) revision: u64,
    pub(super) object: ObservedObject,
    /// Whether the object was deleted; else it was created or updated.
    pub(super) deleted: bool,
}

/// The observer.
pub(super) struct Observer {
    events: mpsc::UnboundedReceiver<ObservedEvent>,
    pending: BTreeMap<u64, ObservedEvent>,
    /// All events up to this revision were received.
    complete_up_to: u64,
    _watching: JoinSet<()>,
}

impl Observer {
    pub(super) fn start(client: &Client) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let mut watching = JoinSet::new();
        watching.spawn(watch_kind(client.clone(), ObservedObject::Pod, sender.clone()));
        watching.spawn(watch_kind(client.clone(), ObservedObject::ReplicaSet, sender.clone()));
        watching.spawn(watch_kind(client.clone(), ObservedObject::Deployment, sender.clone()));
        watching.spawn(watch_kind(client.clone(), ObservedObject::StatefulSet, sender.clone()));
        watching.spawn(watch_kind(client.clone(), ObservedObject::DaemonSet, sender.clone()));
        watching.spawn(watch_kind(client.clone(), ObservedObject::Job, sender.clone()));
        watching.spawn(watch_kind(client.clone(), ObservedObject::CronJob, sender.clone()));
        watching.spawn(watch_kind(client.clone(), ObservedObject::Node, sender));
        Self { events, pending: BTreeMap::new(), complete_up_to: 0, _watching: watching }
    }

    /// Waits for a tick, and delivers the events up to the revision of the tick before. `newest` is the current revision.
    pub(super) async fn tick(&mut self, newest: impl FnOnce() -> u64) -> Vec<ObservedEvent> {
        tokio::time::sleep(TICK).await;
        while let Ok(event) = self.events.try_recv() {
            self.pending.insert(event.revision, event);
        }
        let later = self.pending.split_off(&(self.complete_up_to + 1));
        let complete = std::mem::replace(&mut self.pending, later);
        self.complete_up_to = newest();
        complete.into_values().collect()
    }
}

fn revision<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap()
}

async fn watch_kind<K>(
    client: Client,
    wrap: fn(Box<K>) -> ObservedObject,
    sender: mpsc::UnboundedSender<ObservedEvent>,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<K> = Api::all(client);
    let list = api.list(&ListParams::default()).await.unwrap();
    let mut from = list.metadata.resource_version.clone().unwrap();
    let send = |object: K, deleted| {
        let event = ObservedEvent { revision: revision(&object), object: wrap(Box::new(object)), deleted };
        // At the end of the soak the receiver is dropped.
        let _ = sender.send(event);
    };
    list.items.into_iter().for_each(|object| send(object, false));
    loop {
        let mut events = api.watch(&WatchParams::default(), &from).await.unwrap().boxed();
        while let Some(event) = events.next().await {
            let (object, deleted) = match event.unwrap() {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(mark) => {
                    from = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => panic!("a watch failed: {status:?}"),
            };
            from = revision(&object).to_string();
            send(object, deleted);
        }
    }
}
