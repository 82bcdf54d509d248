//! Following the objects of a kind: what is there, and then what happens to it.
//!
//! ```text
//!   list ──▶ Told::All ──▶ watch ──▶ Told::Put, Told::Gone ──▶ … (list again if history does not reach back)
//! ```
//!
//! Everybody who watches the API does it with [`follow`]; what was told is kept in a [`Known`], or not at all. Objects are
//! told without their managed fields: whoever writes them back whole leaves the managers as they are.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use kube::api::{ListParams, ObjectList, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};
use tokio::sync::mpsc;

/// How long a loop waits after a failure: twice as long each time, up to a bound.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// An object by its namespace (empty if its kind has none) and name.
pub type Place = (String, String);

/// What whoever follows is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Told<K> {
    /// Everything that is there now; what was told before is void.
    All(Vec<K>),
    /// This is there, new or changed.
    Put(Box<K>),
    /// This is gone.
    Gone(Place),
}

/// A kind that can be followed.
pub trait Followed:
    kube::Resource + Clone + Debug + Send + Sync + for<'de> serde::Deserialize<'de> + 'static
{
}

impl<K> Followed for K where
    K: kube::Resource + Clone + Debug + Send + Sync + for<'de> serde::Deserialize<'de> + 'static
{
}

/// Where an object is.
pub fn place(object: &impl kube::Resource) -> Place {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// What is known of the objects of a kind.
#[derive(Clone, Debug)]
pub struct Known<K>(BTreeMap<Place, K>);

impl<K> Default for Known<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: kube::Resource> Known<K> {
    /// Takes in what was told, and says which objects that may concern; none if it may be all.
    pub fn take(&mut self, told: Told<K>) -> Option<Place> {
        match told {
            Told::All(objects) => {
                self.0 = objects.into_iter().map(|object| (place(&object), object)).collect();
                None
            }
            Told::Put(object) => {
                let at = place(&*object);
                self.0.insert(at.clone(), *object);
                Some(at)
            }
            Told::Gone(at) => {
                self.0.remove(&at);
                Some(at)
            }
        }
    }

    /// An object.
    pub fn get(&self, at: &Place) -> Option<&K> {
        self.0.get(at)
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = (&Place, &K)> {
        self.0.iter()
    }
}

/// Waits longer with each failure, and not at all after a success.
#[derive(Debug, Default)]
pub struct Backoff(Option<Duration>);

impl Backoff {
    /// All went well.
    pub fn reset(&mut self) {
        self.0 = None;
    }

    /// Waits.
    pub async fn wait(&mut self) {
        let wait = self.0.unwrap_or(FIRST_WAIT);
        self.0 = Some((wait * 2).min(LONGEST_WAIT));
        tokio::time::sleep(wait).await;
    }
}

/// Where objects are listed and watched.
trait Source: Sync {
    type Item: kube::Resource + Clone + Send;

    fn list(&self, params: &ListParams) -> impl Future<Output = kube::Result<ObjectList<Self::Item>>> + Send;

    fn watch(
        &self,
        params: &WatchParams,
        revision: &str,
    ) -> impl Future<Output = kube::Result<Events<Self::Item>>> + Send;
}

type Events<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

struct Whole<K>(Api<K>);

impl<K: Followed> Source for Whole<K> {
    type Item = K;

    async fn list(&self, params: &ListParams) -> kube::Result<ObjectList<K>> {
        self.0.list(params).await
    }

    async fn watch(&self, params: &WatchParams, revision: &str) -> kube::Result<Events<K>> {
        Ok(self.0.watch(params, revision).await?.boxed())
    }
}

struct Metadata<K>(Api<K>);

impl<K: Followed> Source for Metadata<K> {
    type Item = PartialObjectMeta<K>;

    async fn list(&self, params: &ListParams) -> kube::Result<ObjectList<Self::Item>> {
        self.0.list_metadata(params).await
    }

    async fn watch(&self, params: &WatchParams, revision: &str) -> kube::Result<Events<Self::Item>> {
        Ok(self.0.watch_metadata(params, revision).await?.boxed())
    }
}

/// Follows the objects that a selection wants, and tells of them until nobody listens any more.
///
/// A watch that ends is taken up where it ended; if that is too long ago, everything is told anew.
pub async fn follow<K: Followed>(api: Api<K>, fields: Option<&str>, tell: mpsc::Sender<Told<K>>) {
    go_on(&Whole(api), fields, tell).await;
}

/// Follows objects, and tells what is said of every object but nothing of what they are themselves.
pub async fn follow_metadata<K: Followed>(api: Api<K>, tell: mpsc::Sender<Told<PartialObjectMeta<K>>>) {
    go_on(&Metadata(api), None, tell).await;
}

async fn go_on<S: Source>(api: &S, fields: Option<&str>, tell: mpsc::Sender<Told<S::Item>>) {
    let mut backoff = Backoff::default();
    let listed = || match fields {
        Some(fields) => ListParams::default().fields(fields),
        None => ListParams::default(),
    };
    let watched = || match fields {
        Some(fields) => WatchParams::default().fields(fields),
        None => WatchParams::default(),
    };
    while !tell.is_closed() {
        let list = match api.list(&listed()).await {
            Ok(list) => list,
            Err(error) => {
                tracing::debug!(%error, "cannot list, will try again");
                backoff.wait().await;
                continue;
            }
        };
        let mut revision = list.metadata.resource_version.clone().unwrap_or_default();
        if tell.send(Told::All(list.items.into_iter().map(slim).collect())).await.is_err() {
            return;
        }
        // Until history no longer reaches back to where the last watch ended.
        'resume: loop {
            let mut events = match api.watch(&watched(), &revision).await {
                Ok(events) => events,
                Err(error) => {
                    tracing::debug!(%error, "cannot watch, will list again");
                    backoff.wait().await;
                    break 'resume;
                }
            };
            loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    () = tell.closed() => return,
                };
                let told = match event {
                    Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                        revision = object.resource_version().unwrap_or(revision);
                        Told::Put(Box::new(slim(object)))
                    }
                    Some(Ok(WatchEvent::Deleted(object))) => {
                        revision = object.resource_version().unwrap_or(revision);
                        Told::Gone(place(&object))
                    }
                    Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                        revision = bookmark.metadata.resource_version;
                        continue;
                    }
                    Some(Ok(WatchEvent::Error(error))) => {
                        tracing::debug!(code = error.code, "the watch was ended, will list again");
                        break 'resume;
                    }
                    Some(Err(error)) => {
                        tracing::debug!(%error, "the watch broke, will take it up again");
                        backoff.wait().await;
                        break;
                    }
                    None => break,
                };
                backoff.reset();
                if tell.send(told).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// An object without what is kept about its managers, in no more memory than it needs: nobody who follows decides by
/// them, and of a small object they are nine tenths.
pub fn slim<K: kube::Resource + Clone>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    // Lists that were read have room for several more, which of a pod with one container is a half; a copy has not.
    object.clone()
}

/// Whether a refusal means that there is nothing left to do: somebody else did it, or the place is gone.
pub fn is_settled(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => {
            let terminating = status.details.as_ref().is_some_and(|details| {
                details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
            });
            status.is_already_exists() || status.is_not_found() || terminating
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_followed_takes_no_more_memory_than_it_needs() {
        let status = json!({ "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0 });
        let text = json!({
            "metadata": { "name": "a", "managedFields": [{ "manager": "m" }] },
            "spec": { "containers": [{ "name": "c" }] },
            "status": { "containerStatuses": [status] },
        });
        let pod: Pod = serde_json::from_str(&text.to_string()).unwrap();
        let room = |pod: &Pod| pod.status.as_ref()?.container_statuses.as_ref().map(Vec::capacity);
        assert!(room(&pod) > Some(1), "nothing to save");
        let slim = slim(pod);
        assert_eq!((room(&slim), slim.metadata.managed_fields), (Some(1), None));
    }
}
