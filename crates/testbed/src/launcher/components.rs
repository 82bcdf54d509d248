//! The processes of a cluster: the launcher starts each with a log file, and the runtime kills them when it is dropped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::error::{Error, IoContext as _};

/// More than there are components, so that sending never blocks.
const PARTS: usize = 64;
/// How many lines of a component's log an error has.
const TAIL_LINES: usize = 12;
/// The interval between two polls.
const POLL: Duration = Duration::from_millis(50);

/// Starts processes and reports their ends.
pub(crate) struct Components {
    logs: PathBuf,
    ends: mpsc::Sender<Error>,
}

impl Components {
    /// No components yet, with `logs` as the folder of their logs, and the channel that receives the end of each.
    pub(crate) fn new(logs: PathBuf) -> (Self, mpsc::Receiver<Error>) {
        let (ends, receiver) = mpsc::channel(PARTS);
        (Self { logs, ends }, receiver)
    }

    /// Starts a component that must run until the cluster ends.
    pub(crate) fn start(&mut self, part: &str, mut command: Command) -> Result<(), Error> {
        let path = self.log(part);
        let log = File::create(&path).doing("create", &path)?;
        let second = log.try_clone().doing("open", &path)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(second)
            .kill_on_drop(true)
            .spawn()
            .doing("run", command.as_std().get_program())?;
        let (part, ends) = (part.to_owned(), self.ends.clone());
        tokio::spawn(async move {
            let status =
                child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
            // The receiver is dropped when the launcher ends.
            let _ = ends.send(Error::Ended { part, status, detail: tail(&path) }).await;
        });
        Ok(())
    }

    /// Starts a component, and restarts it whenever it ends.
    pub(crate) fn start_with_restarts(
        &mut self,
        part: &str,
        command: impl Fn() -> Command + Send + 'static,
    ) -> Result<(), Error> {
        let path = self.log(part);
        let log = File::create(&path).doing("create", &path)?;
        let second = log.try_clone().doing("open", &path)?;
        let (part, ends) = (part.to_owned(), self.ends.clone());
        tokio::spawn(async move {
            loop {
                let mut command = command();
                let run = async {
                    let (out, err) = (log.try_clone()?, second.try_clone()?);
                    command.stdin(Stdio::null()).stdout(out).stderr(err).kill_on_drop(true).status().await
                };
                if let Err(error) = run.await {
                    let status = error.to_string();
                    let _ = ends.send(Error::Ended { part, status, detail: tail(&path) }).await;
                    return;
                }
                sleep(POLL).await;
            }
        });
        Ok(())
    }

    /// Runs a tool to its end.
    pub(crate) async fn finish(&self, what: &str, mut command: Command) -> Result<(), Error> {
        let output = command
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .doing("run", command.as_std().get_program())?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Tool {
            what: what.to_owned(),
            status: output.status.to_string(),
            detail: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    fn log(&self, part: &str) -> PathBuf {
        self.logs.join(format!("{part}.log"))
    }
}

fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Calls `ask` until it returns a value, or until `timeout` has elapsed.
pub(crate) async fn poll<T>(
    what: &str,
    timeout: Duration,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> Result<T, Error> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(answer) = ask().await {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            return Err(Error::Late { what: what.to_owned(), seconds: timeout.as_secs() });
        }
        sleep(POLL).await;
    }
}
