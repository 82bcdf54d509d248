//! Standard output and standard error, either of which may be closed at any time: `plumb status | head`, or `plumb up` in a
//! terminal that is gone.
//!
//! Output without a reader is no failure. A command that prints a result ends with [`OutputClosed`], which `main` takes for
//! success; a process whose work goes on prints with `announce!` and `say!`, which go on without output. The macros of the
//! standard library panic instead, so clippy refuses them in this program.

use std::fmt;
use std::io::{ErrorKind, Write as _};

use anyhow::Context as _;

/// Writes a line to standard output; nothing if it is closed.
#[macro_export]
macro_rules! announce {
    ($($line:tt)*) => { $crate::output::announce(&format!($($line)*)) };
}

/// Writes a line to standard error; nothing if it is closed.
#[macro_export]
macro_rules! say {
    ($($line:tt)*) => { $crate::output::say(&format!($($line)*)) };
}

/// What `announce!` does.
pub fn announce(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// What `say!` does.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// The reader of standard output closed it, as `head` does when it has enough.
#[derive(Clone, Copy, Debug)]
pub struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is closed")
    }
}

/// Writes to standard output. The error is [`OutputClosed`] if its reader has closed it.
pub fn write_out(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context(OutputClosed))
        }
        written => written.context("writing to standard output"),
    }
}
