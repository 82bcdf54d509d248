//! Streams to and from containers: a command's standard streams, a container's own, and connections to ports.

use std::fmt;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::Result;

/// The command to run in a container, and the streams to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the switches of the API's own options")]
pub struct ExecRequest {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Whether to connect standard input.
    pub stdin: bool,
    /// Whether to connect standard output.
    pub stdout: bool,
    /// Whether to connect standard error. With a terminal it is part of standard output.
    pub stderr: bool,
    /// Whether to allocate a terminal.
    pub tty: bool,
}

/// Which of a container's own standard streams to connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the switches of the API's own options")]
pub struct AttachRequest {
    /// Whether to connect standard input.
    pub stdin: bool,
    /// Whether to connect standard output.
    pub stdout: bool,
    /// Whether to connect standard error. With a terminal it is part of standard output.
    pub stderr: bool,
    /// Whether the container has a terminal.
    pub tty: bool,
}

/// The streams of a call, or the URL where they are.
#[derive(Debug)]
pub enum Streaming<T> {
    /// In this process.
    Streams(T),
    /// At the runtime's streaming server, as runtimes behind a CRI socket answer. The node agent sends a request to this URL that
    /// it upgrades to SPDY/3.1, and opens the streams there.
    Url(String),
}

impl<T> Streaming<T> {
    /// The streams of a runtime that has no streaming server.
    pub fn streams(self) -> Option<T> {
        match self {
            Self::Streams(streams) => Some(streams),
            Self::Url(_) => None,
        }
    }
}

/// Both directions of a connection.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection to a port of a pod.
pub type Connection = Box<dyn Duplex>;

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Its width.
    pub columns: u16,
    /// Its height.
    pub rows: u16,
}

/// Resizes a terminal.
pub type Resizer = Box<dyn Fn(TerminalSize) -> Result<()> + Send + Sync>;

/// A running command, or a container that a client is attached to. Dropping it before it has exited kills a command, with all
/// processes of its session; of a container it only disconnects the streams.
pub struct Execution {
    /// Its standard input; dropping it closes it. None if it is not connected.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Its standard output.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its standard error.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its terminal, if it has one.
    pub resize: Option<Resizer>,
    /// Its exit code, once it has exited. That of a container is 0.
    pub ended: BoxFuture<'static, Result<i32>>,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").field("tty", &self.resize.is_some()).finish_non_exhaustive()
    }
}
