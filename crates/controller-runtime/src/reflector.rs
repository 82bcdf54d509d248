//! The list-and-watch loop.
//!
//! ```text
//!            all pages                              the watch starts
//!   Start ──────────────▶ Listed (resourceVersion) ──────────────────▶ Watching ──▶ Applied, Deleted, bookmarks
//!     ▲   Restarted(all)      ▲                                           │
//!     │                       └── ended or broken: resume from the last resourceVersion
//!     └── 410 Gone, Expired, or a resourceVersion that the server has not reached: list again
//! ```
//!
//! Failures are retried with exponential backoff and jitter. They are logged at `debug`, from the fifth in a row on at
//! `warn`. A 403 that persists is logged once, with the permission that is missing, and retried every minute.
//!
//! # Why not `kube_runtime::watcher`
//!
//! It is the same loop and would serve a controller of a few hundred objects. Here one process holds every object of a
//! cluster several times over (controllers, scheduler, a node agent for each virtual node), so what an object costs
//! decides how large a cluster fits. Objects are compacted as they are decoded ([`compact`]): without `managedFields`, and
//! copied once, since a decoded `Vec` has capacity for four elements where most pods have one container and one status. Of a
//! running pod with one container kube-runtime's watcher hands on 23.7 KB, this one 10.4 KB (`cargo bench -p
//! plumb-controller-runtime --bench memory`, `max alloc` of 1000 pods), and of a list one object at a time is held as decoded.
//! kube-runtime's also does not report the progress of a watch without changes, which
//! [`own_writes`](crate::own_writes) needs for objects that were created and deleted before they were observed.

mod failures;
mod source;

use std::convert::identity;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, Stream, StreamExt as _};
use kube::api::{ListParams, WatchEvent as KubeEvent, WatchParams};
use kube::core::{PartialObjectMeta, Status};
use kube::{Resource, ResourceExt as _};
use plumb_client::{Api, Codec};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::metrics::{Metrics, ReflectorMetrics};
use crate::object_ref::ObjectRef;
use failures::{Failures, Verb};
use source::{Metadata, Source, Whole};

/// How many objects a page of a list has, as with client-go.
const PAGE: u32 = 500;
/// How long a watch lasts at most before the server ends it, in seconds; it is resumed without a list.
const WATCH_SECONDS: u32 = 290;
/// A watch that the server did not end this long after its time is taken for a dead connection.
const OVERDUE: Duration = Duration::from_secs(10);
/// A watch that ends sooner than this without an event counts as a failure, so that it is not resumed in a busy loop.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// A kind that can be listed and watched.
pub trait Watchable: Resource + Codec + Debug {}

impl<K> Watchable for K where K: Resource + Codec + Debug {}

/// An observation of a reflector.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent<K> {
    /// All objects: a list succeeded, for the first time or again. It replaces earlier observations.
    Restarted(Vec<K>),
    /// An object was created or changed.
    Applied(Box<K>),
    /// An object was deleted, or no longer matches the selectors.
    Deleted(ObjectRef),
}

impl<K> WatchEvent<K> {
    /// The objects that exist by this event: all that a list found, or the one that was created or changed.
    pub fn into_objects(self) -> Vec<K> {
        match self {
            Self::Restarted(objects) => objects,
            Self::Applied(object) => vec![*object],
            Self::Deleted(_) => Vec::new(),
        }
    }
}

/// Which objects a reflector lists and watches, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchConfig {
    labels: Option<String>,
    fields: Option<String>,
    page_size: Option<u32>,
}

impl WatchConfig {
    /// Only objects whose labels match a selector.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects whose fields match a selector.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Lists this many objects per request instead of 500; 0 lists all at once.
    #[must_use]
    pub fn page_size(mut self, size: u32) -> Self {
        self.page_size = Some(size);
        self
    }

    fn list_params(&self, page: Option<u32>, continue_token: Option<String>) -> ListParams {
        ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit: page,
            continue_token,
            ..ListParams::default()
        }
    }

    fn watch_params(&self) -> WatchParams {
        WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            ..WatchParams::default()
        }
    }
}

/// Lists and watches the objects of a kind for good.
///
/// ```
/// # use futures_util::StreamExt as _;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use plumb_controller_runtime::reflector::{Reflector, WatchConfig, WatchEvent};
/// async fn print_pods_of(client: kube::Client, node: &str) {
///     let config = WatchConfig::default().fields(format!("spec.nodeName={node}"));
///     let mut events = std::pin::pin!(Reflector::new(plumb_client::Api::<Pod>::all(client), config).into_stream());
///     while let Some(event) = events.next().await {
///         match event {
///             WatchEvent::Restarted(pods) => println!("{} pods", pods.len()),
///             WatchEvent::Applied(pod) => println!("{:?} changed", pod.metadata.name),
///             WatchEvent::Deleted(pod) => println!("{pod} was deleted"),
///         }
///     }
/// }
/// ```
pub struct Reflector<K> {
    source: Box<dyn Source<K>>,
    config: WatchConfig,
    transform: fn(K) -> K,
    state: State<K>,
    failures: Failures,
    metrics: Option<Arc<ReflectorMetrics>>,
}

enum State<K> {
    /// No state: list.
    Start,
    /// Everything up to this resource version is known: watch.
    Listed(String),
    /// The watch runs.
    Watching(Watching<K>),
}

struct Watching<K> {
    /// The last resource version that was observed.
    resource_version: String,
    events: BoxStream<'static, kube::Result<KubeEvent<K>>>,
    started: Instant,
    /// How many events and bookmarks the watch has delivered.
    delivered: usize,
}

/// An event, and how far the watch has come; a bookmark is progress without an event.
pub(crate) struct Progress<K> {
    pub(crate) event: Option<WatchEvent<K>>,
    pub(crate) resource_version: u64,
}

impl<K: Watchable> Reflector<K> {
    /// A reflector of whole objects.
    pub fn new(api: impl Into<Api<K>>, config: WatchConfig) -> Self {
        Reflector::over(Box::new(Whole(api.into())), config)
    }

    /// A reflector of the metadata of objects, which is all that it reads.
    pub fn metadata_only(api: impl Into<Api<K>>, config: WatchConfig) -> Reflector<PartialObjectMeta<K>> {
        Reflector::over(Box::new(Metadata(api.into())), config)
    }
}

impl<K: Resource + Clone + Send + 'static> Reflector<K> {
    fn over(source: Box<dyn Source<K>>, config: WatchConfig) -> Self {
        let failures = Failures::new(source.url());
        Self { source, config, transform: identity, state: State::Start, failures, metrics: None }
    }

    /// The same, with a function that reduces each object (client-go's `SetTransform`).
    #[must_use]
    pub fn with_transform(mut self, transform: fn(K) -> K) -> Self {
        self.transform = transform;
        self
    }

    /// The same, which counts under the name of its resource, as client-go's does.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.reflector(self.failures.resource()));
        self
    }

    /// The events as a stream that does not end.
    pub fn into_stream(self) -> impl Stream<Item = WatchEvent<K>> + Send {
        stream::unfold(self, |mut reflector| async move {
            loop {
                if let Some(event) = reflector.next().await.event {
                    return Some((event, reflector));
                }
            }
        })
    }

    /// Sends the events to a channel until its receiver is dropped.
    pub async fn run(mut self, sender: mpsc::Sender<WatchEvent<K>>) {
        loop {
            let progress = tokio::select! {
                progress = self.next() => progress,
                () = sender.closed() => return,
            };
            if let Some(event) = progress.event
                && sender.send(event).await.is_err()
            {
                return;
            }
        }
    }

    /// The next event or bookmark. It is cancel-safe: only a list or a wait in progress is lost.
    pub(crate) async fn next(&mut self) -> Progress<K> {
        loop {
            match &mut self.state {
                State::Start => match self.list().await {
                    Ok((objects, version)) => {
                        let resource_version = number(&version);
                        if let Some(metrics) = &self.metrics {
                            metrics.set_last_resource_version(&version);
                        }
                        self.state = State::Listed(version);
                        return Progress { event: Some(WatchEvent::Restarted(objects)), resource_version };
                    }
                    Err(error) => self.failures.wait(Verb::List, &error).await,
                },
                State::Listed(version) => {
                    let resource_version = version.clone();
                    if let Some(metrics) = &self.metrics {
                        metrics.watching();
                    }
                    match self.source.watch(&self.config.watch_params(), &resource_version).await {
                        Ok(events) => {
                            let started = Instant::now();
                            self.state =
                                State::Watching(Watching { resource_version, events, started, delivered: 0 });
                        }
                        Err(error) if is_expired(&error) => self.start_over(&error),
                        Err(error) => self.failures.wait(Verb::Watch, &error).await,
                    }
                }
                State::Watching(watching) => match watching.next(self.transform).await {
                    Ok(progress) => {
                        self.failures.reset();
                        if let Some(metrics) = &self.metrics {
                            metrics.set_last_resource_version(&watching.resource_version);
                        }
                        return progress;
                    }
                    Err(end) => {
                        let took = watching.started.elapsed();
                        let short = watching.delivered == 0 && took < SHORT_WATCH;
                        if let Some(metrics) = &self.metrics {
                            metrics.watched(took, watching.delivered);
                        }
                        self.state = State::Listed(std::mem::take(&mut watching.resource_version));
                        match end {
                            End::Over if !short => {}
                            End::Over => self.failures.wait(Verb::Watch, &"it ended at once").await,
                            End::Broken(error) if is_expired(&error) => self.start_over(&error),
                            End::Broken(error) => {
                                self.failures.wait(Verb::Watch, &error).await;
                                // A watch from the same version would meet the same object. A list leaves it out.
                                if matches!(error, kube::Error::SerdeError(_)) {
                                    self.state = State::Start;
                                }
                            }
                        }
                    }
                },
            }
        }
    }

    /// Reads all pages. A continue token that expires meanwhile causes a second attempt, with all objects in one
    /// page.
    async fn list(&mut self) -> kube::Result<(Vec<K>, String)> {
        let page = Some(self.config.page_size.unwrap_or(PAGE)).filter(|size| *size > 0);
        let started = Instant::now();
        if let Some(metrics) = &self.metrics {
            metrics.listing();
        }
        let listed = match self.list_pages(page).await {
            Err(error) if page.is_some() && is_expired(&error) => self.list_pages(None).await?,
            listed => listed?,
        };
        if let Some(metrics) = &self.metrics {
            metrics.listed(started.elapsed(), listed.0.len());
        }
        Ok(listed)
    }

    async fn list_pages(&mut self, page: Option<u32>) -> kube::Result<(Vec<K>, String)> {
        let (mut objects, mut continue_token) = (Vec::new(), None);
        loop {
            let params = self.config.list_params(page, continue_token);
            let mut each = |object| objects.push(compact((self.transform)(object)));
            let list = self.source.list(&params, &mut each).await?;
            continue_token = list.continue_.filter(|token| !token.is_empty());
            if continue_token.is_none() {
                objects.shrink_to_fit();
                return Ok((objects, list.resource_version.unwrap_or_default()));
            }
        }
    }

    fn start_over(&mut self, error: &kube::Error) {
        tracing::debug!(%error, url = self.source.url(), "the history does not reach back so far, listing again");
        self.state = State::Start;
    }
}

/// Why a watch is over.
enum End {
    /// The server ended it, or the connection is dead.
    Over,
    /// It failed.
    Broken(kube::Error),
}

impl<K: Resource + Clone> Watching<K> {
    async fn next(&mut self, transform: fn(K) -> K) -> Result<Progress<K>, End> {
        let deadline = self.started + Duration::from_secs(WATCH_SECONDS.into()) + OVERDUE;
        // An elapsed deadline reads as the end of the watch.
        let event = tokio::time::timeout_at(deadline, self.events.next()).await.unwrap_or_default();
        let event = event.ok_or(End::Over)?.map_err(End::Broken)?;
        let (event, version) = match event {
            KubeEvent::Added(object) | KubeEvent::Modified(object) => {
                let version = object.resource_version();
                (Some(WatchEvent::Applied(Box::new(compact(transform(object))))), version)
            }
            KubeEvent::Deleted(object) => {
                (Some(WatchEvent::Deleted(ObjectRef::of(&object))), object.resource_version())
            }
            KubeEvent::Bookmark(bookmark) => (None, Some(bookmark.metadata.resource_version)),
            KubeEvent::Error(status) => return Err(End::Broken(kube::Error::Api(status))),
        };
        self.delivered += 1;
        if let Some(version) = version {
            self.resource_version = version;
        }
        Ok(Progress { event, resource_version: number(&self.resource_version) })
    }
}

fn number(resource_version: &str) -> u64 {
    resource_version.parse().unwrap_or_default()
}

/// Whether the server cannot resume from a resource version: it has forgotten it, or, after a restore, not reached it.
fn is_expired(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let too_large = |status: &Status| {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes.into_iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
    };
    status.code == 410 || matches!(status.reason.as_str(), "Expired" | "Gone") || too_large(status)
}

/// An object without `managedFields`, in no more memory than it needs. Controllers do not decide by managed fields, and of
/// a small object they are nine tenths. A server that gets an object back without them leaves the managers as they are.
pub fn compact<K: Resource + Clone>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    // A decoded `Vec` has capacity for several more elements, which of a pod with one container is a half; a copy has none.
    object.clone()
}
