//! Who sees everything that happens, in the order in which it happened.
//!
//! Each kind is watched through the API, and each watch tells its events in order; which event of one kind came before
//! which of another is told by their resource versions. An event is passed on when nothing that came before it can
//! still be on its way: time went on since, which it does only when everybody has nothing more to hear.

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

/// How often what was heard is passed on.
const TICK: Duration = Duration::from_millis(100);

/// An object as it was seen.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    Pod(Box<Pod>),
    ReplicaSet(Box<ReplicaSet>),
    Deployment(Box<Deployment>),
    StatefulSet(Box<StatefulSet>),
    DaemonSet(Box<DaemonSet>),
    Job(Box<Job>),
    CronJob(Box<CronJob>),
    Node(Box<Node>),
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(super) struct Happening {
    pub(super) revision: u64,
    pub(super) object: Seen,
    /// Whether the object is no more; else it is new, or changed.
    pub(super) gone: bool,
}

/// Who hears of it.
pub(super) struct Witness {
    heard: mpsc::UnboundedReceiver<Happening>,
    waiting: BTreeMap<u64, Happening>,
    /// Up to which revision all was heard.
    sure: u64,
    _listening: JoinSet<()>,
}

impl Witness {
    pub(super) fn listen(client: &Client) -> Self {
        let (tell, heard) = mpsc::unbounded_channel();
        let mut listening = JoinSet::new();
        listening.spawn(follow(client.clone(), Seen::Pod, tell.clone()));
        listening.spawn(follow(client.clone(), Seen::ReplicaSet, tell.clone()));
        listening.spawn(follow(client.clone(), Seen::Deployment, tell.clone()));
        listening.spawn(follow(client.clone(), Seen::StatefulSet, tell.clone()));
        listening.spawn(follow(client.clone(), Seen::DaemonSet, tell.clone()));
        listening.spawn(follow(client.clone(), Seen::Job, tell.clone()));
        listening.spawn(follow(client.clone(), Seen::CronJob, tell.clone()));
        listening.spawn(follow(client.clone(), Seen::Node, tell));
        Self { heard, waiting: BTreeMap::new(), sure: 0, _listening: listening }
    }

    /// Waits for a moment, and passes on what happened before the moment before. `newest` is the revision of the API.
    pub(super) async fn tick(&mut self, newest: impl FnOnce() -> u64) -> Vec<Happening> {
        tokio::time::sleep(TICK).await;
        while let Ok(happening) = self.heard.try_recv() {
            self.waiting.insert(happening.revision, happening);
        }
        let later = self.waiting.split_off(&(self.sure + 1));
        let told = std::mem::replace(&mut self.waiting, later);
        self.sure = newest();
        told.into_values().collect()
    }
}

fn revision<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap()
}

async fn follow<K>(client: Client, seen: fn(Box<K>) -> Seen, tell: mpsc::UnboundedSender<Happening>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<K> = Api::all(client);
    let list = api.list(&ListParams::default()).await.unwrap();
    let mut from = list.metadata.resource_version.clone().unwrap();
    let say = |object: K, gone| {
        let happening = Happening { revision: revision(&object), object: seen(Box::new(object)), gone };
        // Nobody hears any more when the soak is over.
        let _ = tell.send(happening);
    };
    list.items.into_iter().for_each(|object| say(object, false));
    loop {
        let mut events = api.watch(&WatchParams::default(), &from).await.unwrap().boxed();
        while let Some(event) = events.next().await {
            let (object, gone) = match event.unwrap() {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(mark) => {
                    from = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => panic!("a watch failed: {status:?}"),
            };
            from = revision(&object).to_string();
            say(object, gone);
        }
    }
}
