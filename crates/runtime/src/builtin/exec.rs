//! Commands in running containers, with their standard streams.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

use super::state::{ContainerEntry, State};
use super::terminal::Terminal;
use crate::error::{Error, Result};
use crate::execution::{ExecRequest, Execution};

impl State {
    /// Starts a command.
    pub(super) async fn exec_streams(
        &self,
        entry: &ContainerEntry,
        request: &ExecRequest,
    ) -> Result<Execution> {
        if !entry.life.borrow().is_running() {
            return Err(Error::FailedPrecondition(format!("container {} is not running", entry.record.id)));
        }
        let mode = if request.tty { "exec-tty" } else { "exec" };
        let mut shim = self.shim(mode, &entry.folder);
        shim.args(&request.command);
        if request.tty { with_terminal(shim, request).await } else { with_pipes(shim, request) }
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

/// The shim makes the terminal in the container, and we take our end of it.
async fn with_terminal(mut shim: Command, request: &ExecRequest) -> Result<Execution> {
    shim.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Running(shim.spawn().map_err(doing)?);
    let Terminal { keyboard, screen, resize } = Terminal::new(take_terminal(&mut child.0).await?)?;
    Ok(Execution {
        stdin: request.stdin.then(|| Box::new(keyboard) as _),
        stdout: request.stdout.then(|| Box::new(screen) as _),
        stderr: None,
        resize: Some(resize),
        ended: Box::pin(child.ended()),
    })
}

/// Our end of the terminal that a shim offers.
async fn take_terminal(shim: &mut Child) -> Result<OwnedFd> {
    let (Some(mut stdin), Some(stdout), Some(mut stderr)) =
        (shim.stdin.take(), shim.stdout.take(), shim.stderr.take())
    else {
        return Err(Error::failed("making a terminal", "the shim has no pipes"));
    };
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).await.map_err(doing)?;
    let (Ok(number), Some(pid)) =
        (line.trim().parse(), shim.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)))
    else {
        // The message has the reason.
        let mut why = String::new();
        stderr.read_to_string(&mut why).await.map_err(doing)?;
        return Err(Error::failed("making a terminal", why.trim()));
    };
    let taken = pidfd_open(pid, PidfdFlags::empty())
        .and_then(|process| pidfd_getfd(process, number, PidfdGetfdFlags::empty()))
        .map_err(|errno| Error::io("taking the terminal", &errno.into()))?;
    stdin.write_all(b"\n").await.map_err(doing)?;
    Ok(taken)
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
        // A process that was reaped has no pid any more.
        if let Some(number) = self.0.id().and_then(|number| i32::try_from(number).ok()) {
            let _ = kill(nix::unistd::Pid::from_raw(number), Signal::SIGTERM);
        }
    }
}
