//! A connection with its permit.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::{
    activity::Activity,
    connections::{ConnectionPermit, Open},
};

/// A connection that has its permit until its last byte, also after an upgrade, when HTTP does not own it any more.
pub(super) struct PermittedConnection {
    stream: TokioIo<TlsStream<TcpStream>>,
    activity: Activity,
    _permit: ConnectionPermit,
    _open: Open,
}

impl PermittedConnection {
    pub(super) fn new(
        stream: TlsStream<TcpStream>,
        activity: Activity,
        permit: ConnectionPermit,
        open: Open,
    ) -> Self {
        Self { stream: TokioIo::new(stream), activity, _permit: permit, _open: open }
    }
}

impl Drop for PermittedConnection {
    fn drop(&mut self) {
        if self.activity.is_reset() {
            let (socket, _) = self.stream.inner().get_ref();
            // The client does not read: the kernel need not buffer what was written. An error means that the connection is broken
            // already.
            drop(SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO)));
        }
    }
}

impl Read for PermittedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for PermittedConnection {
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
