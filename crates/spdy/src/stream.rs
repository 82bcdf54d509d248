//! One stream of a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_util::sync::PollSender;

use crate::connection::Shared;
use crate::frame::Frame;
use crate::headers::Headers;

/// The most that is sent as one frame.
const PIECE: usize = 32 << 10;

/// A stream: both directions, and the headers that it was opened with. Either half may be dropped on its own.
#[derive(Debug)]
pub struct Stream {
    headers: Headers,
    reader: Reader,
    writer: Writer,
}

impl Stream {
    pub(crate) fn new(headers: Headers, reader: Reader, writer: Writer) -> Self {
        Self { headers, reader, writer }
    }

    /// The headers that it was opened with.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Its two directions.
    pub fn split(self) -> (Reader, Writer) {
        (self.reader, self.writer)
    }
}

/// What the other side sends on a stream. It ends when that side has closed its half, or the stream or connection was reset.
#[derive(Debug)]
pub struct Reader {
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Reader {
    pub(crate) fn new(pieces: mpsc::Receiver<Bytes>) -> Self {
        Self { pieces, rest: Bytes::new() }
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.pieces.poll_recv(cx)) {
                Some(piece) => self.rest = piece,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..length]);
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

/// What this side sends on a stream. Shutting it down closes this half; dropping it before resets the stream.
#[derive(Debug)]
pub struct Writer {
    id: u32,
    shared: Arc<Shared>,
    frames: PollSender<Frame>,
    finished: bool,
}

impl Writer {
    pub(crate) fn new(id: u32, shared: Arc<Shared>, frames: mpsc::Sender<Frame>) -> Self {
        Self { id, shared, frames: PollSender::new(frames), finished: false }
    }

    /// Sends a frame once there is space for it. The data is copied only then.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        data: impl FnOnce() -> Bytes,
        fin: bool,
    ) -> Poll<io::Result<()>> {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        if !self.is_closed() {
            ready!(self.frames.poll_reserve(cx)).map_err(|_| broken())?;
        }
        // It may have been reset while this waited.
        if self.is_closed() {
            // The space would be missing to the other streams until this one is dropped.
            self.frames.abort_send();
            return Poll::Ready(Err(broken()));
        }
        let frame = Frame::Data { id: self.id, data: data(), fin };
        Poll::Ready(self.frames.send_item(frame).map_err(|_| broken()))
    }

    fn is_closed(&self) -> bool {
        self.finished || !self.shared.is_open(self.id)
    }
}

impl AsyncWrite for Writer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let piece = &buf[..buf.len().min(PIECE)];
        ready!(self.poll_send(cx, || Bytes::copy_from_slice(piece), false))?;
        Poll::Ready(Ok(piece.len()))
    }

    /// Pieces go out as soon as the connection takes them.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.finished {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_send(cx, Bytes::new, true))?;
        self.finished = true;
        self.shared.finished_here(self.id);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.reset(self.id);
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(cx)
    }
}
