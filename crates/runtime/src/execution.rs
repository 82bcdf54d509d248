//! A command that runs in a container, with its standard streams.

use std::fmt;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::Result;

/// What to run in a container, and which streams to connect.
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

/// A running command. Dropping it before it has exited kills it, with all processes of its session.
pub struct Execution {
    /// Its standard input; dropping it closes it. None if it is not connected.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Its standard output.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its standard error.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its terminal, if it has one.
    pub resize: Option<Resizer>,
    /// Its exit code, once it has exited.
    pub ended: BoxFuture<'static, Result<i32>>,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").field("tty", &self.resize.is_some()).finish_non_exhaustive()
    }
}
