//! A command in a container that runs, with its ends in somebody's hands.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::state::{ContainerEntry, State};
use super::terminal::Terminal;
use crate::error::{Error, Result};
use crate::execution::{ExecRequest, Execution};

impl State {
    /// Starts a command.
    pub(super) fn exec_streams(&self, entry: &ContainerEntry, request: &ExecRequest) -> Result<Execution> {
        if !entry.life.borrow().is_running() {
            return Err(Error::FailedPrecondition(format!("container {} is not running", entry.record.id)));
        }
        let mode = if request.tty { "exec-tty" } else { "exec" };
        let mut shim = self.shim(mode, &entry.folder);
        shim.args(&request.command);
        if request.tty { with_terminal(shim, request) } else { with_pipes(shim, request) }
    }
}

fn doing(error: io::Error) -> Error {
    Error::io("running the shim", &error)
}

fn with_pipes(mut shim: Command, request: &ExecRequest) -> Result<Execution> {
    let end = |wanted: bool| if wanted { Stdio::piped() } else { Stdio::null() };
    let child =
        shim.stdin(end(request.stdin)).stdout(end(request.stdout)).stderr(end(request.stderr)).spawn();
    let mut child = child.map_err(doing)?;
    Ok(Execution {
        stdin: child.stdin.take().map(|end| Box::new(end) as _),
        stdout: child.stdout.take().map(|end| Box::new(end) as _),
        stderr: child.stderr.take().map(|end| Box::new(end) as _),
        resize: None,
        ended: Box::pin(Running(child).ended()),
    })
}

fn with_terminal(mut shim: Command, request: &ExecRequest) -> Result<Execution> {
    let Terminal { keyboard, screen, resize, other } = Terminal::open()?;
    let copy = |end: &OwnedFd| end.try_clone().map(Stdio::from).map_err(doing);
    shim.stdin(copy(&other)?).stdout(copy(&other)?).stderr(copy(&other)?);
    let child = shim.spawn().map_err(doing)?;
    // Only the command's own ends are left now, and with the last of them the terminal ends. The command line that
    // was made holds copies of its own.
    drop((shim, other));
    Ok(Execution {
        stdin: request.stdin.then(|| Box::new(keyboard) as _),
        stdout: request.stdout.then(|| Box::new(screen) as _),
        stderr: None,
        resize: Some(resize),
        ended: Box::pin(Running(child).ended()),
    })
}

/// A shim that runs a command. Dropped, it ends the command with all that it started in its session.
struct Running(Child);

impl Running {
    async fn ended(mut self) -> Result<i32> {
        let status = self.0.wait().await.map_err(doing)?;
        Ok(status.code().unwrap_or(137))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that was waited for has no number any more.
        if let Some(number) = self.0.id().and_then(|number| i32::try_from(number).ok()) {
            let _ = kill(Pid::from_raw(number), Signal::SIGTERM);
        }
    }
}
