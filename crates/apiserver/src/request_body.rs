//! Bodies of requests: the largest size of one, the timeout to receive it, and the most bytes of all that are held at once.
//!
//! A request counts against the limit of requests in flight once its body is complete, not before: a client that sends half
//! of a body and then nothing does not lower the limit for others. Until then it counts against a limit of its own, unless
//! its body has arrived with its head, as most do.

use std::future::{Future as _, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Version;
use http::header::{CONTENT_ENCODING, EXPECT};
use http::request::Parts;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::error::Elapsed;

use crate::authn::Peer;
use crate::discard::discard_permitted;
use crate::error::ApiError;
use crate::fair_share::{Held, Pool, UNIT};
use crate::in_flight::InFlight;
use crate::serve::source;
use crate::user::User;

/// The largest body that the server reads, as upstream's.
pub(crate) const MAX_BODY: usize = 3 << 20;
/// How many bytes of a body that is too large the server reads and discards, so that its client reads the response.
const OVERRUN: usize = 16 << 20;

/// Reads bodies within the limits.
pub(crate) struct RequestBodies {
    /// Requests whose body has not arrived yet.
    receiving: Arc<Pool>,
    /// Kibibytes of bodies.
    bytes: Arc<Pool>,
    /// Kibibytes of requests whose body has not arrived yet.
    arriving: Arc<Pool>,
    /// Refused requests whose body is awaited.
    discards: Arc<Pool>,
    timeout: Duration,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request, of whichever type the HTTP server has.
pub(crate) struct Received {
    /// `None` if it is empty, or was read to its end.
    body: Option<UnsyncBoxBody<Bytes, BoxError>>,
    /// Whether the client sends the body only after a `100 Continue`, which the first read causes.
    awaits_continue: bool,
    /// The client, if there is a body.
    peer: Option<Peer>,
}

impl Received {
    pub(crate) fn of<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let body = (!body.is_end_stream()).then(|| body.map_err(Into::into).boxed_unsync());
        Self { body, awaits_continue: false, peer: None }
    }

    /// Notes who sends a body, and whether the client waits for a `100 Continue`. Over HTTP/2 none does: hyper never sends one
    /// there.
    pub(crate) fn observe(&mut self, head: &Parts) {
        if self.body.is_some() {
            self.awaits_continue = head.version < Version::HTTP_2 && head.headers.contains_key(EXPECT);
            self.peer = head.extensions.get().cloned();
        }
    }
}

/// A body that is being read.
#[derive(Default)]
struct Collected {
    read: RequestBody,
    /// The frames, if there is more than one.
    rest: BytesMut,
    size: usize,
    /// The share of what has arrived, of a body that has not arrived at once.
    arriving: Option<Held>,
}

/// A complete body, and its share of the limit until the response.
#[derive(Default)]
pub(crate) struct RequestBody {
    pub(crate) bytes: Bytes,
    held: Held,
}

impl RequestBodies {
    /// Reads bodies within these limits, and waits for each until the timeout.
    pub(crate) fn new(in_flight: &InFlight, timeout: Duration) -> Self {
        Self {
            receiving: Arc::clone(&in_flight.receiving),
            bytes: Arc::clone(&in_flight.bodies),
            arriving: Arc::clone(&in_flight.arriving),
            discards: Arc::clone(&in_flight.discards),
            timeout,
        }
    }

    /// Discards what was not read of a refused request, so that the client gets the response. Requests whose body has not
    /// arrived yet are limited by user, or by source address if there is no user.
    pub(crate) async fn discard(&self, received: &mut Received, user: Option<&User>) {
        let Some(mut body) = received.body.take().filter(|_| !received.awaits_continue) else { return };
        let permit = || match (user, &received.peer) {
            (Some(user), _) => self.discards.try_take(user.name(), 1).ok(),
            (None, Some(peer)) => self.discards.try_take(&source(peer.remote().ip()).to_string(), 1).ok(),
            (None, None) => self.discards.try_take("", 1).ok(),
        };
        discard_permitted(&mut body, permit).await;
    }

    /// Reads a body. It must not be too large, too slow or compressed.
    pub(crate) async fn read(
        &self,
        head: &Parts,
        received: &mut Received,
        user: &str,
    ) -> Result<RequestBody, ApiError> {
        let Some(body) = &mut received.body else { return Ok(RequestBody::default()) };
        // The size of a compressed body is not known before it is decompressed.
        if head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(ApiError::unsupported_content_encoding());
        }
        received.awaits_continue = false;
        let read = self.collect_in_time(head, body, user).await;
        if !matches!(read, Ok(Err(_))) {
            // It was read, or does not come.
            received.body = None;
        }
        read.map_err(|_| ApiError::timeout("request did not complete within the allotted timeout"))?
    }

    /// Reads a body; an error of the timeout if it does not arrive.
    async fn collect_in_time(
        &self,
        head: &Parts,
        body: &mut UnsyncBoxBody<Bytes, BoxError>,
        user: &str,
    ) -> Result<Result<RequestBody, ApiError>, Elapsed> {
        let mut collected = Collected::default();
        let polled = {
            let mut collecting = std::pin::pin!(self.collect(&mut collected, body, user));
            poll_fn(|context| Poll::Ready(collecting.as_mut().poll(context))).await
        };
        if let Poll::Ready(read) = polled {
            return Ok(read.map(|()| collected.read));
        }
        // The body has not arrived, and may never: the memory that the request has meanwhile is bounded.
        let receiving = self.receiving.try_take(user, 1);
        let bytes = self.arriving.try_take(user, (size(head) + collected.size).div_ceil(UNIT));
        let (Ok(_receiving), Ok(bytes)) = (receiving, bytes) else {
            return Ok(Err(ApiError::too_many_requests()));
        };
        collected.arriving = Some(bytes);
        let read = tokio::time::timeout(self.timeout, self.collect(&mut collected, body, user)).await?;
        Ok(read.map(|()| collected.read))
    }

    /// Collects the frames of a body. It may be cancelled and called again.
    async fn collect(
        &self,
        collected: &mut Collected,
        body: &mut UnsyncBoxBody<Bytes, BoxError>,
        user: &str,
    ) -> Result<(), ApiError> {
        if body.size_hint().lower() > (MAX_BODY + OVERRUN) as u64 {
            return Err(ApiError::body_too_large(MAX_BODY));
        }
        let Collected { read, rest, size, arriving } = collected;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ApiError::bad_request(format!("reading the body: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            *size += data.len();
            if *size > MAX_BODY {
                (*read, *rest) = (RequestBody::default(), BytesMut::new());
                if *size > MAX_BODY + OVERRUN {
                    break;
                }
                continue;
            }
            let units = data.len().div_ceil(UNIT);
            if let Some(arriving) = arriving {
                arriving.merge(self.arriving.try_take(user, units)?);
            }
            read.held.merge(self.bytes.try_take(user, units)?);
            // Most bodies are one frame, which is not copied.
            if read.bytes.is_empty() && rest.is_empty() {
                read.bytes = data;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&std::mem::take(&mut read.bytes));
                }
                rest.extend_from_slice(&data);
            }
        }
        if *size > MAX_BODY {
            return Err(ApiError::body_too_large(MAX_BODY));
        }
        if !rest.is_empty() {
            read.bytes = std::mem::take(rest).freeze();
        }
        Ok(())
    }
}

/// The bytes of a head.
fn size(head: &Parts) -> usize {
    let fields = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    head.uri.path().len() + head.uri.query().map_or(0, str::len) + fields.sum::<usize>()
}
