//! Downloading a layer: in as many requests as it takes, each from where the last one broke off.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_RANGE;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use plumb_supervise::Exponential;
use tokio::sync::mpsc;

use crate::digest::Digest;
use crate::error::PullError;
use crate::manifest::Descriptor;
use crate::partial::Partial;
use crate::repository::Repository;

/// The delays after failed requests.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(250), Duration::from_secs(8));
/// How many parts of a response wait to be written at most.
const BACKLOG: usize = 16;

/// How far the download of a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The layer.
    pub layer: Digest,
    /// How many bytes of it are there.
    pub bytes: u64,
    /// How many it has.
    pub size: u64,
}

/// Is called with each part that is received.
pub type Progress = Arc<dyn Fn(Received) + Send + Sync>;

/// For a pull whose progress is of no interest.
pub fn no_progress() -> Progress {
    Arc::new(|_| {})
}

pub(crate) async fn download(
    repository: &Repository,
    layer: &Descriptor,
    directory: &Path,
    progress: &Progress,
) -> Result<PathBuf, PullError> {
    let (digest, size) = (layer.digest, layer.size);
    let what = format!("{}@{digest}", repository.name());
    let path = directory.join(digest.hex());
    let received = |bytes: u64| progress(Received { layer: digest, bytes, size });
    let at = path.clone();
    if blocking(&what, move || Ok(at.metadata().is_ok_and(|found| found.len() == size))).await? {
        received(size);
        return Ok(path);
    }
    let folder = directory.to_owned();
    let mut partial = blocking(&what, move || Partial::open(&folder, digest, size)).await?;
    let mut failures = 0;
    loop {
        received(partial.length());
        while partial.length() < size {
            let before = partial.length();
            let (after, outcome) = attempt(repository, &what, layer, partial, &received).await?;
            partial = after;
            let Err(error) = outcome else { continue };
            if !error.is_transient() {
                return Err(error);
            }
            failures = if partial.length() > before { 1 } else { failures + 1 };
            if failures > repository.transport().limits().failures {
                return Err(error);
            }
            tracing::info!(what, %error, received = partial.length(), size, "resuming an interrupted download");
            tokio::time::sleep(DELAYS.after(failures)).await;
        }
        let found = partial.digest();
        if found == digest {
            let to = path.clone();
            blocking(&what, move || partial.complete(&to)).await?;
            return Ok(path);
        }
        if !partial.was_resumed() {
            blocking(&what, move || partial.discard()).await?;
            return Err(PullError::Digest { what, expected: digest, found });
        }
        // The part that was there may be damaged: once more, from its beginning.
        partial = restarted(&what, partial).await?;
    }
}

/// Requests what is missing of a layer, once.
async fn attempt(
    repository: &Repository,
    what: &str,
    layer: &Descriptor,
    mut partial: Partial,
    progress: &(impl Fn(u64) + Sync),
) -> Result<(Partial, Result<(), PullError>), PullError> {
    let from = partial.length();
    let response = match repository.blob(layer.digest, from).await {
        Ok(response) => response,
        Err(error) => return Ok((partial, Err(error))),
    };
    let goes_on = response.status() == StatusCode::PARTIAL_CONTENT && begins_at(&response) == Some(from);
    if from > 0 && !goes_on {
        // The registry sends all of it, or does not know the range.
        partial = restarted(what, partial).await?;
    }
    match response.status() {
        StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT if from > 0 && !goes_on => {
            return Ok((partial, Ok(())));
        }
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => {}
        status => {
            let error = PullError::unusable(what, format!("unexpected status {status}"));
            return Ok((partial, Err(error)));
        }
    }
    let from = partial.length();
    let idle = repository.transport().limits().idle;
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let writing = tokio::task::spawn_blocking(move || {
        let written = partial.write_all(receiver);
        (partial, written)
    });
    let mut body = response.into_body();
    let mut position = from;
    let read = loop {
        let data = match tokio::time::timeout(idle, body.frame()).await {
            Ok(None) => break Ok(()),
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            Ok(Some(Err(error))) => break Err(PullError::unavailable(what, error.to_string())),
            Err(_) => break Err(PullError::unavailable(what, format!("no data within {idle:?}"))),
        };
        position = position.saturating_add(data.len() as u64);
        if position > layer.size {
            break Err(PullError::unusable(what, format!("it is larger than its {} bytes", layer.size)));
        }
        progress(position);
        // The writer ends first only if it fails, and says why.
        if sender.send(data).await.is_err() {
            break Ok(());
        }
    };
    drop(sender);
    let doing = || format!("writing {what}");
    let (partial, written) =
        writing.await.map_err(|error| PullError::io(doing())(io::Error::other(error)))?;
    written.map_err(PullError::io(doing()))?;
    let missing = partial.length() < layer.size;
    let read = read.and_then(|()| {
        if missing {
            let message = format!("the response ended after {} of {} bytes", partial.length(), layer.size);
            Err(PullError::unavailable(what, message))
        } else {
            Ok(())
        }
    });
    Ok((partial, read))
}

async fn restarted(what: &str, mut partial: Partial) -> Result<Partial, PullError> {
    blocking(what, move || partial.restart().map(|()| partial)).await
}

/// Where a partial response begins.
fn begins_at(response: &Response<Incoming>) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
}

/// Works on files, on a thread that may block.
async fn blocking<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, PullError> {
    let done = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(PullError::io(format!("storing {what}")))
}
