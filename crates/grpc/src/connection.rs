//! The connection to a server, and calls with a deadline.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use http::HeaderValue;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::host::Host;
use crate::message::{self, Body, Code, MAX_MESSAGE, Messages, Status, causes};

/// The timeout for connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// The interval of pings to another machine, while calls are under way. gRPC servers close connections that ping more often than
/// every five seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The timeout of a ping, after which the connection is lost.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
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

/// Where the server is.
#[derive(Clone)]
enum Server {
    Socket(PathBuf),
    Host(Arc<Host>),
}

/// A connection to a server. The first call connects, and so does the next call after the connection was lost. Clones share
/// the connection.
#[derive(Clone)]
pub struct Connection {
    server: Server,
    timeout: Duration,
    max_message: usize,
    sender: Arc<Mutex<Option<SendRequest<Body>>>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("server", &self.address()).finish_non_exhaustive()
    }
}

impl Connection {
    /// Creates a connection to a socket of this machine with a timeout for calls.
    pub fn new(socket: PathBuf, timeout: Duration) -> Self {
        Self::to(Server::Socket(socket), timeout)
    }

    /// Creates a connection to a host with a timeout for calls.
    pub fn to_host(host: Host, timeout: Duration) -> Self {
        Self::to(Server::Host(Arc::new(host)), timeout)
    }

    fn to(server: Server, timeout: Duration) -> Self {
        Self { server, timeout, max_message: MAX_MESSAGE, sender: Arc::default() }
    }

    /// Sets the maximum size of a message that is accepted.
    #[must_use]
    pub fn with_max_message(self, max_message: usize) -> Self {
        Self { max_message, ..self }
    }

    /// The address of the server.
    pub fn address(&self) -> String {
        match &self.server {
            Server::Socket(socket) => format!("{SCHEME}{}", socket.display()),
            Server::Host(host) => host.to_string(),
        }
    }

    /// Connects, unless the connection is open. A call that fails after this may have taken effect; if this fails, nothing was
    /// sent.
    pub async fn connect(&self) -> Result<(), Status> {
        self.sender().await.map(drop).map_err(|error| self.lost(&error))
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
        // The authority is only the value of a header, since the socket is already connected.
        let request = match &self.server {
            Server::Socket(_) => message::request("http://localhost", path, metadata, body)?,
            Server::Host(host) => message::request(&host.to_string(), path, metadata, body)?,
        };
        let mut sender = self.sender().await.map_err(|error| self.lost(&error))?;
        let response = sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        Messages::new(response, self.max_message)
    }

    /// Returns the open connection, or connects.
    async fn sender(&self) -> io::Result<SendRequest<Body>> {
        let mut known = self.sender.lock().await;
        if let Some(sender) = known.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let (mut sender, connection) = tokio::time::timeout(CONNECT, self.handshake()).await??;
        let address = self.address();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(address, error, "a gRPC connection ended");
            }
        });
        sender.ready().await.map_err(io::Error::other)?;
        *known = Some(sender.clone());
        Ok(sender)
    }

    async fn handshake(&self) -> io::Result<(SendRequest<Body>, Driver)> {
        match &self.server {
            Server::Socket(socket) => {
                http2_over(http2::Builder::new(TokioExecutor::new()), UnixStream::connect(socket).await?)
                    .await
            }
            Server::Host(host) => {
                let mut settings = http2::Builder::new(TokioExecutor::new());
                settings.timer(TokioTimer::new());
                settings.keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
                http2_over(settings, host.connect().await?).await
            }
        }
    }

    fn lost(&self, error: &dyn std::error::Error) -> Status {
        Status::unavailable(format!("{}: {}", self.address(), causes(error)))
    }
}

/// The task of a connection. It returns why the connection ended, if that was an error.
type Driver = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

async fn http2_over(
    settings: http2::Builder<TokioExecutor>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<(SendRequest<Body>, Driver)> {
    let (sender, connection) = settings.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    Ok((sender, Box::pin(async move { connection.await.map_err(|error| causes(&error)) })))
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
