//! Commands and containers over SPDY: the headers of each stream have its type.

use std::io;
use std::time::Duration;

use plumb_runtime::{AttachRequest, Execution, Resizer};
use plumb_spdy::{Incoming, Reader, Side, Stream, Writer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::channels::{CLOSING, STDERR, STDOUT, Size, outputs};
use super::command::{Task, Version};
use super::status::{self, exited, failed};

/// How long a client may take to open all streams.
const OPENING: Duration = Duration::from_secs(30);
/// The header with the type of a stream.
pub(super) const STREAM_TYPE: &str = "streamtype";
/// The most that is read of one size of a terminal.
const LONGEST_SIZE: usize = 1 << 10;

/// The streams of a client.
#[derive(Default)]
struct Streams {
    error: Option<Stream>,
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
}

impl Streams {
    /// Takes the streams that a client opens, until all have come that are expected.
    async fn take(incoming: &mut Incoming, wanted: AttachRequest, version: Version) -> io::Result<Self> {
        let mut all = Self::default();
        let resizes = wanted.tty && version >= Version::V3;
        while all.error.is_none()
            || (wanted.stdin && all.stdin.is_none())
            || (wanted.stdout && all.stdout.is_none())
            || (wanted.stderr && all.stderr.is_none())
            || (resizes && all.resize.is_none())
        {
            let stream = incoming.recv().await.ok_or(io::ErrorKind::UnexpectedEof)?;
            let own = match stream.headers().get(STREAM_TYPE).unwrap_or_default() {
                "error" => &mut all.error,
                "stdin" => &mut all.stdin,
                "stdout" => &mut all.stdout,
                "stderr" => &mut all.stderr,
                "resize" => &mut all.resize,
                other => return Err(io::Error::other(format!("unexpected stream type: {other:?}"))),
            };
            *own = Some(stream);
        }
        Ok(all)
    }
}

/// Runs a command until it has ended, or until the client is gone: then the command is ended.
pub(super) async fn run(task: Task, version: Version, io: impl AsyncRead + AsyncWrite + Send) {
    let (_handle, incoming, connection) = plumb_spdy::connect(io, Side::Server);
    tokio::select! {
        // The client closes it when it has read how the command ended.
        ended = connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection to a container ended with an error");
            }
        }
        () = serve(task, version, incoming) => {}
    }
}

async fn serve(task: Task, version: Version, mut incoming: Incoming) {
    let streams = match timeout(OPENING, Streams::take(&mut incoming, task.what.streams(), version)).await {
        Ok(Ok(streams)) => streams,
        Ok(Err(error)) => return tracing::debug!(%error, "a client did not open its streams"),
        Err(_) => return tracing::debug!("a client took too long to open its streams"),
    };
    // Streams beyond these would be buffered, and never read.
    drop(incoming);
    let half = |stream: Option<Stream>| stream.map(Stream::split).unzip();
    let (_, mut error) = half(streams.error);
    let (typed, _typed) = half(streams.stdin);
    let (_, mut out) = half(streams.stdout);
    let (_, mut err) = half(streams.stderr);
    let (sizes, _sizes) = half(streams.resize);
    let outcome = match task.start().await {
        Ok(Execution { stdin, stdout, stderr, resize, ended }) => {
            let (sender, pieces) = mpsc::channel(4);
            let printed = async {
                tokio::join!(outputs(stdout, stderr, ended, sender), deliver(pieces, &mut out, &mut err))
            };
            let inputs = async { tokio::join!(write_stdin(typed, stdin), resizes(sizes, resize)) };
            tokio::select! {
                (outcome, ()) = printed => outcome,
                never = inputs => match never.0 {},
            }
        }
        Err(error) => Err(error),
    };
    let status = outcome.map_or_else(|error| failed(task.what.doing(), &error), exited);
    for writer in [&mut out, &mut err].into_iter().flatten() {
        // The client may have disconnected.
        let _ = writer.shutdown().await;
    }
    if let Some(error) = &mut error {
        let _ = error.write_all(&status::encoded(version, &status)).await;
        let _ = error.shutdown().await;
    }
    // Data in flight is lost with the connection, so the client closes it.
    tokio::time::sleep(CLOSING).await;
}

/// Sends the output of a command, each chunk on the stream whose number precedes it.
async fn deliver(
    mut pieces: mpsc::Receiver<bytes::Bytes>,
    out: &mut Option<Writer>,
    err: &mut Option<Writer>,
) {
    while let Some(piece) = pieces.recv().await {
        let to = match piece.first() {
            Some(&STDOUT) => &mut *out,
            Some(&STDERR) => &mut *err,
            _ => continue,
        };
        if let Some(writer) = to
            && writer.write_all(&piece[1..]).await.is_err()
        {
            // The client does not want it any more.
            *to = None;
        }
    }
}

/// Copies standard input to its end. Never returns: the end of the command does not depend on it.
async fn write_stdin(
    typed: Option<Reader>,
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
) -> std::convert::Infallible {
    if let (Some(mut typed), Some(mut stdin)) = (typed, stdin) {
        // It may not read any more, which does not end the command.
        let _ = tokio::io::copy(&mut typed, &mut stdin).await;
        let _ = stdin.shutdown().await;
    }
    std::future::pending().await
}

/// Resizes the terminal to each size that the client sends: one JSON document after the other.
async fn resizes(sizes: Option<Reader>, resize: Option<Resizer>) {
    let (Some(mut sizes), Some(resize)) = (sizes, resize) else { return };
    let mut received = Vec::new();
    while let Ok(1..) = sizes.read_buf(&mut received).await {
        let mut documents = serde_json::Deserializer::from_slice(&received).into_iter::<Size>();
        while let Some(Ok(size)) = documents.next() {
            size.apply(&resize);
        }
        let read = documents.byte_offset();
        received.drain(..read);
        if received.len() > LONGEST_SIZE {
            return;
        }
    }
}
