//! Watches: the objects that exist, and then the events of their changes.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::ready;
use futures_util::stream::{self, Stream, StreamExt};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use plumb_store::{Event, Key, Object, Prefix, Revision, Snapshot, Watch, WatchEnd};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::custom::{REVIEW_BYTES, all_in_version, has_converter, presented};
use crate::endpoints::list_options::WatchOptions;
use crate::endpoints::read::{Selection, bring_up_to_date};
use crate::endpoints::response::View;
use crate::error::{ApiError, gone};
use crate::fair_share::Held;
use crate::kinds::{Custom, Row, restamp};
use crate::metrics::Watched;
use crate::negotiation::Form;
use crate::ordered::encode_ordered;
use crate::request::Call;
use crate::response_body::Body;
use crate::shutdown::Shutdown;
use crate::watch_lines::{Lines, Outgoing, Sending, SharedKey, TooSlow, is_large};

/// The timeout of a watch without `timeoutSeconds`. Upstream's is between half an hour and an hour.
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(45);
/// The longest timeout of a watch, whatever the client asks for: deadlines further away overflow some clocks.
const LONGEST_TIMEOUT: Duration = Duration::from_hours(24 * 365);
/// After which time without events a watch sends a bookmark. Upstream's is about a minute.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

/// Responds with a stream of events.
pub(crate) async fn watch(call: &Call) -> Result<Response<Body>, ApiError> {
    if call.accepted.form == Form::MetadataList {
        return Err(ApiError::unacceptable(
            "you requested PartialObjectMetadataList, but a watch sends objects one by one",
        ));
    }
    let options = WatchOptions::of(&call.query)?;
    let selection = Selection::of(&call.scope, &call.query, call.info.name())?;
    let filter = call.scope.row.events(call.info.namespace(), &selection.fields)?;
    let prefix = filter.prefix.clone();
    // As upstream, a watch without a resource version begins with the most recent state, and one at 0 with any.
    let asked = if call.query.get("resourceVersion") == Some("0") { Some(0) } else { options.revision };
    bring_up_to_date(call, asked).await?;
    let store = call.cluster().store();
    if let Some(asked) = options.revision.filter(|asked| *asked > store.revision()) {
        let error = ApiError::too_large_resource_version(asked, store.revision());
        return Ok(respond(stream::once(ready(Ok(error_event(&error))))));
    }
    let (initial, from) = if options.initial_events {
        let held = call.server.in_flight().initial_list(call.state.origin, &call.info.user)?;
        let initial = Initial::new(store.snapshot(), prefix, held);
        let from = initial.snapshot.revision();
        (Some(initial), from)
    } else {
        (None, options.revision.unwrap_or_else(|| store.revision()))
    };
    // As upstream: the response to a valid request is 200, and an error of its revision is an event.
    // client-go's RetryWatcher retries after an HTTP error for ever.
    let watch = match store.watch(filter, from) {
        Ok(watch) => watch,
        Err(error) => return Ok(respond(stream::once(ready(Ok(error_event(&gone(error))))))),
    };
    let target = &call.info.target;
    let seconds = call.query.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
    let watcher = Watcher {
        row: call.scope.row.clone(),
        view: View::of(call)?,
        large: call.server.in_flight().events(call.state.origin).cloned(),
        user: call.info.user.name().to_owned(),
        watched: call.server.metrics().watched(&target.group, &target.version, &target.resource),
        selection,
        announce_end: options.initial_events && options.bookmarks,
        initial,
        bookmarks: options.bookmarks,
        sent_columns: false,
        last_revision: from,
        watch,
        shutdown: call.http.head.extensions.get::<Shutdown>().cloned(),
        life: call.scope.row.custom().map(|custom| custom.life.clone()),
        deadline: Box::pin(sleep_until(
            Instant::now() + seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs).min(LONGEST_TIMEOUT),
        )),
        bookmark_timer: Box::pin(sleep_until(Instant::now() + BOOKMARK_EVERY)),
    };
    Ok(respond(watcher.lines()))
}

fn respond(lines: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Response<Body> {
    let frames = lines.map(|line| line.map(Frame::data));
    let mut response = Response::new(Body::stream(StreamBody::new(frames)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// How many objects a watch reads before it yields to other tasks.
const BATCH: usize = 256;
/// How long a client may take to read the initial events. Their snapshot retains objects that were replaced since.
const INITIAL_TIMEOUT: Duration = Duration::from_mins(30);

/// The objects that are there when a watch begins. Each is encoded when the client has read what was sent before it, so
/// that a watch holds a batch of references and one line, however many objects there are and however slowly its
/// client reads.
struct Initial {
    snapshot: Arc<Snapshot>,
    prefix: Prefix,
    /// The last object that was looked at.
    after: Option<Key>,
    batch: VecDeque<Arc<Object>>,
    deadline: Instant,
    /// What it holds of the limit, until all is sent.
    _held: Held,
}

impl Initial {
    fn new(snapshot: Arc<Snapshot>, prefix: Prefix, held: Held) -> Self {
        let deadline = Instant::now() + INITIAL_TIMEOUT;
        Self { snapshot, prefix, after: None, batch: VecDeque::new(), deadline, _held: held }
    }

    /// The next object that is wanted, in the version of the row.
    async fn next(&mut self, selection: &Selection, row: &Row) -> Result<Option<Arc<Object>>, ApiError> {
        loop {
            if let Some(object) = self.batch.pop_front() {
                return Ok(Some(object));
            }
            let (mut last, mut bytes) = (None, 0);
            let converts = has_converter(row);
            for object in self.snapshot.iter_after(&self.prefix, self.after.as_ref()).take(BATCH) {
                last = Some(object);
                let wanted = if converts { selection.may_select(object) } else { selection.selects(object) };
                if wanted {
                    self.batch.push_back(Arc::clone(object));
                    bytes += object.value.len();
                }
                if converts && bytes >= REVIEW_BYTES {
                    break;
                }
            }
            let Some(last) = last else { return Ok(None) };
            self.after = Some(last.key.clone());
            if converts {
                let converted = all_in_version(row, std::mem::take(&mut self.batch).into()).await?;
                self.batch = converted.into_iter().filter(|object| selection.selects(object)).collect();
            }
            tokio::task::consume_budget().await;
        }
    }
}

/// The watch of one client.
struct Watcher {
    row: Row,
    view: View,
    /// Where large lines count; for clients that are connected through a socket.
    large: Option<Arc<Lines>>,
    user: String,
    watched: Arc<Watched>,
    selection: Selection,
    /// Whether a bookmark marks the end of the initial events.
    announce_end: bool,
    /// The initial events, until all are sent.
    initial: Option<Initial>,
    bookmarks: bool,
    sent_columns: bool,
    /// The last revision that was sent to the client.
    last_revision: Revision,
    watch: Watch,
    /// Reports the shutdown of the server; for clients that are connected through a socket.
    shutdown: Option<Shutdown>,
    /// Ends with the definition of a custom kind.
    life: Option<tokio::sync::watch::Receiver<()>>,
    deadline: Pin<Box<Sleep>>,
    bookmark_timer: Pin<Box<Sleep>>,
}

impl Watcher {
    /// All lines to send. An error is that a line was dropped, which the client has read too slowly.
    fn lines(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let watched = Arc::clone(&self.watched);
        stream::unfold((Some(self), None::<Sending>), move |(mut watcher, mut sending)| {
            let watched = Arc::clone(&watched);
            async move {
                loop {
                    match sending.as_mut().and_then(Sending::chunk) {
                        Some(Ok(chunk)) => return Some((Ok(chunk), (watcher, sending))),
                        Some(Err(error)) => {
                            watched.terminated();
                            return Some((Err(error), (None, None)));
                        }
                        None => {}
                    }
                    let (line, ended) = watcher.as_mut()?.next().await?;
                    if ended {
                        watcher = None;
                    }
                    match line {
                        Outgoing::Small(line) => return Some((Ok(line), (watcher, None))),
                        Outgoing::Large(line) => sending = Some(line),
                    }
                }
            }
        })
    }

    /// The next line to send, and whether it is the last. None when the watch is over.
    async fn next(&mut self) -> Option<(Outgoing, bool)> {
        while let Some(initial) = &mut self.initial {
            if self.shutdown.as_ref().is_some_and(Shutdown::is_requested) {
                return None;
            }
            if Instant::now() > initial.deadline {
                return Some((self.too_slow().into(), true));
            }
            let next = initial.next(&self.selection, &self.row);
            let next = tokio::select! {
                biased;
                next = next => next,
                () = Shutdown::requested_if_any(&mut self.shutdown) => return None,
            };
            match next {
                Err(error) => return Some((error_event(&error).into(), true)),
                Ok(Some(object)) => match self.line("ADDED", &object.value).await {
                    Ok(Some(line)) => return Some(line),
                    Ok(None) => continue,
                    Err(ShutDown) => return None,
                },
                Ok(None) => {}
            }
            self.initial = None;
            if self.announce_end {
                return Some((self.bookmark(self.last_revision, true).into(), false));
            }
        }
        loop {
            tokio::select! {
                biased;
                () = &mut self.deadline => return None,
                () = Shutdown::requested_if_any(&mut self.shutdown) => return None,
                () = Custom::ended(&mut self.life) => return None,
                event = self.watch.next() => match event {
                    Ok(event) => {
                        self.last_revision = event.revision;
                        let states = tokio::select! {
                            biased;
                            states = states(&event, &self.selection, &self.row) => states,
                            () = Shutdown::requested_if_any(&mut self.shutdown) => return None,
                        };
                        match states {
                            Err(error) => return Some((error_event(&error).into(), true)),
                            Ok(states) => match self.event(event.revision, states).await {
                                Ok(Some(line)) => return Some(line),
                                Ok(None) => {}
                                Err(ShutDown) => return None,
                            },
                        }
                    }
                    Err(WatchEnd::Closed) => return None,
                    Err(WatchEnd::Lagged(_)) => {
                        return Some((self.too_slow().into(), true));
                    }
                },
                () = &mut self.bookmark_timer, if self.bookmarks => {
                    self.bookmark_timer.as_mut().reset(Instant::now() + BOOKMARK_EVERY);
                    let progress = self.watch.progress();
                    if progress > self.last_revision {
                        self.last_revision = progress;
                        return Some((self.bookmark(progress, false).into(), false));
                    }
                }
            }
        }
    }

    /// The last line for a client that reads too slowly.
    fn too_slow(&self) -> Bytes {
        self.watched.terminated();
        error_event(&ApiError::expired("the watcher is too slow and has to list again"))
    }

    /// The event for this client. An object that enters the selection is added, and one that leaves it is deleted.
    async fn event(
        &mut self,
        revision: Revision,
        (previous, current): States,
    ) -> Result<Option<(Outgoing, bool)>, ShutDown> {
        let wanted = |object: Option<Arc<Object>>| object.filter(|object| self.selection.selects(object));
        match (wanted(previous), wanted(current)) {
            (None, Some(now)) => self.line("ADDED", &now.value).await,
            (Some(_), Some(now)) => self.line("MODIFIED", &now.value).await,
            (Some(before), None) => {
                // A DELETED event has the last object that the selection matched, and the revision of the event: the
                // client may not be allowed to read the current one.
                let bytes = restamp(&presented(&self.row, &before.value), revision);
                self.line("DELETED", &bytes).await
            }
            (None, None) => Ok(None),
        }
    }

    /// The line of an object, and whether it is the last one. Watches share it if the object is the stored one.
    async fn line(
        &mut self,
        kind: &'static str,
        bytes: &Bytes,
    ) -> Result<Option<(Outgoing, bool)>, ShutDown> {
        let columns = !std::mem::replace(&mut self.sent_columns, true);
        let view = &self.view;
        let row = &self.row;
        let encode = || view.line(kind, &presented(row, bytes), columns);
        let line = match self.large.as_ref().filter(|_| is_large(bytes.len())) {
            None => encode().map(Outgoing::Small),
            Some(large) => {
                // The defaults of a custom resource change with its definition.
                let is_stored = kind != "DELETED" && row.custom().is_none();
                let shared = is_stored
                    .then(|| view.shared_form())
                    .flatten()
                    .map(|view| (SharedKey { object: bytes.as_ptr().addr(), kind, view }, bytes.clone()));
                let line = tokio::select! {
                    biased;
                    () = Shutdown::requested_if_any(&mut self.shutdown) => return Err(ShutDown),
                    line = large.line(&self.user, bytes.len(), shared, encode) => line,
                };
                match line {
                    Ok(line) => line,
                    Err(TooSlow) => return Ok(Some((self.too_slow().into(), true))),
                }
            }
        };
        Ok(line.map(|line| {
            self.watched.sent(line.len());
            (line, false)
        }))
    }

    fn bookmark(&mut self, revision: Revision, initial_end: bool) -> Bytes {
        let mut metadata = json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
        if initial_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let columns = !std::mem::replace(&mut self.sent_columns, true);
        let object = self.view.bookmark(metadata, columns);
        event_line("BOOKMARK", &object)
    }
}

/// The server shuts down.
struct ShutDown;

/// An object before and after an event.
type States = (Option<Arc<Object>>, Option<Arc<Object>>);

/// The object of an event before and after it, in the version of a row. The one before is converted only if its content
/// is needed.
async fn states(event: &Event, selection: &Selection, row: &Row) -> Result<States, ApiError> {
    let (previous, current) = (event.previous().cloned(), event.current().cloned());
    if !has_converter(row) {
        return Ok((previous, current));
    }
    if current.as_ref().or(previous.as_ref()).is_some_and(|object| !selection.may_select(object)) {
        return Ok((None, None));
    }
    if current.is_some() && (previous.is_none() || selection.is_everything()) {
        let current = all_in_version(row, current.into_iter().collect()).await?.pop();
        return Ok((previous, current));
    }
    let is_deletion = current.is_none();
    let both = previous.into_iter().chain(current).collect();
    let mut both = all_in_version(row, both).await?;
    let current = if is_deletion { None } else { both.pop() };
    Ok((both.pop(), current))
}

/// The line of an event whose object is not stored.
fn event_line(kind: &str, object: &Value) -> Bytes {
    let mut line = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
    encode_ordered(object, &mut line);
    line.extend_from_slice(b"}\n");
    line.into()
}

/// The event that ends a watch with an error.
fn error_event(error: &ApiError) -> Bytes {
    event_line("ERROR", &error.to_status())
}
