//! One command, from its start to how it ended.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{FutureExt as _, Sink, SinkExt as _, Stream, StreamExt as _};
use plumb_runtime::types::ContainerId;
use plumb_runtime::{Error, ExecRequest, Execution, Resizer, Runtime, TerminalSize};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::handshake::{Protocol, Version};

/// What is typed and printed, by the number that its messages begin with.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Begins the message that ends a channel, in the fifth version.
const CLOSE: u8 = 255;

/// How much is read at a time.
const PIECE: usize = 32 << 10;
/// What a command leaves running may hold its output open. Once the command has ended, and nothing came for as long as
/// this, nothing more is waited for.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How long a client may take to read the rest and to close the connection.
const CLOSING: Duration = Duration::from_secs(30);

/// A command that is to run.
pub(super) struct Session {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) id: ContainerId,
    pub(super) protocol: Protocol,
    pub(super) request: ExecRequest,
}

impl Session {
    /// Runs the command until it has ended, or until the client is gone: then the command is ended.
    pub(super) async fn run<S: AsyncRead + AsyncWrite + Unpin>(self, socket: WebSocketStream<S>) {
        let (mut to_client, mut from_client) = socket.split();
        let streaming = self.runtime.exec(&self.id, self.request).await;
        let execution = streaming.and_then(|streaming| {
            let elsewhere = || Error::Unsupported("the runtime streams by a URL".to_owned());
            streaming.streams().ok_or_else(elsewhere)
        });
        let Execution { stdin, stdout, stderr, resize, ended } = match execution {
            Ok(execution) => execution,
            Err(error) => {
                finish(&mut to_client, self.protocol, &not_run(&error)).await;
                return closed(&mut from_client).await;
            }
        };
        let mut inputs = Inputs { stdin, resize, protocol: self.protocol };
        let listen = async {
            while let Some(Ok(message)) = from_client.next().await {
                match message {
                    Message::Binary(bytes) => inputs.take(&bytes).await,
                    Message::Text(text) => {
                        if let Some(bytes) = decoded(&text) {
                            inputs.take(&bytes).await;
                        }
                    }
                    Message::Close(_) => return,
                    _ => {}
                }
            }
        };
        let talk = async {
            let (sender, mut messages) = mpsc::channel::<Bytes>(4);
            let (say_over, over) = watch::channel(false);
            let command = async {
                let code = ended.await;
                say_over.send_replace(true);
                Ok(code)
            };
            let stdout = pump(STDOUT, stdout, sender.clone(), over.clone());
            let stderr = pump(STDERR, stderr, sender, over);
            let deliver = async {
                while let Some(message) = messages.recv().await {
                    to_client.send(encoded(self.protocol, message)).await?;
                }
                Ok::<_, tokio_tungstenite::tungstenite::Error>(())
            };
            let all = tokio::try_join!(command, stdout.map(Ok), stderr.map(Ok), deliver);
            if let Ok((outcome, ..)) = all {
                let status = outcome.map_or_else(|error| not_run(&error), exited);
                finish(&mut to_client, self.protocol, &status).await;
            }
        };
        tokio::select! {
            () = talk => {}
            () = listen => return,
        }
        closed(&mut from_client).await;
    }
}

/// Reads until the client has closed the connection. If it were dropped while the client still sends, as pings, the kernel
/// would reset it, and the client would lose what it has not read yet.
async fn closed(from_client: &mut (impl Stream + Unpin)) {
    let closing = async { while from_client.next().await.is_some() {} };
    // A client that does not close it loses no more than its own time.
    let _ = tokio::time::timeout(CLOSING, closing).await;
}

/// What goes to the command.
struct Inputs {
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    resize: Option<Resizer>,
    protocol: Protocol,
}

/// How large a client's terminal is, as it says so.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

impl Inputs {
    async fn take(&mut self, message: &[u8]) {
        match message.split_first() {
            Some((&STDIN, typed)) => {
                if let Some(stdin) = &mut self.stdin
                    && (stdin.write_all(typed).await.is_err() || stdin.flush().await.is_err())
                {
                    // It does not read any more, which is its own business.
                    self.stdin = None;
                }
            }
            Some((&RESIZE, size)) => {
                if let (Some(resize), Ok(Size { width, height })) =
                    (&self.resize, serde_json::from_slice(size))
                    && let Err(error) = resize(TerminalSize { columns: width, rows: height })
                {
                    tracing::debug!(%error, "a terminal was not resized");
                }
            }
            Some((&CLOSE, [STDIN])) if self.protocol.version == Version::V5 => self.stdin = None,
            _ => {}
        }
    }
}

/// Passes on what a command prints until it is at its end.
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

/// What a subprotocol makes of a channel's number and data.
fn encoded(protocol: Protocol, message: Bytes) -> Message {
    match message.split_first() {
        Some((channel, data)) if protocol.base64 => {
            Message::text(format!("{channel}{}", BASE64_STANDARD.encode(data)))
        }
        _ => Message::Binary(message),
    }
}

/// The channel's number and data of a message in base64.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let channel = text.bytes().next()?.checked_sub(b'0')?;
    let mut message = vec![channel];
    BASE64_STANDARD.decode_vec(text.get(1..)?, &mut message).ok()?;
    Some(message)
}

/// Sends the status, and closes the connection.
async fn finish(to_client: &mut (impl Sink<Message> + Unpin), protocol: Protocol, status: &Value) {
    let mut message = vec![ERROR];
    match (protocol.version, status["message"].as_str()) {
        // It knows of failures only.
        (Version::V1, why) => message.extend(why.unwrap_or_default().bytes()),
        _ => message.extend(serde_json::to_vec(status).unwrap_or_default()),
    }
    // The client may have disconnected.
    if message.len() == 1 || to_client.send(encoded(protocol, message.into())).await.is_ok() {
        // Clients treat a close without a code as an error.
        let normally = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        let _ = to_client.send(Message::Close(Some(normally))).await;
    }
}

/// How a command ended, as a `Status`.
fn exited(code: i32) -> Value {
    if code == 0 {
        return json!({ "metadata": {}, "status": "Success" });
    }
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "reason": "NonZeroExitCode",
        "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
    })
}

/// Why a command did not run, as a `Status`.
fn not_run(error: &Error) -> Value {
    let why = format!("error executing command in container: {error}");
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: {why}"),
        "reason": "InternalError",
        "details": { "causes": [{ "message": why }] },
        "code": 500,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use plumb_runtime::{Virtual, VirtualConfig};
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    #[test]
    fn messages_are_binary_or_base64() {
        let [v5, _, base64, ..] = Protocol::ALL;
        let message = Bytes::from_static(b"\x01hello");
        assert_eq!(encoded(v5, message.clone()), Message::Binary(message.clone()));
        assert_eq!(encoded(base64, message.clone()), Message::text("1aGVsbG8="));
        assert_eq!(decoded("1aGVsbG8=").as_deref(), Some(&*message));
        for invalid in ["", "1!", "é"] {
            assert_eq!(decoded(invalid), None, "{invalid}");
        }
    }

    #[tokio::test]
    async fn a_connection_is_not_dropped_before_the_client_has_closed_it() {
        let config = VirtualConfig { now: jiff::Timestamp::UNIX_EPOCH, pod_network: Ipv4Addr::LOCALHOST };
        let session = Session {
            runtime: Arc::new(Virtual::new(config)),
            id: "missing".into(),
            protocol: Protocol::ALL[0],
            request: ExecRequest { command: vec!["true".into()], stdout: true, ..ExecRequest::default() },
        };
        let (server, client) = tokio::io::duplex(1 << 16);
        let server = WebSocketStream::from_raw_socket(server, Role::Server, None).await;
        let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let running = tokio::spawn(session.run(server));
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
