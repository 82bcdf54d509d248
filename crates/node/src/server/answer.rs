//! Responses of the node's HTTP server.

use std::io;

use bytes::Bytes;
use futures_util::Stream;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use serde::Serialize;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A response with text.
pub(super) fn text_of(kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(whole(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A response with a value as JSON.
pub(super) fn json_of(value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(bytes) => {
            let mut response = Response::new(whole(bytes));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// A response with text that is streamed.
pub(super) fn stream_of(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Response<Body> {
    use futures_util::TryStreamExt as _;
    let mut response = Response::new(StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// A response with an error.
pub(super) fn refusal(code: StatusCode, why: &str) -> Response<Body> {
    let mut response = text_of("text/plain; charset=utf-8", why.to_owned());
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    *response.status_mut() = code;
    response
}
