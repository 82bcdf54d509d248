//! A stream of a connection.

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

/// The maximum size of the data of a frame.
const MAX_DATA: usize = 32 << 10;

/// A bidirectional stream with its headers. Its halves can be dropped separately.
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

    /// The headers that the stream was opened with.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Splits the stream into its halves.
    pub fn split(self) -> (Reader, Writer) {
        (self.reader, self.writer)
    }
}

/// The receiving half of a stream. It ends when the peer has closed its half, or when the stream or the connection ends.
#[derive(Debug)]
pub struct Reader {
    chunks: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Reader {
    pub(crate) fn new(chunks: mpsc::Receiver<Bytes>) -> Self {
        Self { chunks, rest: Bytes::new() }
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.chunks.poll_recv(cx)) {
                Some(chunk) => self.rest = chunk,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..length]);
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

/// The sending half of a stream. Shutdown closes this half; a drop without shutdown resets the stream.
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

    /// Sends a frame once the queue has space. The data is copied only then.
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
        // The stream may have been reset while this waited.
        if self.is_closed() {
            // Releases the slot, which other streams would lack until this stream is dropped.
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
        let chunk = &buf[..buf.len().min(MAX_DATA)];
        ready!(self.poll_send(cx, || Bytes::copy_from_slice(chunk), false))?;
        Poll::Ready(Ok(chunk.len()))
    }

    /// Does nothing: the connection sends frames as soon as they are queued.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.finished {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_send(cx, Bytes::new, true))?;
        self.finished = true;
        self.shared.finish_local(self.id);
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
