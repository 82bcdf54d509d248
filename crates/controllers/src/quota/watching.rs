//! Following quotas and what they count.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use plumb_resize::list::ResourceList;
use plumb_resize::quota::{Counted, Item};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::counting::Kind;
use super::{Config, Place};

/// How long a watch that broke waits at first, and at most.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// What happened.
pub(super) enum Told {
    /// A quota is there, new or changed.
    Quota(Box<ResourceQuota>),
    /// A quota is gone.
    NoQuota(Place),
    /// Something is gone, or counts for less than it did.
    Released {
        /// Where it was.
        namespace: String,
        /// What it was.
        kind: Kind,
    },
}

/// Where an object is.
pub(super) fn place(metadata: &ObjectMeta) -> Place {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// An object that is followed.
pub(super) trait Followed: Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    /// What is said of every object.
    fn metadata(&self) -> &ObjectMeta;

    /// As something that is counted.
    fn item(&self) -> Item<'_> {
        Item::Other
    }

    /// As a quota.
    fn quota(&self) -> Option<&ResourceQuota> {
        None
    }
}

impl Followed for ResourceQuota {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn quota(&self) -> Option<&ResourceQuota> {
        Some(self)
    }
}

impl Followed for Pod {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn item(&self) -> Item<'_> {
        Item::Pod(self)
    }
}

impl Followed for Service {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn item(&self) -> Item<'_> {
        Item::Service(self)
    }
}

impl Followed for PersistentVolumeClaim {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn item(&self) -> Item<'_> {
        Item::Claim(self)
    }
}

impl Followed for DynamicObject {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Follows all objects of a kind, and tells of what matters, until nobody listens. Without a kind they are quotas.
pub(super) async fn follow<K: Followed>(
    api: Api<K>,
    config: Config,
    kind: Option<Kind>,
    tell: mpsc::Sender<Told>,
) {
    let mut ledger = Ledger { config, kind, usage: HashMap::new() };
    let mut wait = FIRST_WAIT;
    while !tell.is_closed() {
        match once(&api, &mut ledger, &tell).await {
            Ok(()) => wait = FIRST_WAIT,
            Err(error) => {
                tracing::debug!(%error, kind = ?ledger.kind, "a watch broke");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }
}

async fn once<K: Followed>(api: &Api<K>, ledger: &mut Ledger, tell: &mpsc::Sender<Told>) -> kube::Result<()> {
    let list = api.list(&ListParams::default()).await?;
    for told in ledger.all(&list.items) {
        // Nobody listens any more: the loop ends.
        let _ = tell.send(told).await;
    }
    let mut revision = list.metadata.resource_version.unwrap_or_default();
    loop {
        let mut events = api.watch(&WatchParams::default(), &revision).await?.boxed();
        while let Some(event) = events.next().await {
            let told = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    revision = object.metadata().resource_version.clone().unwrap_or(revision);
                    ledger.put(&object)
                }
                WatchEvent::Deleted(object) => {
                    revision = object.metadata().resource_version.clone().unwrap_or(revision);
                    Some(ledger.gone(&place(object.metadata())))
                }
                WatchEvent::Bookmark(bookmark) => {
                    revision = bookmark.metadata.resource_version;
                    None
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            };
            if let Some(told) = told
                && tell.send(told).await.is_err()
            {
                return Ok(());
            }
        }
    }
}

/// What everything counted for when it was last seen.
struct Ledger {
    config: Config,
    kind: Option<Kind>,
    usage: HashMap<Place, ResourceList>,
}

impl Ledger {
    fn all<K: Followed>(&mut self, objects: &[K]) -> Vec<Told> {
        let there: std::collections::HashSet<Place> =
            objects.iter().map(|object| place(object.metadata())).collect();
        let lost: Vec<Place> = self.usage.keys().filter(|place| !there.contains(*place)).cloned().collect();
        let mut told: Vec<Told> = lost.iter().map(|place| self.gone(place)).collect();
        told.extend(objects.iter().filter_map(|object| self.put(object)));
        told
    }

    fn put<K: Followed>(&mut self, object: &K) -> Option<Told> {
        let place = place(object.metadata());
        let Some(kind) = &self.kind else {
            self.usage.insert(place, ResourceList::default());
            return object.quota().map(|quota| Told::Quota(Box::new(quota.clone())));
        };
        let (group, plural) = kind.name();
        let counted = Counted {
            group,
            plural,
            item: object.item(),
            now: (self.config.clock)(),
            rules: &self.config.rules,
        };
        // What cannot be read counts for nothing here, and is told when it is measured.
        let usage = counted.usage().unwrap_or_default();
        let before = self.usage.insert(place.clone(), usage.clone())?;
        let less = before.iter().any(|(name, amount)| usage.get(name).is_none_or(|now| now < amount));
        less.then(|| Told::Released { namespace: place.0, kind: kind.clone() })
    }

    fn gone(&mut self, place: &Place) -> Told {
        self.usage.remove(place);
        match &self.kind {
            None => Told::NoQuota(place.clone()),
            Some(kind) => Told::Released { namespace: place.0.clone(), kind: kind.clone() },
        }
    }
}
