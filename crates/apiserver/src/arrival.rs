//! Bodies on their way in: how large one may be, how long it may take, and how much of all of them is held at once.
//!
//! A request takes its place among those under way when its body is there, not before: whoever sends half of one
//! and then nothing keeps nobody else out.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

use crate::error::ApiError;
use crate::share::{Held, Pool};

/// The largest body that is read, as upstream's.
pub(crate) const MAX_BODY: usize = 3 << 20;
/// How much of a body that is too large is read and let go, so that its sender gets to the answer.
const OVERRUN: usize = 16 << 20;
/// What bytes are counted in.
const UNIT: usize = 1 << 10;
/// How many times the bytes that are free one user may hold.
const OF_ONE_USER: usize = 3;

/// Where bodies arrive.
pub(crate) struct Arrivals {
    bytes: Arc<Pool>,
    patience: Duration,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request as one type, whatever the server that received it has for it; none if it is empty.
pub(crate) struct Received(Option<UnsyncBoxBody<Bytes, BoxError>>);

impl Received {
    pub(crate) fn of<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self((!body.is_end_stream()).then(|| body.map_err(Into::into).boxed_unsync()))
    }
}

/// A body that is there, and what it holds of the limit until its request is answered.
#[derive(Default)]
pub(crate) struct Arrived {
    pub(crate) bytes: Bytes,
    held: Held,
}

impl Arrivals {
    /// At most so many bytes of bodies at once, each of which may take so long.
    pub(crate) fn new(bytes: usize, patience: Duration) -> Self {
        Self { bytes: Pool::new(bytes / UNIT, OF_ONE_USER), patience }
    }

    /// Reads a body, if it is not too large, comes in time, and is as its sender wrote it.
    pub(crate) async fn read(
        &self,
        headers: &HeaderMap,
        body: Received,
        user: &str,
    ) -> Result<Arrived, ApiError> {
        let Some(body) = body.0 else { return Ok(Arrived::default()) };
        // What a few bytes unfold to is not known before it is too late.
        if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(ApiError::unsupported_content_encoding());
        }
        let read = tokio::time::timeout(self.patience, self.collect(body, user));
        read.await.map_err(|_| ApiError::timeout("request did not complete within the allotted timeout"))?
    }

    async fn collect(
        &self,
        mut body: UnsyncBoxBody<Bytes, BoxError>,
        user: &str,
    ) -> Result<Arrived, ApiError> {
        if body.size_hint().lower() > (MAX_BODY + OVERRUN) as u64 {
            return Err(ApiError::body_too_large(MAX_BODY));
        }
        let mut arrived = Arrived::default();
        let mut rest = BytesMut::new();
        let mut size = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ApiError::bad_request(format!("reading the body: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            size += data.len();
            if size > MAX_BODY {
                (arrived, rest) = (Arrived::default(), BytesMut::new());
                if size > MAX_BODY + OVERRUN {
                    break;
                }
                continue;
            }
            arrived.held.merge(self.bytes.try_take(user, data.len().div_ceil(UNIT))?);
            // Most bodies come in one piece, which need not be copied.
            if arrived.bytes.is_empty() && rest.is_empty() {
                arrived.bytes = data;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&std::mem::take(&mut arrived.bytes));
                }
                rest.extend_from_slice(&data);
            }
        }
        if size > MAX_BODY {
            return Err(ApiError::body_too_large(MAX_BODY));
        }
        if !rest.is_empty() {
            arrived.bytes = rest.freeze();
        }
        Ok(arrived)
    }
}
