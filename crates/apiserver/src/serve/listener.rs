//! The listener of the server.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use plumb_supervise::Supervisor;
use tokio::net::{TcpListener, TcpSocket};

use super::ConnectionMetrics;

/// The backlog of connections that are not accepted yet: a thousand nodes may connect at once.
const BACKLOG: u32 = 1_024;

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another program listens there.
    #[error(
        "cannot listen on {address}: it is in use by another process; stop that, or choose another address with --listen"
    )]
    InUse {
        /// The requested address.
        address: SocketAddr,
    },
    /// No interface of this machine has the address.
    #[error(
        "cannot listen on {address}: this machine does not have that address; choose another one with --listen"
    )]
    NotHere {
        /// The requested address.
        address: SocketAddr,
    },
    /// The port is privileged.
    #[error("cannot listen on {address}: not permitted; choose a port of 1024 or above with --listen")]
    NotPermitted {
        /// The requested address.
        address: SocketAddr,
    },
    /// Any other error.
    #[error("cannot listen on {address}")]
    Other {
        /// The requested address.
        address: SocketAddr,
        /// The error.
        source: io::Error,
    },
}

/// A listener. It accepts no connection before [`serve`](super::serve).
#[derive(Debug)]
pub struct Listener {
    pub(super) inner: TcpListener,
    pub(super) metrics: Arc<ConnectionMetrics>,
    /// Supervises the loop that accepts connections, under this name.
    pub(super) supervisor: Supervisor,
    pub(super) task: String,
    address: SocketAddr,
}

impl Listener {
    /// Listens on `address`; port 0 lets the system choose one.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let listen = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // Connections of an earlier server in `TIME_WAIT` do not prevent this.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let inner = socket.listen(BACKLOG)?;
            let address = inner.local_addr()?;
            let (metrics, supervisor) = (Arc::default(), Supervisor::default());
            Ok(Self { inner, metrics, supervisor, task: "server".to_owned(), address })
        };
        listen().map_err(|source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { address },
            io::ErrorKind::AddrNotAvailable => BindError::NotHere { address },
            io::ErrorKind::PermissionDenied => BindError::NotPermitted { address },
            _ => BindError::Other { address, source },
        })
    }

    /// Counts connections in these metrics.
    #[must_use]
    pub fn counting(self, metrics: Arc<ConnectionMetrics>) -> Self {
        Self { metrics, ..self }
    }

    /// Supervises the loop that accepts connections, under a name.
    #[must_use]
    pub fn supervised(self, supervisor: &Supervisor, task: &str) -> Self {
        Self { supervisor: supervisor.clone(), task: task.to_owned(), ..self }
    }

    /// The address, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address for a client on this machine.
    pub fn url(&self) -> String {
        let reachable = match self.address.ip() {
            IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            address => address,
        };
        format!("https://{}", SocketAddr::new(reachable, self.address.port()))
    }
}
