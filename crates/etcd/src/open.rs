//! Opens a store on etcd.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plumb_store::{Cache, Options, RecoveryError, Store};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::client::{CallError, Client, ClientError};
use crate::compaction;
use crate::engine::{Etcd, Inner, check_health};
use crate::feed::{self, LoadError, load};
use crate::layout::Layout;
use crate::value::{Codec, Stamp, ValueError};
use crate::{TlsFiles, version};

/// How long etcd may take to be reachable.
const REACHABLE: Duration = Duration::from_secs(30);
/// The delay between attempts to reach it.
const RETRY: Duration = Duration::from_millis(500);

/// Where the objects are, and how.
#[derive(Debug, Clone)]
pub struct Config {
    /// The URLs of the members.
    pub endpoints: Vec<String>,
    /// The certificates for `https`.
    pub tls: TlsFiles,
    /// The prefix of all keys.
    pub prefix: String,
    /// How often old revisions are compacted; never if `None`.
    pub compaction_interval: Option<Duration>,
    /// Whether the progress that etcd reports is relied on; its version decides if `None`.
    pub reliable_progress: Option<bool>,
    /// Inserts the revision of an object into its encoding, which is stored without one.
    pub stamp: Stamp,
}

/// Why a store on etcd cannot be opened. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The client cannot be configured.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// etcd cannot be reached, or rejects the first reads.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The version of etcd is not supported.
    #[error("etcd {0:?} is not supported: version 3.4 or later is needed")]
    Version(String),
    /// A value is not an object.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The objects are inconsistent.
    #[error("the objects in etcd are inconsistent")]
    Objects(#[from] RecoveryError),
    /// The threads could not be started.
    #[error("start the threads of the etcd client")]
    Thread(#[source] std::io::Error),
}

impl From<LoadError> for OpenError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Call(error) => error.into(),
            LoadError::Value(error) => error.into(),
        }
    }
}

/// Opens the store at a prefix of etcd. It waits until etcd can be reached, for half a minute, and has listed all objects.
///
/// The client has a runtime of its own, so that the store can be used with any other, or none.
pub fn open(config: &Config, options: &Options) -> Result<Store, OpenError> {
    let client = Client::new(&config.endpoints, &config.tls)?;
    let layout = Layout::new(&config.prefix);
    let codec = Codec { layout, transformer: options.transformer.clone(), stamp: config.stamp };
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("store-etcd")
        .enable_all()
        .build()
        .map_err(OpenError::Thread)?;
    let (reply, opened) = oneshot::channel();
    let for_cache = options.clone();
    let reliable_progress = config.reliable_progress;
    runtime.spawn(async move {
        // The receiver is blocked on below.
        let _ = reply.send(initialize(client, codec, &for_cache, reliable_progress).await);
    });
    let opened = std::thread::scope(|threads| {
        // Blocking on a channel is not allowed on a thread of a runtime, which the caller's may be.
        threads.spawn(|| opened.blocking_recv()).join().ok().and_then(Result::ok)
    });
    let died = || OpenError::Thread(std::io::Error::other("the task that lists the objects ended"));
    let inner = match opened.ok_or_else(died).flatten() {
        Ok(inner) => Arc::new(inner),
        Err(error) => {
            runtime.shutdown_background();
            return Err(error);
        }
    };
    runtime.spawn(feed::run(Arc::clone(&inner)));
    runtime.spawn(check_health(Arc::clone(&inner)));
    if let Some(interval) = config.compaction_interval {
        runtime.spawn(compaction::run(Arc::clone(&inner), interval));
    }
    let cache = inner.cache.clone();
    Ok(Store::on(Arc::new(Etcd::new(inner, runtime)), &cache, options))
}

async fn initialize(
    client: Client,
    codec: Codec,
    options: &Options,
    reliable_progress: Option<bool>,
) -> Result<Inner, OpenError> {
    let deadline = Instant::now() + REACHABLE;
    let (version, (revision, objects)) = loop {
        match first_reads(&client, &codec).await {
            Err(OpenError::Call(error @ (CallError::Unreachable(_) | CallError::Unknown(_)))) => {
                if Instant::now() > deadline {
                    return Err(error.into());
                }
                tracing::warn!(%error, "waiting for etcd");
                sleep(RETRY).await;
            }
            read => break read?,
        }
    };
    let cache = Cache::new(objects, revision, options)?;
    let reliable_progress = reliable_progress.unwrap_or_else(|| version.has_reliable_progress());
    Ok(Inner::new(client, codec, cache, reliable_progress))
}

type FirstReads = (version::Version, (u64, Vec<plumb_store::Object>));

async fn first_reads(client: &Client, codec: &Codec) -> Result<FirstReads, OpenError> {
    let text = client.status().await?.version;
    let version = version::Version::parse(&text).filter(version::Version::is_supported);
    let version = version.ok_or(OpenError::Version(text))?;
    Ok((version, load(client, codec).await?))
}
