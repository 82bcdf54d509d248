//! The encoding of responses: in the format that the client accepts, and compressed if it accepts gzip.
//!
//! Handlers respond in JSON. This module encodes objects, lists, errors and documents alike; streams are sent as they are.
//! Large responses are encoded by the [`Encoders`].

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, Response};
use plumb_apischema::{Schema, protobuf};
use serde_json::Value;

use crate::codec::refuse;
use crate::encoders::{Encoders, LARGE};
use crate::error::ApiError;
use crate::negotiation::Format;
use crate::response_body::Body;
use crate::yaml;

/// Smaller responses are not compressed. As upstream's.
const WORTH_COMPRESSING: usize = 128 << 10;

/// The format and compression that a client accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseEncoding {
    pub(crate) format: Format,
    pub(crate) gzip: bool,
}

impl ResponseEncoding {
    /// Reads whether the client accepts gzip. Content negotiation sets the format later.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let gzip = headers
            .get(ACCEPT_ENCODING)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.split(',').any(|coding| coding.trim() == "gzip"));
        Self { format: Format::Json, gzip }
    }

    /// Encodes the response to a user.
    pub(crate) async fn encode(
        self,
        response: Response<Body>,
        encoders: &Encoders,
        user: &str,
    ) -> Response<Body> {
        let size = response.body().whole().map_or(0, Bytes::len);
        let translates = self.format != Format::Json && is_json(&response);
        let is_large = if translates { size > LARGE } else { self.gzip && size > WORTH_COMPRESSING };
        if !is_large {
            return self.encode_here(response);
        }
        let encoded = encoders.run(user, move || self.encode_here(response)).await;
        encoded.unwrap_or_else(|| refuse(&ApiError::internal("cannot encode the response")))
    }

    fn encode_here(self, response: Response<Body>) -> Response<Body> {
        let response = match self.format {
            Format::Json => response,
            format => translate(response, format),
        };
        match response.body().whole() {
            Some(bytes) if self.gzip && bytes.len() > WORTH_COMPRESSING => compress(response),
            _ => response,
        }
    }
}

fn is_json(response: &Response<Body>) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json")
}

fn translate(response: Response<Body>, format: Format) -> Response<Body> {
    let Some(bytes) = response.body().whole().filter(|_| is_json(&response)) else { return response };
    let failed = |why: String| refuse(&ApiError::internal(why));
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => return failed(error.to_string()),
    };
    let written: Option<Bytes> = match format {
        Format::Protobuf => protobuf::encode(Schema::builtin(), &value).map(Bytes::from).ok(),
        _ => yaml::print(&value).map(Bytes::from).ok(),
    };
    match written {
        Some(bytes) => {
            let mut response = response.map(|_| Body::from(bytes));
            let kind = HeaderValue::from_static(format.media_type());
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        // An error is sent as JSON, even if the client does not accept it, rather than not at all.
        None if !response.status().is_success() => response,
        None => {
            refuse(&ApiError::not_acceptable(&[Format::Json, Format::Yaml].map(|f| f.media_type().into())))
        }
    }
}

fn compress(response: Response<Body>) -> Response<Body> {
    let Some(bytes) = response.body().whole() else { return response };
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 6), Compression::fast());
    let compressed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    let Ok(bytes) = compressed else { return response };
    let mut response = response.map(|_| Body::from(bytes));
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}
