//! The owner's end of the pipe to a monitor. When it closes, the monitor ends the cluster.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::error::{Error, IoContext as _};
use crate::event::Event;
use crate::monitor::{DISCARD, InstanceSpec};

/// More events than a cluster emits, so that the thread that reads them never blocks.
const EVENTS: usize = 64;
/// The interval between two checks whether the monitor has ended.
const POLL: Duration = Duration::from_millis(10);

/// How to wait for a cluster or a runtime to become ready.
pub(crate) struct Start {
    /// The name of the start in an error.
    pub(crate) what: &'static str,
    /// The timeout of the start.
    pub(crate) timeout: Duration,
    /// The folder of logs that an error names if the monitor reported none.
    pub(crate) logs: PathBuf,
}

/// A monitor that runs a cluster; dropping it stops the cluster.
#[derive(Debug)]
pub(crate) struct Lifeline {
    monitor: Child,
    pipe: Option<ChildStdin>,
    /// Whether the monitor keeps the logs when the owner closes the pipe without a panic.
    pub(crate) keep_logs: bool,
}

impl Lifeline {
    /// Starts a monitor, and returns the channel of its events.
    pub(crate) fn start(
        program: Option<PathBuf>,
        spec: &InstanceSpec,
    ) -> Result<(Self, mpsc::Receiver<Event>), Error> {
        let program = match program {
            Some(program) => program,
            None => find_monitor()?,
        };
        let spec = serde_json::to_string(spec)
            .map_err(|source| Error::Encoding { what: "the instance spec", source })?;
        let mut monitor = Command::new(&program)
            .arg("monitor")
            .arg(spec)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .doing("run", &program)?;
        let (sender, events) = mpsc::channel(EVENTS);
        if let Some(output) = monitor.stdout.take() {
            thread::spawn(move || pass_on(output, sender));
        }
        let pipe = monitor.stdin.take();
        Ok((Self { monitor, pipe, keep_logs: true }, events))
    }

    /// Waits for the event for which `ready` returns a value, and returns that value with the cluster's folder. A start
    /// that fails or exceeds its timeout is stopped.
    pub(crate) async fn wait<T>(
        &mut self,
        events: &mut mpsc::Receiver<Event>,
        start: Start,
        mut on_step: impl FnMut(&str),
        ready: impl Fn(Event) -> Option<T>,
    ) -> Result<(T, PathBuf), Error> {
        let Start { what, timeout, logs } = start;
        let mut dir = PathBuf::new();
        let wait = async {
            let mut reason = String::from("its monitor ended without reporting a reason");
            while let Some(event) = events.recv().await {
                match event {
                    Event::Placed { dir: placed, .. } => dir = placed,
                    Event::Step(step) => on_step(&step),
                    Event::Failed(why) => reason = why,
                    Event::LogsKept(logs) => return Err(Error::Failed { reason, logs }),
                    event @ (Event::Ready(_) | Event::RuntimeReady(_)) => {
                        if let Some(ready) = ready(event) {
                            return Ok(ready);
                        }
                    }
                }
            }
            Err(Error::Failed { reason, logs })
        };
        let late = Error::Late { what: what.to_owned(), seconds: timeout.as_secs() };
        match tokio::time::timeout(timeout, wait).await.unwrap_or(Err(late)) {
            Ok(ready) => {
                self.keep_logs = false;
                Ok((ready, dir))
            }
            Err(error) => {
                self.stop().await?;
                Err(error)
            }
        }
    }

    /// The monitor's process id.
    pub(crate) fn id(&self) -> u32 {
        self.monitor.id()
    }

    /// Closes the pipe and waits until the monitor has removed the cluster and ended.
    pub(crate) async fn stop(&mut self) -> Result<ExitStatus, Error> {
        self.close();
        loop {
            match self.monitor.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => tokio::time::sleep(POLL).await,
                Err(source) => return Err(Error::System { doing: "wait for the monitor", source }),
            }
        }
    }

    fn close(&mut self) {
        if let Some(mut pipe) = self.pipe.take()
            && !self.keep_logs
            && !thread::panicking()
        {
            // If the monitor has ended, its exit status says so.
            let _ = pipe.write_all(DISCARD.as_bytes());
        }
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.close();
        let _ = self.monitor.wait();
    }
}

fn pass_on(output: ChildStdout, sender: mpsc::Sender<Event>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if let Ok(event) = serde_json::from_str(&line)
            && sender.blocking_send(event).is_err()
        {
            return;
        }
    }
}

/// Finds the `testbed` program: `PLUMB_TESTBED` names it, or it is in the folder of the running program or the one
/// above. The program of a test is in a folder below that of programs.
fn find_monitor() -> Result<PathBuf, Error> {
    if let Some(given) = std::env::var_os("PLUMB_TESTBED") {
        return Ok(given.into());
    }
    let own = std::env::current_exe().doing("find", "the own program")?;
    let folders: Vec<&Path> = own.ancestors().skip(1).take(2).collect();
    folders.iter().map(|folder| folder.join("testbed")).find(|path| path.is_file()).ok_or_else(|| {
        let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        Error::NoMonitor { places: places.join(", ") }
    })
}
