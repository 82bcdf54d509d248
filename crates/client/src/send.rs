//! Sending of requests. Nothing here is generic over the kind, so it is compiled once.

use std::io;
use std::pin::pin;

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use futures_util::io::AsyncBufReadExt as _;
use futures_util::stream::{BoxStream, StreamExt as _};
use http::header::{ACCEPT_ENCODING, HeaderValue};
use kube::core::{PartialObjectMeta, Status, request};
use kube::{Client, Error, Result};

use crate::list::{Each, Head, ItemSplitter};

/// A request, or why it cannot be built.
pub(crate) type Built = Result<http::Request<Vec<u8>>, request::Error>;

/// Sends a request, and returns the body of a successful response.
///
/// The verb names the span that [`kube`] traces the request in.
pub(crate) fn text(
    client: &Client,
    verb: &'static str,
    request: Built,
) -> BoxFuture<'static, Result<String>> {
    let client = client.clone();
    async move {
        let mut request = request.map_err(Error::BuildRequest)?;
        request.extensions_mut().insert(verb);
        client.request_text(request).await
    }
    .boxed()
}

/// Sends a request for a list, calls a function with the text of each item as it arrives, and returns the rest of the list.
pub(crate) fn items<'a>(
    client: &Client,
    verb: &'static str,
    request: Built,
    each: &'a mut Each<'_>,
) -> BoxFuture<'a, Result<Head>> {
    let client = client.clone();
    async move {
        let mut request = request.map_err(Error::BuildRequest)?;
        request.extensions_mut().insert(verb);
        let mut body = pin!(client.request_stream(request).await?);
        let mut splitter = ItemSplitter::default();
        loop {
            let text = body.fill_buf().await.map_err(Error::ReadEvents)?;
            if text.is_empty() {
                return splitter.finish();
            }
            splitter.feed(text, each)?;
            let length = text.len();
            body.consume_unpin(length);
        }
    }
    .boxed()
}

/// Sends a request, and returns the lines of a successful response as they arrive.
pub(crate) fn lines(
    client: &Client,
    verb: &'static str,
    request: Built,
) -> BoxFuture<'static, Result<BoxStream<'static, Result<String>>>> {
    let client = client.clone();
    async move {
        let mut request = request.map_err(Error::BuildRequest)?;
        request.extensions_mut().insert(verb);
        // Kubernetes 1.37 compresses each watch event separately, which decompressors of a whole stream do not support.
        request.headers_mut().entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static("identity"));
        let body = client.request_stream(request).await?;
        Ok(body.lines().filter_map(|line| ready(readable(line))).boxed())
    }
    .boxed()
}

/// A line of a watch, or its error. A connection that ends within a line ends the stream without an error, since watches are
/// resumed.
fn readable(line: io::Result<String>) -> Option<Result<String>> {
    match line {
        Ok(line) => Some(Ok(line)),
        Err(error) if is_cut_off(&error) => {
            tracing::debug!(%error, "the connection of a watch ended");
            None
        }
        Err(error) => Some(Err(Error::ReadEvents(error))),
    }
}

/// Whether a body was truncated, which TLS and hyper both report as `UnexpectedEof`.
fn is_cut_off(error: &io::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof) {
            return true;
        }
        // The source of an I/O error is that of the error that it wraps.
        let wrapped = io.and_then(io::Error::get_ref);
        cause =
            wrapped.map(|wrapped| wrapped as &(dyn std::error::Error + 'static)).or_else(|| error.source());
    }
    false
}

/// The error of a line that is not a watch event; `None` if the line was truncated.
pub(crate) fn event_error(line: &str, error: serde_json::Error) -> Option<Error> {
    if error.is_eof() {
        return None;
    }
    Some(match serde_json::from_str::<Status>(line) {
        // All fields of a Status are optional, so any object decodes as one; only a code makes it an error.
        Ok(status) if status.code != 0 => Error::Api(Box::new(status)),
        _ => Error::SerdeError(error),
    })
}

/// The error for a response that is not of the requested type.
pub(crate) fn decode_error(json: &str, error: serde_json::Error) -> Error {
    let object = name(json);
    tracing::warn!(%error, object, "cannot decode a response of the API server");
    Error::SerdeError(error)
}

/// Logs that an object of a list is skipped.
pub(crate) fn log_skipped(json: &str, error: &serde_json::Error) {
    let object = name(json);
    tracing::warn!(%error, object, "cannot decode an object, skipping it");
}

/// The name of an object for the log. Its other fields are not logged: it may be a Secret.
fn name(json: &str) -> String {
    let Ok(object) = serde_json::from_str::<PartialObjectMeta>(json) else { return String::new() };
    let metadata = object.metadata;
    let name = [metadata.namespace, metadata.name].into_iter().flatten().collect::<Vec<_>>().join("/");
    object.types.map_or(name.clone(), |types| format!("{} {name}", types.kind))
}
