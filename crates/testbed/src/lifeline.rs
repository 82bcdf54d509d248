//! The owner's end of the pipe to a monitor. Letting go of it, in whatever way, ends the cluster.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::error::{Error, IoContext as _};
use crate::event::Event;
use crate::monitor::{DISCARD, InstanceSpec};

/// More lines than a cluster has to tell, so that the reader never waits for us.
const EVENTS: usize = 64;
/// Between two looks whether the monitor is gone.
const POLL: Duration = Duration::from_millis(10);

/// A start that is waited for.
pub(crate) struct Start {
    /// What it is called in an error.
    pub(crate) what: &'static str,
    /// How long it may take.
    pub(crate) timeout: Duration,
    /// Where logs are if the monitor does not say.
    pub(crate) logs: PathBuf,
}

/// A monitor, for as long as its cluster is wanted.
#[derive(Debug)]
pub(crate) struct Lifeline {
    monitor: Child,
    pipe: Option<ChildStdin>,
    /// Whether the logs are worth keeping if nothing bad happens from now on.
    pub(crate) keep_logs: bool,
}

impl Lifeline {
    /// Starts a monitor; what it tells comes through the channel.
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

    /// Waits until an event says that what was ordered is ready, and returns it with its folder. What fails, or takes too
    /// long, is ended.
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
            let mut reason = String::from("its monitor ended without a word");
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

    /// Lets go and waits until the cluster is gone.
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
            // A monitor that is gone shows in its exit status.
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

/// The `testbed` program: named by `PLUMB_TESTBED`, or the running program itself, or beside it. A test's program is
/// in a folder below the one that programs are in.
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
