//! The messages of a call, and its status.

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

/// The maximum size of a message, as that of the kubelet (`maxMsgSize`).
pub(crate) const MAX_MESSAGE: usize = 16 << 20;
/// The size of the flag and the length before a message.
const PREFIX: usize = 5;
/// The body of a request.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The status code of a failed call. Codes that no decision depends on are [`Other`](Self::Other).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "gRPC documents its codes")]
pub enum Code {
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

/// Prints the code as gRPC for Go does, which users know from events.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "Canceled",
            Self::Other(7) => "PermissionDenied",
            Self::Other(8) => "ResourceExhausted",
            Self::Other(13) => "Internal",
            Self::Other(15) => "DataLoss",
            Self::Other(16) => "Unauthenticated",
            Self::Other(number) => return write!(f, "Code({number})"),
            known => return write!(f, "{known:?}"),
        })
    }
}

impl Code {
    fn from_number(number: u32) -> Self {
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
pub struct Status {
    /// The kind of the failure.
    pub code: Code,
    /// The message of the server, or of this client.
    pub message: String,
}

impl Status {
    /// Creates a failure of this kind.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The status of a call whose connection failed. Whether the call took effect is unknown.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// The status of a call in its headers or trailers, if they have one; `Ok` is success.
    fn from_headers(headers: &HeaderMap) -> Option<Result<(), Self>> {
        let number = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
        if number == 0 {
            return Some(Ok(()));
        }
        let message = headers.get("grpc-message").map(HeaderValue::as_bytes).unwrap_or_default();
        Some(Err(Self::new(Code::from_number(number), percent_decode(message).decode_utf8_lossy())))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

/// The request of a call.
pub(crate) fn request(
    origin: &str,
    path: &str,
    metadata: &[(&'static str, HeaderValue)],
    body: Body,
) -> Result<Request<Body>, Status> {
    let mut request = Request::post(format!("{origin}{path}"))
        .version(Version::HTTP_2)
        .header(CONTENT_TYPE, "application/grpc")
        .header(TE, "trailers")
        .header(USER_AGENT, concat!("plumb/", env!("CARGO_PKG_VERSION")));
    for (name, value) in metadata {
        request = request.header(*name, value);
    }
    request.body(body).map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))
}

/// Encodes a message with its prefix.
pub(crate) fn encoded(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // The buffer grows, so encoding cannot run out of space.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

/// The messages of a response.
#[derive(Debug)]
pub struct Messages {
    body: Incoming,
    buffer: BytesMut,
    /// The maximum size of a message.
    max_message: usize,
    /// The status of the call, once it is known. A response without messages has it in its headers.
    early: Option<Result<(), Status>>,
}

impl Messages {
    pub(crate) fn new(response: Response<Incoming>, max_message: usize) -> Result<Self, Status> {
        let early = Status::from_headers(response.headers());
        if early.is_none() && !response.status().is_success() {
            return Err(Status::unavailable(format!("the server answers with HTTP {}", response.status())));
        }
        Ok(Self { body: response.into_body(), buffer: BytesMut::new(), max_message, early })
    }

    /// The next message; `None` after the last one of a call that succeeded.
    pub async fn next<A: Message + Default>(&mut self) -> Result<Option<A>, Status> {
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
                        let missing = || Err(Status::new(Code::Unknown, "the response has no gRPC status"));
                        self.early = Some(Status::from_headers(&trailers).unwrap_or_else(missing));
                    }
                }
            }
        }
    }

    /// Takes the next message from the buffer, if it is complete.
    fn take(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        let length = u32::from_be_bytes(length) as usize;
        if compressed != 0 || length > self.max_message {
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

/// Displays an error with its causes. Errors of hyper have the reason in their causes only.
pub fn causes(error: &dyn std::error::Error) -> String {
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
        assert_eq!(Status::from_headers(&HeaderMap::new()), None);
        assert_eq!(Status::from_headers(&trailers("0", "")), Some(Ok(())));
        let missing = Status::new(Code::NotFound, "no such container");
        assert_eq!(Status::from_headers(&trailers("5", "no%20such container")), Some(Err(missing)));
        assert_eq!(Status::from_headers(&trailers("13", "x")), Some(Err(Status::new(Code::Other(13), "x"))));
        for (sent, message) in [("100%", "100%"), ("%zz", "%zz"), ("%C3%A9", "é"), ("", "")] {
            let status = Status::new(Code::NotFound, message);
            assert_eq!(Status::from_headers(&trailers("5", sent)), Some(Err(status)), "{sent}");
        }
    }

    #[test]
    fn a_message_has_its_length_before_it() {
        // A string is encoded as a message with one field.
        let message = "abc".to_owned();
        assert_eq!(&encoded(&message)[..], [0, 0, 0, 0, 5, 0x0a, 3, b'a', b'b', b'c']);
    }
}
