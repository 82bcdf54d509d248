//! The connection to a runtime's socket, and calls with a deadline.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use http::HeaderValue;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::message::{self, Body, Code, Messages, Status, causes};

/// The timeout for connecting to a local socket.
const CONNECT: Duration = Duration::from_secs(5);
/// The scheme of a socket's address.
const SCHEME: &str = "unix://";
/// An address that is not a local socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the address of a socket: unix:///PATH is")]
pub struct InvalidEndpoint(String);

/// Parses the address of a socket, `unix:///PATH` or only the path, and returns its path.
pub fn socket_path(endpoint: &str) -> Result<PathBuf, InvalidEndpoint> {
    let path = endpoint.strip_prefix(SCHEME).unwrap_or(endpoint);
    let is_path = path.starts_with('/') && !path.contains('\0');
    if is_path { Ok(PathBuf::from(path)) } else { Err(InvalidEndpoint(endpoint.to_owned())) }
}

/// The headers of a call.
pub type Metadata<'a> = &'a [(&'static str, HeaderValue)];

/// A connection to a socket. The first call connects, and so does the next call after the connection was lost. Clones share
/// the connection.
#[derive(Clone)]
pub struct Connection {
    socket: PathBuf,
    timeout: Duration,
    sender: Arc<Mutex<Option<SendRequest<Body>>>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Connection {
    /// Creates a connection to a socket with a timeout for calls.
    pub fn new(socket: PathBuf, timeout: Duration) -> Self {
        Self { socket, timeout, sender: Arc::default() }
    }

    /// The timeout of calls.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Makes a call.
    pub async fn call<A: Message + Default>(
        &self,
        path: &'static str,
        request: impl Message,
    ) -> Result<A, Status> {
        self.call_within(path, &[], request, Some(self.timeout)).await
    }

    /// Makes a call with headers and a timeout; `None` is no timeout.
    pub async fn call_within<A: Message + Default>(
        &self,
        path: &'static str,
        metadata: Metadata<'_>,
        request: impl Message,
        timeout: Option<Duration>,
    ) -> Result<A, Status> {
        let body = Full::new(message::encoded(&request)).boxed_unsync();
        let call = async {
            let mut messages = self.open(path, metadata, body).await?;
            let message = messages.next().await?;
            let message = message.ok_or_else(|| Status::new(Code::Unknown, "the response has no message"))?;
            // The status of the call is in the trailers, after the message.
            messages.next::<A>().await?;
            Ok(message)
        };
        let Some(timeout) = timeout else { return call.await };
        let late = |_| {
            let call = path.rsplit('/').next().unwrap_or(path);
            Status::new(Code::DeadlineExceeded, format!("{call} took longer than {timeout:?}"))
        };
        tokio::time::timeout(timeout, call).await.map_err(late)?
    }

    /// Makes a call whose response is a stream.
    pub async fn subscribe(&self, path: &'static str, request: impl Message) -> Result<Messages, Status> {
        self.open(path, &[], Full::new(message::encoded(&request)).boxed_unsync()).await
    }

    /// Makes a call of which both the request and the response are streams.
    pub async fn exchange<Q: Message>(
        &self,
        path: &'static str,
        metadata: Metadata<'_>,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Messages, Status> {
        let frames = requests.map(|request| Ok(Frame::data(message::encoded(&request))));
        self.open(path, metadata, StreamBody::new(frames).boxed_unsync()).await
    }

    async fn open(&self, path: &'static str, metadata: Metadata<'_>, body: Body) -> Result<Messages, Status> {
        let request = message::request(path, metadata, body)?;
        let mut sender = self.sender().await.map_err(|error| self.lost(&error))?;
        let response = sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        Messages::new(response)
    }

    /// Returns the open connection, or connects.
    async fn sender(&self) -> io::Result<SendRequest<Body>> {
        let mut known = self.sender.lock().await;
        if let Some(sender) = known.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let connect = async {
            let stream = UnixStream::connect(&self.socket).await?;
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(io::Error::other)
        };
        let (mut sender, connection) = tokio::time::timeout(CONNECT, connect).await??;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = causes(&error), "a connection to the container runtime ended");
            }
        });
        sender.ready().await.map_err(io::Error::other)?;
        *known = Some(sender.clone());
        Ok(sender)
    }

    fn lost(&self, error: &dyn std::error::Error) -> Status {
        Status::unavailable(format!("{SCHEME}{}: {}", self.socket.display(), causes(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_named_as_the_kubelet_names_them() {
        let socket = "/run/containerd/containerd.sock";
        assert_eq!(socket_path(&format!("unix://{socket}")), Ok(PathBuf::from(socket)));
        assert_eq!(socket_path(socket), Ok(PathBuf::from(socket)));
        for wrong in ["", "unix://", "tcp://127.0.0.1:1", "run/containerd.sock", "npipe:////./pipe/x"] {
            assert!(socket_path(wrong).is_err(), "{wrong}");
        }
    }
}
