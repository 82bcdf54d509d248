//! Where objects are listed and watched: whole, or their metadata alone.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::{ListMeta, PartialObjectMeta};
use plumb_client::Api;

use super::Watchable;

type Events<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

/// What is called with each object of a list.
type Each<'a, K> = &'a mut (dyn FnMut(K) + Send);

/// A collection of the API. Boxed, so that the loop and its errors are compiled once per kind and not per way to read it;
/// lists and watches start rarely.
pub(super) trait Source<K: Clone>: Send + Sync {
    /// The path of the collection.
    fn url(&self) -> &str;

    /// One page, object by object.
    fn list<'a>(&'a self, params: &'a ListParams, each: Each<'a, K>)
    -> BoxFuture<'a, kube::Result<ListMeta>>;

    /// The events after a resource version.
    fn watch<'a>(
        &'a self,
        params: &'a WatchParams,
        resource_version: &'a str,
    ) -> BoxFuture<'a, kube::Result<Events<K>>>;
}

/// Whole objects.
pub(super) struct Whole<K>(pub(super) Api<K>);

impl<K: Watchable> Source<K> for Whole<K> {
    fn url(&self) -> &str {
        self.0.resource_url()
    }

    fn list<'a>(
        &'a self,
        params: &'a ListParams,
        each: Each<'a, K>,
    ) -> BoxFuture<'a, kube::Result<ListMeta>> {
        self.0.list_each(params, each).boxed()
    }

    fn watch<'a>(
        &'a self,
        params: &'a WatchParams,
        resource_version: &'a str,
    ) -> BoxFuture<'a, kube::Result<Events<K>>> {
        self.0.watch(params, resource_version).boxed()
    }
}

/// The metadata of objects.
pub(super) struct Metadata<K>(pub(super) Api<K>);

impl<K: Watchable> Source<PartialObjectMeta<K>> for Metadata<K> {
    fn url(&self) -> &str {
        self.0.resource_url()
    }

    fn list<'a>(
        &'a self,
        params: &'a ListParams,
        each: Each<'a, PartialObjectMeta<K>>,
    ) -> BoxFuture<'a, kube::Result<ListMeta>> {
        self.0.list_metadata_each(params, each).boxed()
    }

    fn watch<'a>(
        &'a self,
        params: &'a WatchParams,
        resource_version: &'a str,
    ) -> BoxFuture<'a, kube::Result<Events<PartialObjectMeta<K>>>> {
        self.0.watch_metadata(params, resource_version).boxed()
    }
}
