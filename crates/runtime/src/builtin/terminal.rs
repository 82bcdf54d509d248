//! Our end of a terminal.

use std::io;
use std::os::fd::OwnedFd;

use rustix::termios::{Winsize, tcsetwinsize};
use tokio::net::unix::pipe;

use crate::error::{Error, Result};
use crate::execution::{Resizer, TerminalSize};

/// Our end of a terminal.
pub(super) struct Terminal {
    /// The input of the terminal.
    pub(super) keyboard: pipe::Sender,
    /// The side from which the output is read. When the other side is closed, reads fail.
    pub(super) screen: pipe::Receiver,
    /// Resizes the terminal.
    pub(super) resize: Resizer,
}

impl Terminal {
    /// That of which this is our end, which must not block.
    pub(super) fn new(ours: OwnedFd) -> Result<Self> {
        new(ours).map_err(|error| Error::io("using a terminal", &error))
    }
}

fn new(ours: OwnedFd) -> io::Result<Terminal> {
    let own = ours.try_clone()?;
    let resize = move |TerminalSize { columns, rows }| {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&own, size).map_err(|errno| Error::io("resizing the terminal", &errno.into()))
    };
    Ok(Terminal {
        // It is no pipe, but can be polled like one.
        keyboard: pipe::Sender::from_owned_fd_unchecked(ours.try_clone()?)?,
        screen: pipe::Receiver::from_owned_fd_unchecked(ours)?,
        resize: Box::new(resize),
    })
}
