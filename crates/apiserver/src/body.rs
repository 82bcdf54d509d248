//! What an answer is made of: bytes that are there as a whole, or a stream that has no end yet.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

use crate::metrics::Running;
use crate::place::Place;

/// What an answer is made of.
#[derive(Debug)]
pub struct Body {
    inner: Inner,
    /// Dropped with the body: when its last byte was handed to HTTP, or the client is gone.
    running: Option<Running>,
    place: Option<Place>,
}

/// Bytes that keep the place of their request until the last view of them is dropped: until they are written.
struct Placed {
    bytes: Bytes,
    _place: Place,
}

impl AsRef<[u8]> for Placed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[derive(Debug)]
enum Inner {
    Whole(Bytes),
    Stream(UnsyncBoxBody<Bytes, io::Error>),
}

impl Body {
    /// A body that comes as it is made.
    pub(crate) fn stream<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error = io::Error> + Send + 'static,
    {
        Self { inner: Inner::Stream(body.boxed_unsync()), running: None, place: None }
    }

    /// The same body, which counts as under way until it is gone.
    #[must_use]
    pub(crate) fn holding(mut self, running: Running) -> Self {
        self.running = Some(running);
        self
    }

    /// The same body, whose request has its place until the body is sent. The bytes of a list keep it themselves, since
    /// there may be many of them; what else is sent may lie in the buffers of HTTP when the place is given back.
    #[must_use]
    pub(crate) fn placed(mut self, place: Place) -> Self {
        match &mut self.inner {
            Inner::Whole(bytes) if place.settle_list(bytes.len()) => {
                let placed = Placed { bytes: std::mem::take(bytes), _place: place };
                *bytes = Bytes::from_owner(placed);
            }
            _ => self.place = Some(place),
        }
        self
    }

    /// The bytes of a body that is there as a whole.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.inner {
            Inner::Whole(bytes) => Some(bytes),
            Inner::Stream(_) => None,
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self { inner: Inner::Whole(bytes.into()), running: None, place: None }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.inner {
            Inner::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inner::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Inner::Stream(stream) => Pin::new(stream).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Whole(bytes) => bytes.is_empty(),
            Inner::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Stream(stream) => stream.size_hint(),
        }
    }
}
