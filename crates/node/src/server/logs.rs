//! Logs of containers.

mod options;
mod reader;
mod which;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http::{Response, StatusCode};
use k8s_openapi::api::core::v1::PodSpec;
use plumb_runtime::types::{ContainerChange, ContainerId, ContainerState, Event};
use plumb_runtime::{Events, Runtime};

use super::answer::{Body, refusal, stream_of};
use super::query::Query;
use super::{ServerConfig, container_status};
use crate::file_changes::Changes;
use crate::lifecycle::containers;
use options::{Options, Refused};
use reader::{LogChunk, Reader};

/// Answers with the log of a container.
pub(super) async fn answer(
    config: &ServerConfig,
    namespace: &str,
    pod: &str,
    container: &str,
    query: &Query,
) -> Result<Response<Body>, Response<Body>> {
    let bad = |why: String| refusal(StatusCode::BAD_REQUEST, &why);
    let options = Options::of(query, (config.clock)()).map_err(Refused::response)?;
    let found = config.pods.find(namespace, pod);
    let found =
        found.ok_or_else(|| refusal(StatusCode::NOT_FOUND, &format!("pod {pod:?} does not exist")))?;
    let is_ephemeral =
        |spec: &PodSpec| spec.ephemeral_containers.iter().flatten().any(|own| own.name == container);
    if !found.spec.iter().flat_map(containers).any(|own| own.name == container)
        && !found.spec.as_ref().is_some_and(is_ephemeral)
    {
        let why = format!("container {container:?} not found in pod {pod:?}");
        return Err(refusal(StatusCode::NOT_FOUND, &why));
    }
    let id = which::container_id(&found, container, options.previous).map_err(|why| bad(why.to_string()))?;
    // Before its state is read, so that its exit is not missed.
    let events = options.follow.then(|| config.runtime.events());
    let status = container_status(config, &found, container, &id)
        .await
        .map_err(|error| bad(format!("failed to get container status {:?}: {error}", format!("{id}"))))?;
    let runs = matches!(status.container.state, ContainerState::Running | ContainerState::Created);
    let Some(path) = status.log_path else {
        // It has no log.
        return Ok(stream_of(stream::empty()));
    };
    let life = events.filter(|_| runs).map(|events| Life { events, id, runtime: config.runtime.clone() });
    let shown = path.display().to_string();
    let pieces = Pieces::begin(path, options, life).await;
    let pieces = pieces.map_err(|error| bad(format!("failed to open log file {shown:?}: {error}")))?;
    Ok(stream_of(pieces.stream()))
}

/// The life of a container that is being followed.
struct Life {
    events: Events,
    id: ContainerId,
    runtime: Arc<dyn Runtime>,
}

impl Life {
    /// Returns when the container has ended.
    async fn over(&mut self) {
        loop {
            let event = self.events.next().await;
            match event {
                Some(Event::Container { id, change, .. }) if id == self.id => {
                    if matches!(change, ContainerChange::Stopped | ContainerChange::Deleted) {
                        return;
                    }
                }
                Some(
                    Event::Container { .. }
                    | Event::LimitRestored { .. }
                    | Event::MemoryPressure { .. }
                    | Event::UpdateFinished { .. },
                ) => {}
                // Some were missed: it may be among them.
                Some(Event::Missed(_)) => match self.runtime.container_status(&self.id).await {
                    Ok(status) if status.container.state == ContainerState::Running => {}
                    _ => return,
                },
                None => return,
            }
        }
    }
}

/// A log that is being read.
struct Pieces {
    /// Not here only while it is at work.
    reader: Option<Reader>,
    /// A followed log, until the container has ended.
    follow: Option<(Changes, Life)>,
}

impl Pieces {
    async fn begin(path: PathBuf, options: Options, life: Option<Life>) -> io::Result<Self> {
        let follow = match life {
            Some(life) => {
                let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
                Some((Changes::of(&folder)?, life))
            }
            None => None,
        };
        let opened = tokio::task::spawn_blocking(move || Reader::open(path, options)).await;
        Ok(Self { reader: Some(opened.map_err(io::Error::other)??), follow })
    }

    fn stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        stream::unfold(self, |mut pieces| async move {
            match pieces.next().await {
                Ok(Some(bytes)) => Some((Ok(bytes), pieces)),
                Ok(None) => None,
                Err(error) => {
                    (pieces.reader, pieces.follow) = (None, None);
                    Some((Err(error), pieces))
                }
            }
        })
    }

    /// The next lines; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let Some(mut reader) = self.reader.take() else { return Ok(None) };
            let read = tokio::task::spawn_blocking(move || {
                let piece = reader.read();
                (reader, piece)
            });
            let (reader, piece) = read.await.map_err(io::Error::other)?;
            self.reader = Some(reader);
            match piece? {
                LogChunk::Text(bytes) => return Ok(Some(bytes.into())),
                LogChunk::Over => return Ok(None),
                LogChunk::NoMore => {
                    let Some((changes, life)) = &mut self.follow else { return Ok(None) };
                    tokio::select! {
                        () = changes.changed() => {}
                        // The last output is in the log by now.
                        () = life.over() => self.follow = None,
                    }
                }
            }
        }
    }
}
