//! Runs a fetching or building tool: its output is counted as progress and its last lines kept for the error.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitStatus, Stdio};

use crate::error::{Error, IoContext as _};

/// How much of a tool's output an error carries.
const KEPT_LINES: usize = 20;

/// How a tool ended.
pub(super) struct Outcome {
    pub(super) status: ExitStatus,
    /// The last lines of its standard error.
    pub(super) tail: String,
}

impl Outcome {
    /// The error for a tool that failed for reasons of its own.
    pub(super) fn failure(self, what: impl Into<String>) -> Error {
        Error::Tool { what: what.into(), status: self.status.to_string(), detail: self.tail }
    }
}

/// Runs `command` to its end; `on_line` sees each line of its standard error with its number.
pub(super) fn run(command: &mut Command, mut on_line: impl FnMut(usize, &str)) -> Result<Outcome, Error> {
    let program = command.get_program().to_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .doing("run", &program)?;
    let mut tail = VecDeque::with_capacity(KEPT_LINES);
    if let Some(stderr) = child.stderr.take() {
        for (number, line) in BufReader::new(stderr).split(b'\n').enumerate() {
            let line = line.doing("read the output of", &program)?;
            let line = String::from_utf8_lossy(&line).into_owned();
            on_line(number + 1, &line);
            if tail.len() == KEPT_LINES {
                tail.pop_front();
            }
            tail.push_back(line);
        }
    }
    let status = child.wait().doing("wait for", &program)?;
    Ok(Outcome { status, tail: Vec::from(tail).join("\n") })
}

/// Whether a program of that name is on the PATH.
pub(super) fn on_path(program: &str) -> bool {
    crate::assets::on_path(program).is_some()
}
