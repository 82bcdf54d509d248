//! The objects of a kind, kept up to date by a watch, and whether the user may read them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _};
use kube::Resource;
use kube::api::ListParams;
use parking_lot::Mutex;
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, Store, WatchConfig, WatchEvent, Watchable};
use tokio::sync::watch;

/// How long to wait after a list that failed for another reason than a missing right.
const RETRY: Duration = Duration::from_secs(2);

/// Whether the objects of a kind can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    /// They have not been listed yet.
    #[default]
    Unknown,
    /// They can.
    Granted,
    /// The user lacks a right; the message of the API server names it.
    Forbidden(String),
    /// The API server does not serve the kind.
    NotServed,
    /// The API server did not answer.
    Unreachable(String),
}

impl Access {
    pub(crate) fn from_error(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_forbidden() => Self::Forbidden(status.message),
            kube::Error::Api(status) if status.is_not_found() => Self::NotServed,
            kube::Error::Api(status) => Self::Unreachable(status.message),
            other => Self::Unreachable(other.to_string()),
        }
    }
}

/// Counts changes, so that pages are rendered again.
#[derive(Clone, Debug)]
pub(crate) struct Changes(watch::Sender<u64>);

impl Default for Changes {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Changes {
    /// Something has changed.
    pub(crate) fn note(&self) {
        self.0.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// A receiver of the changes from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// The objects of a kind.
pub(crate) struct Source<K> {
    store: Arc<Store<K>>,
    access: Arc<Mutex<Access>>,
    changes: Changes,
}

impl<K> Clone for Source<K> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), access: self.access.clone(), changes: self.changes.clone() }
    }
}

impl<K: Resource> Source<K> {
    /// Without objects.
    pub(crate) fn new(changes: &Changes) -> Self {
        let store: Arc<Store<K>> = Arc::default();
        let notify = changes.clone();
        store.add_handler(move |_| notify.note());
        Self { store, access: Arc::default(), changes: changes.clone() }
    }

    /// The objects.
    pub(crate) fn store(&self) -> &Arc<Store<K>> {
        &self.store
    }

    /// Whether they can be read.
    pub(crate) fn access(&self) -> Access {
        self.access.lock().clone()
    }

    fn set(&self, access: Access) {
        let is_new = {
            let mut known = self.access.lock();
            let is_new = *known != access;
            *known = access;
            is_new
        };
        if is_new {
            self.changes.note();
        }
    }
}

/// How the objects of a kind are listed and watched.
pub(crate) trait Reader<K>: Send + Sync + 'static {
    /// Lists one of them.
    fn probe(&self) -> BoxFuture<'_, kube::Result<()>>;

    /// The events of all.
    fn events(&self) -> impl Stream<Item = WatchEvent<K>> + Send;
}

/// Whole objects, reduced by a function.
pub(crate) struct Whole<K> {
    pub(crate) api: Api<K>,
    pub(crate) config: WatchConfig,
    pub(crate) transform: fn(K) -> K,
}

impl<K: Watchable> Reader<K> for Whole<K> {
    fn probe(&self) -> BoxFuture<'_, kube::Result<()>> {
        probe(&self.api)
    }

    fn events(&self) -> impl Stream<Item = WatchEvent<K>> + Send {
        Reflector::new(self.api.clone(), self.config.clone()).with_transform(self.transform).into_stream()
    }
}

/// The metadata of objects.
pub(crate) struct Metadata<K>(pub(crate) Api<K>);

impl<K> Reader<kube::core::PartialObjectMeta<K>> for Metadata<K>
where
    K: Watchable,
    kube::core::PartialObjectMeta<K>: Resource,
{
    fn probe(&self) -> BoxFuture<'_, kube::Result<()>> {
        probe(&self.0)
    }

    fn events(&self) -> impl Stream<Item = WatchEvent<kube::core::PartialObjectMeta<K>>> + Send {
        Reflector::metadata_only(self.0.clone(), WatchConfig::default()).into_stream()
    }
}

fn probe<K: Watchable>(api: &Api<K>) -> BoxFuture<'_, kube::Result<()>> {
    Box::pin(async { api.list_metadata(&ListParams::default().limit(1)).await.map(drop) })
}

/// Keeps the objects of a kind up to date, as long as the user may read them. A reflector alone does not tell whether that is so: it
/// retries for good.
pub(crate) async fn keep<K: Resource>(source: Source<K>, reader: impl Reader<K>, recheck: Duration) {
    loop {
        match reader.probe().await {
            Ok(()) => {
                let mut reading = pin!(read(&source, reader.events()));
                while may_be_read(&source, &reader, &mut reading, recheck).await {}
            }
            Err(error) => {
                let access = Access::from_error(error);
                let wait =
                    if matches!(access, Access::Unreachable(_)) { RETRY.min(recheck) } else { recheck };
                if !matches!(access, Access::Unreachable(_)) {
                    // What the user may not read any more is not shown.
                    source.store.apply(WatchEvent::Restarted(Vec::new()));
                }
                source.set(access);
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// Reads on for a while; afterwards, whether the user may still do so.
async fn may_be_read<K: Resource>(
    source: &Source<K>,
    reader: &impl Reader<K>,
    reading: &mut (impl Future<Output = ()> + Unpin),
    recheck: Duration,
) -> bool {
    tokio::select! {
        () = reading => false,
        () = tokio::time::sleep(recheck) => {
            let access = match reader.probe().await {
                Ok(()) if source.store.has_synced() => Access::Granted,
                Ok(()) => return true,
                Err(error) => Access::from_error(error),
            };
            // The reflector survives an outage. Until it ends, what was read before is shown, with the reason.
            let goes_on = matches!(access, Access::Granted | Access::Unreachable(_));
            if goes_on {
                source.set(access);
            }
            goes_on
        }
    }
}

async fn read<K: Resource>(source: &Source<K>, events: impl Stream<Item = WatchEvent<K>>) {
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        source.store.apply(event);
        source.set(Access::Granted);
    }
}
