//! The agent of one further node, in a process of its own.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plumb_pod_network::machine::within;
use plumb_supervise::Backoff;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::signals::Stop;

/// How an agent is started.
#[derive(Debug)]
pub(super) struct NodeProcess {
    pub(super) name: String,
    /// Holds the network namespace that it runs in.
    pub(super) namespace: PathBuf,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    /// How long it may take to end.
    pub(super) end_within: Duration,
    /// Whether it has joined.
    pub(super) joined: watch::Sender<bool>,
}

impl NodeProcess {
    /// Runs it, again and again, until it is to stop.
    pub(super) async fn keep(self: Arc<Self>, mut stopping: watch::Receiver<Option<Stop>>) {
        let mut backoff = Backoff::default();
        loop {
            let ended = match self.spawn() {
                Ok(child) => self.run(child, &mut stopping).await,
                Err(error) => Err(error),
            };
            if stopping.borrow().is_some() {
                return;
            }
            let node = &self.name;
            match ended {
                Ok(status) => {
                    tracing::warn!(node, %status, "the agent of a node has ended, it is started again");
                }
                Err(error) => tracing::warn!(node, %error, "cannot run the agent of a node, will retry"),
            }
            if self.joined.send_replace(false) {
                backoff.reset();
            }
            tokio::select! {
                () = backoff.wait() => {}
                _ = stopping.changed() => return,
            }
        }
    }

    fn spawn(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            // It ends when this is closed, however this process ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            // Ctrl-C in a terminal goes to this process, which passes it on.
            .process_group(0);
        let runtime = Handle::current();
        // A process is in the namespace of the thread that starts it.
        within(&self.namespace, move || {
            let _entered = runtime.enter();
            command.spawn()
        })
    }

    async fn run(
        &self,
        mut child: Child,
        stopping: &mut watch::Receiver<Option<Stop>>,
    ) -> io::Result<ExitStatus> {
        // Held here: waiting closes what the child still has of it.
        let _open = child.stdin.take();
        let mut lines = child.stdout.take().map(|output| BufReader::new(output).lines());
        loop {
            tokio::select! {
                status = child.wait() => return status,
                line = next_line(&mut lines) => match line {
                    // Its first line says that it has joined.
                    Some(_) => _ = self.joined.send_replace(true),
                    None => lines = None,
                },
                _ = stopping.wait_for(Option::is_some) => break,
            }
        }
        let signal = match *stopping.borrow() {
            Some(Stop::Terminate) => Signal::SIGTERM,
            _ => Signal::SIGINT,
        };
        if let Some(process) = child.id().and_then(|process| i32::try_from(process).ok()) {
            kill(Pid::from_raw(process), signal)?;
        }
        if let Ok(status) = timeout(self.end_within, child.wait()).await {
            return status;
        }
        tracing::warn!(node = self.name, "the agent of a node does not end, it is killed");
        child.kill().await?;
        child.wait().await
    }
}

async fn next_line(lines: &mut Option<Lines<BufReader<ChildStdout>>>) -> Option<String> {
    match lines {
        Some(lines) => lines.next_line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}
