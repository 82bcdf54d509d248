//! Notices changes of interfaces, addresses and routes, by any program.

use std::io;
use std::os::fd::AsFd as _;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use tokio::net::UnixDatagram;

/// Interfaces, their IPv4 addresses, and IPv4 routes.
const GROUPS: [u32; 3] = [1, 5, 7];

/// Notifications of the network namespace that it was opened in.
pub(crate) struct Monitor(UnixDatagram);

impl Monitor {
    /// Must be called in a Tokio runtime.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        // Tokio has no netlink sockets. One is received from like any other socket of datagrams.
        let socket = socket.as_fd().try_clone_to_owned()?;
        UnixDatagram::from_std(socket.into()).map(Self)
    }

    /// Waits until something has changed since the last call.
    pub(crate) async fn changed(&self) {
        if self.0.readable().await.is_err() {
            return std::future::pending().await;
        }
        let mut buffer = [0; 4096];
        // What changed is not read, only that it did: too much of it (ENOBUFS) is a change as well.
        while self.0.try_recv(&mut buffer).is_ok() {}
    }
}
