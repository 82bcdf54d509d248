//! Bodies of responses: complete bytes, or a stream.

use std::any::Any;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

use crate::in_flight::Permit;
use crate::metrics::Running;

/// The body of a response.
#[derive(Debug)]
pub struct Body {
    inner: Inner,
    /// Dropped with the body: when its last byte was passed to HTTP, or the client has disconnected.
    running: Option<Running>,
    permit: Option<Permit>,
    /// Records the end of the response when it is dropped.
    completion: Option<Box<dyn Any + Send>>,
}

/// Bytes that hold their request's share of the limits until the last reference is dropped: until they are written.
struct Held {
    bytes: Bytes,
    _permit: Permit,
}

impl AsRef<[u8]> for Held {
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
    fn new(inner: Inner) -> Self {
        Self { inner, running: None, permit: None, completion: None }
    }

    /// A body that is sent while it is produced.
    pub(crate) fn stream<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error = io::Error> + Send + 'static,
    {
        Self::new(Inner::Stream(body.boxed_unsync()))
    }

    /// The same body, whose request counts as in flight until it is dropped.
    #[must_use]
    pub(crate) fn holding(mut self, running: Running) -> Self {
        self.running = Some(running);
        self
    }

    /// The same body, whose request counts against the limits until the body is sent. A list holds its share until its bytes
    /// are written, since it may be large; other bodies may still be in the buffers of HTTP when the share is released.
    #[must_use]
    pub(crate) fn with_permit(mut self, permit: Permit) -> Self {
        match &mut self.inner {
            Inner::Whole(bytes) if permit.set_list_size(bytes.len()) => {
                let held = Held { bytes: std::mem::take(bytes), _permit: permit };
                *bytes = Bytes::from_owner(held);
            }
            _ => self.permit = Some(permit),
        }
        self
    }

    /// The same body, with a value that is dropped at its end, which completes the audit events of its request.
    #[must_use]
    pub(crate) fn completing(mut self, completion: impl Any + Send) -> Self {
        self.completion = Some(Box::new(completion));
        self
    }

    /// The bytes of a complete body.
    pub(crate) fn whole(&self) -> Option<&Bytes> {
        match &self.inner {
            Inner::Whole(bytes) => Some(bytes),
            Inner::Stream(_) => None,
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::new(Inner::Whole(bytes.into()))
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
