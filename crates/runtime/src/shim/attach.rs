//! Clients that are attached to the container's standard streams, and its standard input.
//!
//! A client that does not read holds the container up once [`MOST_UNSENT`] bytes wait for it, since no output may be lost; after
//! [`STALL_TIMEOUT`] without any progress it is disconnected, so that it cannot do so for ever.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use rustix::termios::{Winsize, tcsetwinsize};

use super::protocol::{Kind, LONGEST_PIECE, PIECE_HEAD, piece, piece_head};

/// The output that may wait for a client.
const MOST_UNSENT: usize = 64 << 10;
/// The input that may wait for the container.
const MOST_INPUT: usize = 64 << 10;
/// How long a client may take no output that waits for it.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// More clients at once are refused.
const CLIENTS: usize = 16;
/// How long the last output may take to be sent after the container has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Which streams a client wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
}

/// A client.
struct Client {
    stream: UnixStream,
    wanted: Wanted,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// Since when it has not received any of the data that waits for it.
    stalled: Option<Instant>,
    /// Disconnected once everything was sent.
    leaving: bool,
}

/// The container's standard input.
pub(super) struct Input {
    fd: OwnedFd,
    unwritten: Vec<u8>,
    /// Closed once everything was written.
    closing: bool,
    /// Closed with the first client.
    once: bool,
    terminal: bool,
}

impl Input {
    /// The end of a pipe, or of a terminal. `once` is the container's `stdinOnce`.
    pub(super) fn new(fd: OwnedFd, once: bool, terminal: bool) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self { fd, unwritten: Vec::new(), closing: false, once, terminal })
    }
}

/// The container's input, and all clients.
#[derive(Default)]
pub(super) struct Attached {
    input: Option<Input>,
    clients: Vec<Client>,
}

impl Attached {
    pub(super) fn new(input: Option<Input>) -> Self {
        Self { input, clients: Vec::new() }
    }

    /// Adds a client, which was answered already.
    pub(super) fn add(&mut self, stream: UnixStream, wanted: Wanted) {
        let (received, unsent) = (Vec::new(), Vec::new());
        self.clients.push(Client { stream, wanted, received, unsent, stalled: None, leaving: false });
    }

    pub(super) fn is_full(&self) -> bool {
        self.clients.len() >= CLIENTS
    }

    /// Whether the container's output may be read: some client may not have received the data that was read before.
    pub(super) fn takes_output(&self) -> bool {
        self.clients.iter().all(|client| client.unsent.len() < MOST_UNSENT)
    }

    /// How long until the next client is disconnected for not reading.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let since = self.clients.iter().filter_map(|client| client.stalled).min()?;
        Some(STALL_TIMEOUT.saturating_sub(since.elapsed()))
    }

    /// The descriptors to poll: each client, and the input if data waits to be written.
    pub(super) fn polled(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let input = self.input.iter().filter(|input| !input.unwritten.is_empty());
        let input = input.map(|input| (input.fd.as_fd(), PollFlags::POLLOUT));
        let takes = self.takes_input();
        let clients = self.clients.iter().map(move |client| {
            let mut flags = PollFlags::empty();
            // Further data from it is not read before there is space for it.
            flags.set(PollFlags::POLLIN, takes || !client.wanted.stdin);
            flags.set(PollFlags::POLLOUT, !client.unsent.is_empty());
            (client.stream.as_fd(), flags)
        });
        clients.chain(input)
    }

    fn takes_input(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.unwritten.len() < MOST_INPUT)
    }

    /// Sends the output of the container to all clients.
    pub(super) fn output(&mut self, stream: &str, bytes: &[u8]) {
        let is_error = stream == "stderr";
        let kind = if is_error { Kind::Stderr } else { Kind::Stdout };
        for client in &mut self.clients {
            let wanted = if is_error { client.wanted.stderr } else { client.wanted.stdout };
            if wanted && !client.leaving {
                for part in bytes.chunks(LONGEST_PIECE) {
                    client.unsent.extend(piece(kind, part));
                }
            }
        }
    }

    /// Sends and receives without blocking. `ready` are the events of the [`polled`](Self::polled) descriptors.
    pub(super) fn turn(&mut self, ready: &[PollFlags]) {
        let mut remaining = Vec::new();
        for (index, mut client) in std::mem::take(&mut self.clients).into_iter().enumerate() {
            // Further data of a disconnected client is dropped.
            let gone = ready
                .get(index)
                .is_some_and(|ready| ready.intersects(PollFlags::POLLHUP | PollFlags::POLLERR));
            // As in `polled`: available data is received, or the poll would return at once, again and again.
            let received = if self.takes_input() || !client.wanted.stdin { client.receive() } else { !gone };
            let connected = client.send() && received;
            let goes_on = self.take_pieces(&mut client);
            let progresses = client.stalled.is_none_or(|since| since.elapsed() < STALL_TIMEOUT);
            if connected && goes_on && progresses && !(client.leaving && client.unsent.is_empty()) {
                remaining.push(client);
            } else if client.wanted.stdin {
                self.end_of_input();
            }
        }
        self.clients.extend(remaining);
        self.write_input();
    }

    /// Deals with whole pieces that a client has sent. False if it sent anything else.
    fn take_pieces(&mut self, client: &mut Client) -> bool {
        let mut from = 0;
        let valid = loop {
            let Some((head, rest)) =
                client.received.get(from..).and_then(|left| left.split_first_chunk::<PIECE_HEAD>())
            else {
                break true;
            };
            let Some((kind, length)) = piece_head(*head) else { break false };
            let Some(data) = rest.get(..length) else { break true };
            match kind {
                Kind::Stdin if !client.wanted.stdin => {}
                Kind::Stdin if data.is_empty() => {
                    client.wanted.stdin = false;
                    client.leaving = !self.end_of_input();
                }
                Kind::Stdin => {
                    if let Some(input) = self.input.as_mut().filter(|input| !input.closing) {
                        input.unwritten.extend(data);
                    }
                }
                Kind::Resize => self.resize(data),
                Kind::Stdout | Kind::Stderr => break false,
            }
            from += PIECE_HEAD + length;
        };
        client.received.drain(..from);
        valid
    }

    /// A client types no more. Whether it stays attached for the output: only where the container's input ends with it.
    fn end_of_input(&mut self) -> bool {
        match &mut self.input {
            Some(input) if input.once && !input.terminal => {
                input.closing = true;
                true
            }
            // It ended with another client.
            None => true,
            Some(_) => false,
        }
    }

    fn write_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        let mut written = 0;
        let mut broken = false;
        while written < input.unwritten.len() {
            match nix::unistd::write(&input.fd, &input.unwritten[written..]) {
                Ok(length) => written += length,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                // The container does not read any more.
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        input.unwritten.drain(..written);
        if broken || (input.closing && input.unwritten.is_empty()) {
            self.input = None;
        }
    }

    fn resize(&self, data: &[u8]) {
        let (Some(input), &[a, b, c, d]) = (&self.input, data) else { return };
        if input.terminal {
            let (columns, rows) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
            let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            // A terminal of another size still works.
            let _ = tcsetwinsize(&input.fd, size);
        }
    }

    /// Sends the remaining data, and disconnects all clients.
    pub(super) fn end(self) {
        for mut client in self.clients {
            let blocking = client.stream.set_nonblocking(false);
            if blocking.and_then(|()| client.stream.set_write_timeout(Some(LAST_WORDS))).is_ok() {
                // One that does not read loses the rest.
                let _ = client.stream.write_all(&client.unsent);
            }
        }
    }
}

impl Client {
    /// Sends what waits for it; false if it is gone.
    fn send(&mut self) -> bool {
        let mut sent = 0;
        let connected = loop {
            if sent == self.unsent.len() {
                break true;
            }
            match self.stream.write(&self.unsent[sent..]) {
                Ok(length) => sent += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error.kind() == io::ErrorKind::WouldBlock,
            }
        };
        self.unsent.drain(..sent);
        self.stalled = match (self.unsent.is_empty(), sent) {
            (true, _) => None,
            (false, 0) => self.stalled.or_else(|| Some(Instant::now())),
            (false, _) => Some(Instant::now()),
        };
        connected
    }

    /// Reads what came from it; false if it is gone.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 4 << 10];
        while self.received.len() < LONGEST_PIECE + PIECE_HEAD {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => self.received.extend(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}
