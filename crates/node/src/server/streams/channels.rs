//! Commands and containers over a `WebSocket`: each message begins with the number of its channel.
//!
//! ```text
//!   client ── 0 stdin, 4 resize ──▶ the command in the container
//!          ◀─ 1 stdout, 2 stderr, 3 how it ended
//! ```

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{FutureExt as _, Sink, SinkExt as _, Stream, StreamExt as _};
use plumb_runtime::{Execution, Resizer, TerminalSize};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::command::{Task, Version};
use super::status::{self, exited, failed};

/// The channels of the streams, by the number that their messages begin with.
const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Begins the message that ends a channel, in the fifth version.
const CLOSE: u8 = 255;

/// How much is read at a time.
const PIECE: usize = 32 << 10;
/// Messages for a command that does not read them yet. Beyond them the client is not read any more, and it is not noticed that it
/// disconnects.
const READ_AHEAD: usize = 16;
/// A background process of a command may hold its output open. Once the command has ended and no output came for this
/// time, the stream ends.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How long a client may take to read the rest and to close the connection.
pub(super) const CLOSING: Duration = Duration::from_secs(30);

/// A subprotocol: how input and output are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Protocol {
    pub(super) version: Version,
    /// Whether messages are text, with their data in base64.
    pub(super) base64: bool,
}

impl Protocol {
    /// The one with this name; a client that offered none gets the first version.
    pub(super) fn named(all: &[(&str, Version, bool)], name: &str) -> Self {
        let known = all.iter().find(|(own, ..)| *own == name);
        let (version, base64) =
            known.map_or((Version::V1, false), |(_, version, base64)| (*version, *base64));
        Self { version, base64 }
    }
}

/// Runs a command until it has ended, or until the client is gone: then the command is ended.
pub(super) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    task: Task,
    protocol: Protocol,
    socket: WebSocketStream<S>,
) {
    let (mut to_client, mut from_client) = socket.split();
    let Execution { stdin, stdout, stderr, resize, ended } = match task.start().await {
        Ok(execution) => execution,
        Err(error) => {
            finish(&mut to_client, protocol, &failed(task.what.doing(), &error)).await;
            return closed(&mut from_client).await;
        }
    };
    let (typed, to_type) = mpsc::channel(READ_AHEAD);
    let mut inputs = Inputs { stdin: Some(typed), resize, protocol };
    let listen = async {
        while let Some(Ok(message)) = from_client.next().await {
            if let Message::Close(_) = message {
                return;
            }
            if let Some(bytes) = decoded(protocol.base64, message) {
                inputs.take(bytes).await;
            }
        }
    };
    let talk = async {
        let (sender, messages) = mpsc::channel::<Bytes>(4);
        let deliver = async {
            let mut messages = messages;
            while let Some(message) = messages.recv().await {
                to_client.send(encoded(protocol.base64, message)).await?;
            }
            Ok::<_, tokio_tungstenite::tungstenite::Error>(())
        };
        let all = tokio::try_join!(outputs(stdout, stderr, ended, sender).map(Ok), deliver);
        if let Ok((outcome, ())) = all {
            let status = outcome.map_or_else(|error| failed(task.what.doing(), &error), exited);
            finish(&mut to_client, protocol, &status).await;
        }
    };
    tokio::select! {
        () = talk => {}
        () = listen => return,
        () = write_stdin(stdin, to_type) => {}
    }
    closed(&mut from_client).await;
}

/// Passes on all that a command prints, and returns how it ended once that is done. Each piece begins with its channel.
pub(super) async fn outputs(
    stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    ended: impl Future<Output = plumb_runtime::Result<i32>>,
    sender: mpsc::Sender<Bytes>,
) -> plumb_runtime::Result<i32> {
    let (say_over, over) = watch::channel(false);
    let command = async {
        let code = ended.await;
        say_over.send_replace(true);
        code
    };
    let stdout = pump(STDOUT, stdout, sender.clone(), over.clone());
    let stderr = pump(STDERR, stderr, sender, over);
    tokio::join!(command, stdout, stderr).0
}

/// Copies standard input to its end. Never returns: the end of the command does not depend on it.
async fn write_stdin(stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>, mut typed: mpsc::Receiver<Bytes>) {
    if let Some(mut stdin) = stdin {
        while let Some(bytes) = typed.recv().await {
            if stdin.write_all(&bytes).await.is_err() || stdin.flush().await.is_err() {
                // It does not read any more, which does not end the command.
                break;
            }
        }
        let _ = stdin.shutdown().await;
    }
    drop(typed);
    std::future::pending::<()>().await;
}

/// Reads until the client has closed the connection. If it were dropped while the client still sends, as pings, the kernel
/// would reset it, and the client would lose data that it has not read yet.
async fn closed(from_client: &mut (impl Stream + Unpin)) {
    let closing = async { while from_client.next().await.is_some() {} };
    // A client that does not close it loses no more than its own time.
    let _ = tokio::time::timeout(CLOSING, closing).await;
}

/// Input of the command.
struct Inputs {
    stdin: Option<mpsc::Sender<Bytes>>,
    resize: Option<Resizer>,
    protocol: Protocol,
}

/// The size of a client's terminal.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Size {
    width: u16,
    height: u16,
}

impl Size {
    /// Resizes a terminal to the size that a client sends.
    pub(super) fn apply(&self, resize: &Resizer) {
        if let Err(error) = resize(TerminalSize { columns: self.width, rows: self.height }) {
            tracing::debug!(%error, "a terminal was not resized");
        }
    }
}

impl Inputs {
    async fn take(&mut self, mut message: Bytes) {
        if message.is_empty() {
            return;
        }
        let channel = message.split_to(1);
        match channel[0] {
            STDIN => {
                if let Some(stdin) = &self.stdin
                    && stdin.send(message).await.is_err()
                {
                    self.stdin = None;
                }
            }
            RESIZE => {
                if let (Some(resize), Ok(size)) = (&self.resize, serde_json::from_slice::<Size>(&message)) {
                    size.apply(resize);
                }
            }
            CLOSE if self.protocol.version == Version::V5 && message[..] == [STDIN] => self.stdin = None,
            _ => {}
        }
    }
}

/// Copies the output of a command to its end.
async fn pump(
    channel: u8,
    from: Option<Box<dyn AsyncRead + Send + Unpin>>,
    sender: mpsc::Sender<Bytes>,
    mut over: watch::Receiver<bool>,
) {
    let Some(mut from) = from else { return };
    loop {
        let mut piece = BytesMut::with_capacity(PIECE + 1);
        piece.put_u8(channel);
        let silence = async {
            // The sender lives as long as this session.
            let _ = over.wait_for(|over| *over).await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        let read = tokio::select! {
            read = from.read_buf(&mut piece) => read,
            () = silence => return,
        };
        match read {
            Ok(length) if length > 0 => {
                if sender.send(piece.freeze()).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

/// How a subprotocol encodes a channel's number and data.
pub(super) fn encoded(base64: bool, message: Bytes) -> Message {
    match message.split_first() {
        Some((channel, data)) if base64 => {
            let channel = char::from(b'0'.saturating_add(*channel));
            Message::text(format!("{channel}{}", BASE64_STANDARD.encode(data)))
        }
        _ => Message::Binary(message),
    }
}

/// The channel's number and data of a client's message; `None` for control frames and for invalid base64.
///
/// The negotiated subprotocol decides how the data is encoded, not the opcode of the frame: Python's client sends a
/// `str` as a text frame in `v5.channel.k8s.io` too.
pub(super) fn decoded(base64: bool, message: Message) -> Option<Bytes> {
    if !message.is_binary() && !message.is_text() {
        return None;
    }
    let data = message.into_data();
    if !base64 {
        return Some(data);
    }
    let (channel, data) = data.split_first()?;
    let mut message = vec![channel.checked_sub(b'0')?];
    BASE64_STANDARD.decode_vec(data, &mut message).ok()?;
    Some(message.into())
}

/// Sends the status, and closes the connection.
async fn finish(to_client: &mut (impl Sink<Message> + Unpin), protocol: Protocol, status: &Value) {
    let mut message = vec![ERROR];
    message.extend(status::encoded(protocol.version, status));
    // The client may have disconnected.
    if message.len() == 1 || to_client.send(encoded(protocol.base64, message.into())).await.is_ok() {
        // Clients treat a close without a code as an error.
        let normally = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        let _ = to_client.send(Message::Close(Some(normally))).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use std::sync::Arc;

    use plumb_runtime::{ExecRequest, Virtual, VirtualConfig};
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::super::command::StreamRequest;
    use super::*;

    const V5: Protocol = Protocol { version: Version::V5, base64: false };

    #[test]
    fn messages_are_binary_or_base64() {
        let message = Bytes::from_static(b"\x01hello");
        assert_eq!(encoded(false, message.clone()), Message::Binary(message.clone()));
        assert_eq!(encoded(true, message.clone()), Message::text("1aGVsbG8="));
        for invalid in ["", "1!", "é"] {
            assert_eq!(decoded(true, Message::text(invalid)), None, "{invalid}");
        }
        assert_eq!(decoded(false, Message::Ping(message)), None);
    }

    #[test]
    fn the_subprotocol_decides_how_data_is_encoded_and_not_the_opcode() {
        let hello = Some(Bytes::from_static(b"\0hello"));
        for (base64, data) in [(false, "\0hello"), (true, "0aGVsbG8=")] {
            assert_eq!(decoded(base64, Message::text(data)), hello, "a text frame, base64: {base64}");
            let binary = Message::binary(data.as_bytes().to_vec());
            assert_eq!(decoded(base64, binary), hello, "a binary frame, base64: {base64}");
        }
    }

    #[tokio::test]
    async fn a_connection_is_not_dropped_before_the_client_has_closed_it() {
        let config = VirtualConfig { now: jiff::Timestamp::UNIX_EPOCH, pod_network: Ipv4Addr::LOCALHOST };
        let request = ExecRequest { command: vec!["true".into()], stdout: true, ..ExecRequest::default() };
        let task = Task {
            runtime: Arc::new(Virtual::new(config)),
            id: "missing".into(),
            what: StreamRequest::Exec(request),
        };
        let (server, client) = tokio::io::duplex(1 << 16);
        let server = WebSocketStream::from_raw_socket(server, Role::Server, None).await;
        let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let running = tokio::spawn(run(task, V5, server));
        let status = client.next().await.unwrap().unwrap();
        assert_eq!(status.into_data()[0], ERROR);
        for _ in 0..10 {
            client.send(Message::Ping(Bytes::new())).await.unwrap();
            tokio::task::yield_now().await;
        }
        while let Some(message) = client.next().await {
            assert!(matches!(message.unwrap(), Message::Pong(_) | Message::Close(_)));
        }
        drop(client);
        running.await.unwrap();
    }
}
