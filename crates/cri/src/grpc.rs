//! gRPC on hyper's HTTP/2: as much of it as a CRI socket needs.
//!
//! A call is a POST; each message in it has five bytes before it, a flag and its length; the trailers say how it went. The
//! HTTP/2 client is there already, for the API server's clients and for gRPC probes, so no gRPC framework is needed.

use std::convert::Infallible;
use std::fmt;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use percent_encoding::percent_decode;
use prost::Message;

/// The longest message: as the kubelet's.
const LONGEST_MESSAGE: usize = 16 << 20;
/// A flag and the length.
const PREFIX: usize = 5;

/// The body of a request.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// How a call went, as gRPC numbers it. Those that no decision depends on are [`Other`](Self::Other).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Unavailable,
    Other(u32),
}

impl Code {
    fn of(number: u32) -> Self {
        match number {
            1 => Self::Cancelled,
            2 => Self::Unknown,
            3 => Self::InvalidArgument,
            4 => Self::DeadlineExceeded,
            5 => Self::NotFound,
            6 => Self::AlreadyExists,
            9 => Self::FailedPrecondition,
            10 => Self::Aborted,
            11 => Self::OutOfRange,
            12 => Self::Unimplemented,
            14 => Self::Unavailable,
            other => Self::Other(other),
        }
    }
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Status {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A connection that failed: whether the call took effect is unknown.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// What headers or trailers say, if they do; `Ok` is success.
    fn of(headers: &HeaderMap) -> Option<Result<(), Self>> {
        let number = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
        if number == 0 {
            return Some(Ok(()));
        }
        let message = headers.get("grpc-message").map(HeaderValue::as_bytes).unwrap_or_default();
        Some(Err(Self::new(Code::of(number), percent_decode(message).decode_utf8_lossy())))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

/// The request of a call.
pub(crate) fn request(
    path: &str,
    metadata: &[(&'static str, HeaderValue)],
    body: Body,
) -> Result<Request<Body>, Status> {
    // The authority is only the value of a header: the socket is chosen already.
    let mut request = Request::post(format!("http://localhost{path}"))
        .version(Version::HTTP_2)
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, concat!("plumb/", env!("CARGO_PKG_VERSION")));
    for (name, value) in metadata {
        request = request.header(*name, value);
    }
    request.body(body).map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))
}

/// A message with its prefix.
pub(crate) fn encoded(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // A buffer grows, so it never lacks space.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

/// The messages of a response.
#[derive(Debug)]
pub(crate) struct Messages {
    body: Incoming,
    buffer: BytesMut,
    /// What the headers said, of a response without messages.
    early: Option<Result<(), Status>>,
}

impl Messages {
    pub(crate) fn of(response: Response<Incoming>) -> Result<Self, Status> {
        let early = Status::of(response.headers());
        if early.is_none() && !response.status().is_success() {
            return Err(Status::unavailable(format!("the socket answers with HTTP {}", response.status())));
        }
        Ok(Self { body: response.into_body(), buffer: BytesMut::new(), early })
    }

    /// The next message; `None` after the last one of a call that succeeded.
    pub(crate) async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, Status> {
        loop {
            if let Some(message) = self.take()? {
                let decoded = A::decode(message);
                return decoded.map(Some).map_err(|error| Status::new(Code::Unknown, error.to_string()));
            }
            if let Some(early) = self.early.clone() {
                return early.map(|()| None);
            }
            let Some(frame) = self.body.frame().await else {
                return Err(Status::unavailable("the connection ended before the response did"));
            };
            let frame = frame.map_err(|error| Status::unavailable(causes(&error)))?;
            match frame.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        let missing =
                            || Err(Status::new(Code::Unknown, "the response does not say how the call went"));
                        self.early = Some(Status::of(&trailers).unwrap_or_else(missing));
                    }
                }
            }
        }
    }

    /// The next message in the buffer, if it is there whole.
    fn take(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        let length = u32::from_be_bytes(length) as usize;
        if compressed != 0 || length > LONGEST_MESSAGE {
            return Err(Status::new(
                Code::OutOfRange,
                format!("a message of {length} bytes is not accepted"),
            ));
        }
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

/// An error with its causes, which is where a transport says what happened.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_say_how_a_call_went() {
        let trailers = |status: &'static str, message: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-status", HeaderValue::from_static(status));
            headers.insert("grpc-message", HeaderValue::from_static(message));
            headers
        };
        assert_eq!(Status::of(&HeaderMap::new()), None);
        assert_eq!(Status::of(&trailers("0", "")), Some(Ok(())));
        let missing = Status::new(Code::NotFound, "no such container");
        assert_eq!(Status::of(&trailers("5", "no%20such container")), Some(Err(missing)));
        assert_eq!(Status::of(&trailers("13", "x")), Some(Err(Status::new(Code::Other(13), "x"))));
        for (sent, message) in [("100%", "100%"), ("%zz", "%zz"), ("%C3%A9", "é"), ("", "")] {
            let status = Status::new(Code::NotFound, message);
            assert_eq!(Status::of(&trailers("5", sent)), Some(Err(status)), "{sent}");
        }
    }

    #[test]
    fn a_message_has_its_length_before_it() {
        let message = crate::api::ContainerRequest { container_id: "abc".into() };
        assert_eq!(&encoded(&message)[..], [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'b', b'c']);
    }
}
