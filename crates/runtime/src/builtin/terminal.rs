//! Our end of a terminal.

use std::io;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::net::unix::pipe;

use crate::error::{Error, Result};
use crate::execution::{Resizer, TerminalSize};

/// Our end of a terminal, and the other one.
pub(super) struct Terminal {
    /// What is written here is typed.
    pub(super) keyboard: pipe::Sender,
    /// The side from which the output is read. When the other side is closed, reads fail.
    pub(super) screen: pipe::Receiver,
    /// Makes it larger or smaller.
    pub(super) resize: Resizer,
    /// The side of the command.
    pub(super) other: OwnedFd,
}

impl Terminal {
    /// A new terminal.
    pub(super) fn open() -> Result<Self> {
        open().map_err(|error| Error::io("making a terminal", &error))
    }
}

fn open() -> io::Result<Terminal> {
    let pty = nix::pty::openpty(None, None)?;
    for end in [&pty.master, &pty.slave] {
        // Other programs that this process starts are not to hold it open.
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    fcntl(&pty.master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK | OFlag::O_RDWR))?;
    let own = pty.master.try_clone()?;
    let resize = move |TerminalSize { columns, rows }| {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&own, size).map_err(|errno| Error::io("resizing the terminal", &errno.into()))
    };
    Ok(Terminal {
        // It is no pipe, but is waited for like one.
        keyboard: pipe::Sender::from_owned_fd_unchecked(pty.master.try_clone()?)?,
        screen: pipe::Receiver::from_owned_fd_unchecked(pty.master)?,
        resize: Box::new(resize),
        other: pty.slave,
    })
}
