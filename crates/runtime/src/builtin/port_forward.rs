//! Connections to the ports of a pod.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, setns};
use tokio::net::{TcpSocket, TcpStream};

use super::namespaces::NET;
use super::state::SandboxEntry;
use crate::error::{Error, Result};
use crate::types::{NamespaceMode, SandboxState};

/// Sockets that are not connected yet.
struct Sockets {
    v4: TcpSocket,
    /// None where the kernel has no IPv6.
    v6: Option<TcpSocket>,
}

fn sockets() -> io::Result<Sockets> {
    Ok(Sockets { v4: TcpSocket::new_v4()?, v6: TcpSocket::new_v6().ok() })
}

/// Sockets in a network namespace: a socket stays in the one it was made in, so the thread that enters it ends at once.
fn sockets_in(namespace: &Path) -> io::Result<Sockets> {
    let namespace = File::open(namespace)?;
    thread::scope(|scope| {
        let inside = || -> io::Result<Sockets> {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            sockets()
        };
        let thread = thread::Builder::new().name("port-forward".into()).stack_size(256 << 10);
        let made = thread.spawn_scoped(scope, inside)?.join();
        made.unwrap_or_else(|_| Err(io::Error::other("entering a network namespace broke off")))
    })
}

/// Connects to a port on the loopback interface of a pod.
pub(super) async fn connect(entry: &SandboxEntry, port: u16) -> Result<TcpStream> {
    let (id, state, network) = {
        let record = entry.record.lock();
        (record.id.clone(), record.state, record.config.namespaces.network)
    };
    if state != SandboxState::Ready {
        return Err(Error::FailedPrecondition(format!("sandbox {id} is not ready")));
    }
    let namespace: Option<PathBuf> = (network != NamespaceMode::Node).then(|| entry.folder.join(NET));
    let made = tokio::task::spawn_blocking(move || match namespace {
        Some(namespace) => sockets_in(&namespace),
        None => sockets(),
    });
    let made = made.await.map_err(|error| Error::failed("entering a network namespace", error))?;
    let Sockets { v4, v6 } =
        made.map_err(|error| Error::io(format!("entering the network namespace of sandbox {id}"), &error))?;
    // Both addresses of `localhost`.
    let first = match v4.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    if let Some(v6) = v6
        && let Ok(stream) = v6.connect(SocketAddr::from((Ipv6Addr::LOCALHOST, port))).await
    {
        return Ok(stream);
    }
    let doing = format!("connecting to localhost:{port} inside the network namespace of sandbox {id}");
    Err(Error::io(doing, &first))
}
