//! A connection with its permit.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use super::{
    activity::Activity,
    connections::{ConnectionPermit, Open},
    heads::Http2Head,
};
use crate::authn::Peer;

/// A connection that has its permit until its last byte, also after an upgrade, when HTTP does not own it any more.
pub(super) struct PermittedConnection {
    stream: TlsStream<TcpStream>,
    activity: Activity,
    peer: Peer,
    /// The head that it receives over HTTP/2; the activity has that of HTTP/1.1.
    http2: Option<Http2Head>,
    _permit: ConnectionPermit,
    _open: Open,
}

impl PermittedConnection {
    pub(super) fn new(
        stream: TlsStream<TcpStream>,
        activity: Activity,
        peer: Peer,
        http2: Option<Http2Head>,
        permit: ConnectionPermit,
        open: Open,
    ) -> Self {
        Self { stream, activity, peer, http2, _permit: permit, _open: open }
    }
}

impl Drop for PermittedConnection {
    fn drop(&mut self) {
        if self.activity.is_reset() {
            let (socket, _) = self.stream.get_ref();
            // The client does not read: the kernel need not buffer what was written. An error means that the connection is broken
            // already.
            drop(SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO)));
        }
    }
}

impl AsyncRead for PermittedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let received = &buffer.filled()[before..];
        let fits = match &mut this.http2 {
            Some(head) => head.receive(received, &this.peer),
            None => this.activity.receive(received.len(), &this.peer),
        };
        if !fits {
            return Poll::Ready(Err(io::Error::other("too many bytes of request heads are buffered")));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PermittedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
}
