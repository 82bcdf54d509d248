//! One command, from its start to how it ended.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{FutureExt as _, Sink, SinkExt as _, StreamExt as _};
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

use super::handshake::Protocol;

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
        let Execution { stdin, stdout, stderr, resize, ended } =
            match self.runtime.exec(&self.id, self.request).await {
                Ok(execution) => execution,
                Err(error) => return finish(&mut to_client, &not_run(&error)).await,
            };
        let mut inputs = Inputs { stdin, resize, protocol: self.protocol };
        let listen = async {
            while let Some(Ok(message)) = from_client.next().await {
                match message {
                    Message::Binary(bytes) => inputs.take(&bytes).await,
                    Message::Close(_) => return,
                    _ => {}
                }
            }
        };
        let talk = async {
            let (sender, mut messages) = mpsc::channel::<Message>(4);
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
                    to_client.send(message).await?;
                }
                Ok::<_, tokio_tungstenite::tungstenite::Error>(())
            };
            let all = tokio::try_join!(command, stdout.map(Ok), stderr.map(Ok), deliver);
            if let Ok((outcome, ..)) = all {
                let status = outcome.map_or_else(|error| not_run(&error), exited);
                finish(&mut to_client, &status).await;
            }
        };
        tokio::select! {
            () = talk => {}
            () = listen => {}
        }
    }
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
            Some((&CLOSE, [STDIN])) if self.protocol == Protocol::V5 => self.stdin = None,
            _ => {}
        }
    }
}

/// Passes on what a command prints until it is at its end.
async fn pump(
    channel: u8,
    from: Option<Box<dyn AsyncRead + Send + Unpin>>,
    sender: mpsc::Sender<Message>,
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
                if sender.send(Message::Binary(piece.freeze())).await.is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

/// Sends the status, and closes the connection.
async fn finish(to_client: &mut (impl Sink<Message> + Unpin), status: &Value) {
    let mut message = vec![ERROR];
    message.extend(serde_json::to_vec(status).unwrap_or_default());
    // The client may have disconnected.
    if to_client.send(Message::Binary(Bytes::from(message))).await.is_ok() {
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
