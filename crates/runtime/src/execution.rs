//! A command that runs in a container, with its ends in the caller's hands.

use std::fmt;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::Result;

/// What to run in a container, and what of it is connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are the switches of the API's own options")]
pub struct ExecRequest {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Whether somebody writes to it.
    pub stdin: bool,
    /// Whether somebody reads what it prints.
    pub stdout: bool,
    /// Whether somebody reads what it complains about. With a terminal that is part of what it prints.
    pub stderr: bool,
    /// Whether it is given a terminal.
    pub tty: bool,
}

/// How large a terminal is, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// How wide.
    pub columns: u16,
    /// How high.
    pub rows: u16,
}

/// Makes a terminal larger or smaller.
pub type Resizer = Box<dyn Fn(TerminalSize) -> Result<()> + Send + Sync>;

/// A command that runs. Dropped before it has ended, it is killed, with all that it started in its session.
pub struct Execution {
    /// What it reads; dropped, it reads the end. None if nobody writes.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// What it prints.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// What it complains about.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its terminal, if it has one.
    pub resize: Option<Resizer>,
    /// Its exit code, once it has ended.
    pub ended: BoxFuture<'static, Result<i32>>,
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Execution").field("tty", &self.resize.is_some()).finish_non_exhaustive()
    }
}
