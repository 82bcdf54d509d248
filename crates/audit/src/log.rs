//! The log: a thread writes lines from a bounded buffer to a file, or to standard output.

mod backups;
mod file;
mod queue;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::auditor::Backend;
use crate::metrics::Metrics;
use file::RotatingFile;
use queue::Queue;

/// The most bytes of lines that wait to be written.
const BUFFER: usize = 64 << 20;
/// What stands for standard output instead of a path.
const STDOUT: &str = "-";

/// The clock that names of rotated files are made by.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Where the log is, and for how long it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The file, or `-` for standard output.
    pub path: PathBuf,
    /// The most bytes of the file before it is rotated. At 0 it is never rotated.
    pub max_size: u64,
    /// How many rotated files are kept. At 0 all are.
    pub max_backups: usize,
    /// For how many days rotated files are kept. At 0 it is for ever.
    pub max_age: u32,
    /// Whether rotated files are compressed.
    pub compress: bool,
    /// The most bytes of events that wait to be written.
    pub buffer: usize,
}

impl LogOptions {
    /// A log that is never rotated.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { path, max_size: 0, max_backups: 0, max_age: 0, compress: false, buffer: BUFFER }
    }
}

/// The log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the audit log {}: {error}", .path.display())]
pub struct OpenLogError {
    path: PathBuf,
    error: io::Error,
}

/// The log.
///
/// A request copies its lines into the buffer, and never waits for the file. If the file is slower than the requests for so
/// long that the buffer is full, events are dropped and counted.
pub struct LogBackend {
    queue: Arc<Queue>,
    metrics: Arc<Metrics>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl LogBackend {
    /// Opens the log. The file and its directory are created if they are missing, and only its owner can read the file.
    pub fn open(options: LogOptions, clock: Clock, metrics: Arc<Metrics>) -> Result<Self, OpenLogError> {
        let path = options.path.clone();
        let unopened = |error| OpenLogError { path: path.clone(), error };
        let queue = Arc::new(Queue::new(options.buffer));
        let output = if path == Path::new(STDOUT) {
            Output::Stdout
        } else {
            Output::File(RotatingFile::open(options, clock).map_err(unopened)?)
        };
        let writer = Writer { output, metrics: Arc::clone(&metrics), failing: false };
        let lines = Arc::clone(&queue);
        let thread = thread::Builder::new().name("audit-log".to_owned());
        let writer = thread.spawn(move || writer.run(&lines)).map_err(unopened)?;
        Ok(Self { queue, metrics, writer: Mutex::new(Some(writer)) })
    }
}

impl Backend for LogBackend {
    fn process(&self, line: &[u8]) {
        if !self.queue.push(line) {
            self.metrics.dropped.fetch_add(1, Relaxed);
        }
    }

    fn close(&self) {
        self.queue.close();
        let writer = self.writer.lock().take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the thread that writes the audit log panicked");
        }
    }
}

impl Drop for LogBackend {
    fn drop(&mut self) {
        self.close();
    }
}

enum Output {
    Stdout,
    File(RotatingFile),
}

/// The thread that writes.
struct Writer {
    output: Output,
    metrics: Arc<Metrics>,
    /// Whether the last write failed. A full disk is logged once, and not for every event.
    failing: bool,
}

impl Writer {
    /// Writes all lines until the queue is closed.
    fn run(mut self, queue: &Queue) {
        while let Some(lines) = queue.take() {
            let (lost, error) = match self.write(&lines) {
                Ok(()) => {
                    if std::mem::take(&mut self.failing) {
                        tracing::info!("the audit log can be written again");
                    }
                    continue;
                }
                Err(failed) => failed,
            };
            self.metrics.unwritten.fetch_add(lost, Relaxed);
            if !std::mem::replace(&mut self.failing, true) {
                tracing::error!(%error, events = lost, "cannot write the audit log: its events are lost");
            }
        }
        if let Output::File(file) = self.output {
            file.close();
        }
    }

    /// Writes lines; else the number of those that were lost, and why.
    fn write(&mut self, lines: &[u8]) -> Result<(), (u64, io::Error)> {
        match &mut self.output {
            Output::Stdout => {
                let mut stdout = io::stdout().lock();
                let written = stdout.write_all(lines).and_then(|()| stdout.flush());
                written.map_err(|error| (count(lines), error))
            }
            Output::File(file) => file.write(lines),
        }
    }
}

/// The number of lines.
fn count(lines: &[u8]) -> u64 {
    lines.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}
