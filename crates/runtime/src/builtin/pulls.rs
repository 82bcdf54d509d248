//! Pulls: each image once at a time, however many pods wait for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use plumb_oci::{Credentials, Reference, Registry, no_progress};
use tokio::sync::Semaphore;

use crate::error::{Error, Result};
use crate::image::{Images, Limits, PullRequest, pull};

/// How many images are pulled at once.
const AT_ONCE: usize = 4;

/// The key of a pull: pulls of an image with different credentials are separate.
type Key = (Reference, Option<Credentials>);
type UnderWay = Shared<BoxFuture<'static, Result<String>>>;

/// The pulls of a runtime.
pub(super) struct Pulls {
    registry: Registry,
    images: Arc<Images>,
    under_way: Arc<Mutex<HashMap<Key, UnderWay>>>,
    at_once: Arc<Semaphore>,
}

impl fmt::Debug for Pulls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulls").field("under_way", &self.under_way.lock().len()).finish_non_exhaustive()
    }
}

impl Pulls {
    pub(super) fn new(registry: Registry, images: Arc<Images>) -> Self {
        Self { registry, images, under_way: Arc::default(), at_once: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Pulls an image and returns its id. The pull continues if the caller is dropped.
    pub(super) async fn pull(&self, name: &str, credentials: Option<&Credentials>) -> Result<String> {
        let image: Reference = name.parse().map_err(|error| {
            Error::InvalidArgument(format!("couldn't parse image name {name:?}: {error}"))
        })?;
        let key = (image, credentials.cloned());
        let pull = self.under_way.lock().entry(key.clone()).or_insert_with(|| self.start(key)).clone();
        pull.await
    }

    fn start(&self, key: Key) -> UnderWay {
        let (registry, images) = (self.registry.clone(), self.images.clone());
        let (under_way, at_once) = (self.under_way.clone(), self.at_once.clone());
        let task = tokio::spawn(async move {
            let _done = Done { key: key.clone(), under_way };
            // The semaphore is never closed.
            let _permit = at_once.acquire_owned().await.ok();
            let (image, credentials) = key.clone();
            let request = PullRequest { image, credentials, limits: Limits::default() };
            let pulled = pull(&images, &registry, &request, &no_progress()).await;
            let id = pulled.map(|record| record.id.clone());
            id.map_err(|error| advise(error, &images, &key.0))
        });
        let joined = async move { task.await.map_err(|error| Error::failed("pulling an image", error))? };
        joined.boxed().shared()
    }
}

/// Ends a pull, however it ends.
struct Done {
    key: Key,
    under_way: Arc<Mutex<HashMap<Key, UnderWay>>>,
}

impl Drop for Done {
    fn drop(&mut self) {
        self.under_way.lock().remove(&self.key);
    }
}

/// Adds to the error of a pull what a user can do about it.
fn advise(error: Error, images: &Images, image: &Reference) -> Error {
    let Error::Failed { doing, message, errno } = error else { return error };
    let is_here = images.find(&image.to_string()).is_ok_and(|found| found.is_some());
    let advice = if is_here {
        "; an image of this name is on the node, and imagePullPolicy IfNotPresent uses it"
    } else {
        "; without the registry, `plumb image import FILE` adds an image to the node"
    };
    Error::Failed { doing, message: format!("{message}{advice}"), errno }
}
