//! Child processes: what they print and how they end, in time.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use plumb_testkit::TIMEOUT;

/// The lines that a process prints. It must print each of them in time.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    pub(crate) fn of(output: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        // It ends with the process, or with the first line that is not wanted any more.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self(lines)
    }
}

impl Iterator for Lines {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        match self.0.recv_timeout(TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line within {TIMEOUT:?}"),
        }
    }
}

/// The first line that a process prints; an empty one if it ends without any. It is killed if it prints none in time.
pub(crate) fn first_line(process: &mut Child) -> String {
    let Lines(lines) = Lines::of(process.stdout.take().unwrap());
    match lines.recv_timeout(TIMEOUT) {
        Ok(line) => line,
        Err(RecvTimeoutError::Disconnected) => String::new(),
        Err(RecvTimeoutError::Timeout) => {
            kill(process);
            panic!("no line within {TIMEOUT:?}");
        }
    }
}

/// Waits until a process has ended, and kills it if it has not in time.
pub(crate) fn ended(process: &mut Child) -> ExitStatus {
    ended_within(process, TIMEOUT).unwrap_or_else(|| {
        kill(process);
        panic!("it has not ended within {TIMEOUT:?}");
    })
}

/// Waits until a process has ended; `None` if it has not within a time.
pub(crate) fn ended_within(process: &mut Child, time: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + time;
    loop {
        let status = process.try_wait().unwrap();
        if status.is_some() || Instant::now() > deadline {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills a process, and waits until the kernel has ended it.
pub(crate) fn kill(process: &mut Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}
