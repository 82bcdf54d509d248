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
};
use crate::authn::Peer;

/// A connection that has its permit until its last byte, also after an upgrade, when HTTP does not own it any more.
pub(super) struct PermittedConnection {
    stream: TlsStream<TcpStream>,
    activity: Activity,
    peer: Peer,
    _permit: ConnectionPermit,
    _open: Open,
}

impl PermittedConnection {
    pub(super) fn new(
        stream: TlsStream<TcpStream>,
        activity: Activity,
        peer: Peer,
        permit: ConnectionPermit,
        open: Open,
    ) -> Self {
        Self { stream, activity, peer, _permit: permit, _open: open }
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
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        // The budget is for clients without credentials. Those of others are not heads alone: after an upgrade, and while the
        // body of a request arrives that HTTP/2 has not passed on yet, no request is in flight.
        let received = buffer.filled().len() - before;
        if !self.peer.is_authenticated() && !self.activity.receive(received) {
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
