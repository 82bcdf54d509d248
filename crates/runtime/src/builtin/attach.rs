//! A client that is attached to a container: the shim has the container's streams, and copies their data.

use std::convert::Infallible;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadHalf};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::client;
use super::state::{ContainerEntry, State};
use crate::error::{Error, Result};
use crate::execution::{AttachRequest, Execution, TerminalSize};
use crate::shim::{Kind, LONGEST_PIECE, PIECE_HEAD, ShimCommand, ShimResponse, piece, piece_head};

/// The capacity of the buffers to and from a client.
const BUFFER: usize = 64 << 10;

impl State {
    /// Attaches a client to a running container.
    pub(super) async fn attach(&self, entry: &ContainerEntry, request: AttachRequest) -> Result<Execution> {
        let id = &entry.record.id;
        if !entry.life.borrow().is_running() {
            return Err(Error::FailedPrecondition(format!("container {id} is not running")));
        }
        let AttachRequest { stdin, stdout, stderr, .. } = request;
        let lost = |error: io::Error| Error::Unavailable(format!("the shim of container {id}: {error}"));
        let (answer, shim) = client::send_on(&entry.folder, ShimCommand::Attach { stdin, stdout, stderr })
            .await
            .map_err(lost)?;
        if let ShimResponse::Refused(why) = answer {
            return Err(Error::failed("attaching to the container", why));
        }
        let pipe = |wanted: bool| wanted.then(|| tokio::io::duplex(BUFFER)).unzip();
        let ((typed, input), (output, printed), (errors, complaints)) =
            (pipe(stdin), pipe(stdout), pipe(stderr));
        let (resize, size) = watch::channel(None);
        let tty = entry.record.config.tty;
        let (from_shim, to_shim) = tokio::io::split(shim);
        let ended = async move {
            let outputs = Outputs { output, errors };
            // The shim closes the connection when the container has exited.
            let received = tokio::select! {
                received = outputs.receive(from_shim) => received,
                never = send(to_shim, input, size) => match never {},
            };
            received.map_err(|error| Error::io("talking to the shim", &error))?;
            Ok(0)
        };
        Ok(Execution {
            stdin: typed.map(|end| Box::new(end) as _),
            stdout: printed.map(|end| Box::new(end) as _),
            stderr: complaints.map(|end| Box::new(end) as _),
            resize: tty.then(|| {
                let resize = move |size: TerminalSize| {
                    resize.send_replace(Some(size));
                    Ok(())
                };
                Box::new(resize) as _
            }),
            ended: Box::pin(ended),
        })
    }
}

/// The destinations of the container's output.
struct Outputs {
    output: Option<DuplexStream>,
    errors: Option<DuplexStream>,
}

impl Outputs {
    /// Copies the output of the container until the shim closes the connection.
    async fn receive(mut self, mut from: ReadHalf<UnixStream>) -> io::Result<()> {
        let mut head = [0; PIECE_HEAD];
        let mut data = Vec::with_capacity(LONGEST_PIECE);
        loop {
            match from.read_exact(&mut head).await {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
            let invalid = || io::Error::other("the shim sent what is no piece of a stream");
            let (kind, length) = piece_head(head).ok_or_else(invalid)?;
            data.resize(length, 0);
            from.read_exact(&mut data).await?;
            let to = match kind {
                Kind::Stdout => &mut self.output,
                Kind::Stderr => &mut self.errors,
                Kind::Stdin | Kind::Resize => return Err(invalid()),
            };
            if let Some(end) = to
                && end.write_all(&data).await.is_err()
            {
                *to = None;
            }
        }
    }
}

/// Copies standard input, and the size of the terminal, for as long as the connection lasts. The other direction
/// decides when it ends, since output may still be in flight.
async fn send(
    mut to: impl AsyncWrite + Unpin,
    mut input: Option<impl AsyncRead + Unpin>,
    mut size: watch::Receiver<Option<TerminalSize>>,
) -> Infallible {
    let mut data = vec![0; LONGEST_PIECE];
    let mut resizable = true;
    loop {
        let typed = async {
            match &mut input {
                Some(input) => input.read(&mut data).await,
                None => std::future::pending().await,
            }
        };
        let resized = async { if resizable { size.changed().await } else { std::future::pending().await } };
        let piece = tokio::select! {
            length = typed => {
                // An empty piece is the end.
                let length = length.unwrap_or(0);
                if length == 0 {
                    input = None;
                }
                piece(Kind::Stdin, &data[..length])
            }
            changed = resized => {
                resizable = changed.is_ok();
                let Some(TerminalSize { columns, rows }) = *size.borrow_and_update() else { continue };
                let [a, b] = columns.to_le_bytes();
                let [c, d] = rows.to_le_bytes();
                piece(Kind::Resize, &[a, b, c, d])
            }
        };
        if to.write_all(&piece).await.is_err() {
            return std::future::pending().await;
        }
    }
}
