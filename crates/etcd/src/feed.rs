//! The feed of the cache: a list of all objects, and a watch from its revision.
//!
//! ```text
//!   load ──▶ watch from the next revision ──▶ Cache::apply
//!    ▲            │ broken: again, from the revision of the cache
//!    └────────────┘ compacted: load and Cache::reset
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use plumb_store::{Cache, Object, Record, Revision};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{CallError, Client, WatchStream, revision};
use crate::engine::Inner;
use crate::proto::{
    Empty, EventType, RangeRequest, WatchCreateRequest, WatchMessage, WatchRequest, WatchResponse,
};
use crate::value::{Codec, ValueError, signed, unsigned};

/// The number of objects in one read.
const PAGE: i64 = 500;
/// The delay before the watch is opened again.
const RETRY: Duration = Duration::from_millis(250);
/// How often etcd is asked for the revision up to which it has sent all events, while anything waits for it. As kube-apiserver.
const ASK_FOR_PROGRESS: Duration = Duration::from_millis(100);
/// The timeout for the first response of a watch.
const CREATED: Duration = Duration::from_secs(10);

/// Why the objects cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// Reads all objects at one revision.
pub(crate) async fn load(client: &Client, codec: &Codec) -> Result<(Revision, Vec<Object>), LoadError> {
    'again: loop {
        let (mut key, range_end) = codec.layout.range();
        let mut at = 0;
        let mut objects = Vec::new();
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: PAGE,
                revision: at,
                count_only: false,
            };
            let page = match client.range(request).await {
                // The pages took longer than etcd retains their revision.
                Err(error) if at > 0 && error.is_compacted() => continue 'again,
                page => page?,
            };
            if at == 0 {
                at = revision(page.header);
            }
            for kv in page.kvs.iter().filter(|kv| !codec.layout.is_internal(&kv.key)) {
                objects.push(codec.decode(kv)?);
            }
            match page.kvs.last() {
                Some(last) if page.more => {
                    key = last.key.to_vec();
                    key.push(0);
                }
                _ => return Ok((unsigned(at), objects)),
            }
        }
    }
}

/// Why a watch ended.
enum End {
    /// It can be opened again.
    Broken(CallError),
    /// The next revision is compacted.
    Compacted,
}

/// Keeps the cache up to date.
pub(crate) async fn run(inner: Arc<Inner>) {
    loop {
        let Err(end) = watch(&inner).await;
        match end {
            End::Broken(error) => {
                tracing::warn!(%error, "the watch of etcd ended; opening another one");
                inner.health.set_feed(Err(error.to_string()));
                sleep(RETRY).await;
            }
            End::Compacted => {
                tracing::warn!(
                    revision = inner.cache.revision(),
                    "etcd has compacted the next change; listing all objects again, and ending all watches"
                );
                if let Err(error) = reload(&inner).await {
                    tracing::error!(error, "cannot list the objects in etcd");
                    inner.health.set_feed(Err(error));
                    sleep(RETRY).await;
                }
            }
        }
    }
}

async fn reload(inner: &Inner) -> Result<(), String> {
    let (revision, objects) = load(&inner.client, &inner.codec).await.map_err(|error| error.to_string())?;
    if revision < inner.cache.revision() {
        return Err(went_back(inner.cache.revision(), revision));
    }
    inner.cache.reset(objects, revision).map_err(|error| error.to_string())
}

fn went_back(cached: Revision, found: Revision) -> String {
    format!(
        "the revision of etcd was {cached} and is {found}: it was restored from a backup; this process must be restarted"
    )
}

/// Watches from the revision of the cache until the watch ends.
async fn watch(inner: &Inner) -> Result<std::convert::Infallible, End> {
    let Inner { client, codec, cache, .. } = inner;
    let found = unsigned(client.revision(codec.layout.root().as_bytes()).await.map_err(End::Broken)?);
    if found < cache.revision() {
        // A watch would silently miss what is written until etcd reaches the revision again.
        let status = plumb_grpc::Status::unavailable(went_back(cache.revision(), found));
        return Err(End::Broken(CallError::Unknown(status)));
    }
    let (requests, receiver) = mpsc::unbounded_channel::<WatchRequest>();
    let receiver = stream::unfold(receiver, |mut receiver| async move {
        let next: WatchRequest = receiver.recv().await?;
        Some((next, receiver))
    });
    let (key, range_end) = codec.layout.range();
    let create = WatchCreateRequest {
        key,
        range_end,
        start_revision: signed(cache.revision() + 1),
        progress_notify: inner.progress_is_reliable,
    };
    // The receiver lives as long as the stream.
    let _ = requests.send(WatchMessage::Create(create).into());
    let mut stream = client.watch(receiver).await.map_err(End::Broken)?;
    let late = |_| {
        let status = plumb_grpc::Status::unavailable("the watch was not created in time");
        End::Broken(CallError::Unknown(status))
    };
    let created = timeout(CREATED, stream.next()).await.map_err(late)?.map_err(End::Broken)?;
    receive(inner, created)?;
    inner.health.set_feed(Ok(()));
    follow(inner, &mut stream, &requests).await
}

async fn follow(
    inner: &Inner,
    stream: &mut WatchStream<'_>,
    requests: &mpsc::UnboundedSender<WatchRequest>,
) -> Result<std::convert::Infallible, End> {
    let mut ask = Box::pin(sleep(ASK_FOR_PROGRESS));
    loop {
        tokio::select! {
            biased;
            response = stream.next() => receive(inner, response.map_err(End::Broken)?)?,
            () = inner.progress_wanted.notified(), if inner.progress_is_reliable => {
                let _ = requests.send(WatchMessage::Progress(Empty {}).into());
            }
            () = &mut ask, if inner.progress_is_reliable => {
                if inner.cache.is_awaited() {
                    let _ = requests.send(WatchMessage::Progress(Empty {}).into());
                }
                ask.as_mut().reset(Instant::now() + ASK_FOR_PROGRESS);
            }
        }
    }
}

/// Applies a response to the cache.
fn receive(inner: &Inner, response: WatchResponse) -> Result<(), End> {
    if response.compact_revision > 0 {
        return Err(End::Compacted);
    }
    if response.canceled {
        let status = plumb_grpc::Status::unavailable(response.cancel_reason);
        return Err(End::Broken(CallError::Unknown(status)));
    }
    if response.created {
        return Ok(());
    }
    if response.events.is_empty() {
        if inner.progress_is_reliable {
            inner.cache.progress(unsigned(revision(response.header)));
        }
        return Ok(());
    }
    apply(&inner.cache, &inner.codec, &response);
    Ok(())
}

fn apply(cache: &Cache, codec: &Codec, response: &WatchResponse) {
    let mut changes = Vec::with_capacity(response.events.len());
    let mut last = 0;
    for event in &response.events {
        let Some(kv) = &event.kv else { continue };
        let revision = unsigned(kv.mod_revision);
        last = last.max(revision);
        if codec.layout.is_internal(&kv.key) {
            continue;
        }
        let record = if event.r#type == i32::from(EventType::Delete) {
            codec.key(kv).map(Record::Delete)
        } else {
            codec.decode(kv).map(Record::Put)
        };
        match record {
            Ok(record) => changes.push((revision, record)),
            // Another program has written it. The version before it remains visible, and writes of it are conflicts.
            Err(error) => tracing::error!(%error, revision, "ignoring a change in etcd"),
        }
    }
    cache.apply(changes);
    // All events of a revision are in one response.
    cache.progress(last);
}
