//! Carries connections of pods to the API server.
//!
//! ```text
//!   pod ── TCP ──▶ 10.96.0.1:443 on the bridge ──▶ copy both ways ──▶ the API server, 127.0.0.1:6443 or elsewhere
//! ```
//!
//! The API server usually listens on the machine's loopback, or on another machine, and pods reach neither. TLS goes
//! through untouched: a pod verifies the API server's own certificate, and the API server sees the pod's credentials.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Connections that one pod may have at a time: more than any client of Kubernetes opens.
const MAX_PER_POD: usize = 64;
/// Connections that a pod may have whatever others do. Pods are bounded by the node's `--max-pods`.
const RESERVED_PER_POD: usize = 8;
/// Connections at a time that all pods together may have beyond the reserved ones.
const MAX_SHARED: usize = 3072;
/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 256;
/// How long a failing accept (too many open files) waits for the next attempt.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A proxy for the pods of a node.
#[derive(Debug)]
pub struct ApiProxy {
    listeners: Vec<TcpListener>,
    /// The API server: host and port.
    upstream: (String, u16),
}

impl ApiProxy {
    /// Listens on addresses of this machine. With an interface, only what arrives there is carried, and clusters of the same
    /// machine may have the same addresses on interfaces of their own.
    pub fn bind(
        interface: Option<&str>,
        addresses: &[SocketAddr],
        upstream: (String, u16),
    ) -> io::Result<Self> {
        let listen = |address: &SocketAddr| {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            if let Some(interface) = interface {
                socket.bind_device(Some(interface.as_bytes()))?;
            }
            socket.bind(*address)?;
            socket.listen(BACKLOG)
        };
        let listeners = addresses.iter().map(listen).collect::<io::Result<_>>()?;
        Ok(Self { listeners, upstream })
    }

    /// Forwards connections until the future is dropped. It may be run again: the listeners stay open.
    pub async fn run(self: Arc<Self>) {
        let open = Arc::new(Open::default());
        futures_util::future::join_all(self.listeners.iter().map(|one| accept(one, &self.upstream, &open)))
            .await;
    }
}

async fn accept(listener: &TcpListener, upstream: &(String, u16), open: &Arc<Open>) {
    let mut carrying = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = carrying.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of a pod to the API server");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        // One too many is closed at once: its client sees a reset and tries again.
        let Some(place) = open.enter(peer.ip()) else {
            tracing::debug!(%peer, "a pod has too many connections to the API server");
            continue;
        };
        let upstream = upstream.clone();
        carrying.spawn(async move {
            let _place = place;
            if let Err(error) = forward(stream, &upstream).await {
                tracing::debug!(%error, %peer, "a connection of a pod to the API server ended with an error");
            }
        });
    }
}

async fn forward(mut pod: TcpStream, upstream: &(String, u16)) -> io::Result<()> {
    let mut server = TcpStream::connect((upstream.0.as_str(), upstream.1)).await?;
    pod.set_nodelay(true)?;
    server.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut pod, &mut server).await?;
    Ok(())
}

/// The connections that are open.
#[derive(Debug, Default)]
struct Open(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_pod: HashMap<IpAddr, usize>,
    /// Those of all pods beyond what is reserved for each.
    shared: usize,
}

impl Open {
    /// A slot for one more connection of a pod: a reserved one, or one that all pods share.
    fn enter(self: &Arc<Self>, pod: IpAddr) -> Option<ConnectionSlot> {
        let mut counts = self.0.lock();
        let own = counts.by_pod.get(&pod).copied().unwrap_or_default();
        let is_shared = own >= RESERVED_PER_POD;
        if own >= MAX_PER_POD || (is_shared && counts.shared >= MAX_SHARED) {
            return None;
        }
        counts.by_pod.insert(pod, own + 1);
        counts.shared += usize::from(is_shared);
        Some(ConnectionSlot { open: self.clone(), pod })
    }
}

/// The slot of one connection, released when it is dropped.
struct ConnectionSlot {
    open: Arc<Open>,
    pod: IpAddr,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = self.open.0.lock();
        let own = counts.by_pod.get(&self.pod).copied().unwrap_or_default().saturating_sub(1);
        if own == 0 {
            counts.by_pod.remove(&self.pod);
        } else {
            counts.by_pod.insert(self.pod, own);
        }
        counts.shared -= usize::from(own >= RESERVED_PER_POD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pod_does_not_take_the_places_of_others() {
        let open = Arc::new(Open::default());
        let (greedy, other) = (IpAddr::from([10, 64, 0, 2]), IpAddr::from([10, 64, 0, 3]));
        let mut places: Vec<_> = (0..MAX_PER_POD).map(|_| open.enter(greedy).unwrap()).collect();
        assert!(open.enter(greedy).is_none());
        assert!(open.enter(other).is_some());
        places.pop();
        assert!(open.enter(greedy).is_some());
        drop(places);
        assert!(open.0.lock().by_pod.is_empty());
        assert_eq!(open.0.lock().shared, 0);
    }

    #[test]
    fn all_other_pods_together_leave_a_pod_its_reserved_connections() {
        let open = Arc::new(Open::default());
        let pod = |number: u16| IpAddr::from([10, 64, number.to_be_bytes()[0], number.to_be_bytes()[1]]);
        let mut slots = Vec::new();
        for number in 2..250 {
            slots.extend(std::iter::from_fn(|| open.enter(pod(number))));
        }
        let late = pod(250);
        let own: Vec<_> = std::iter::from_fn(|| open.enter(late)).collect();
        assert_eq!(own.len(), RESERVED_PER_POD);
        drop(slots);
        let own_later: Vec<_> = std::iter::from_fn(|| open.enter(late)).collect();
        assert_eq!(own.len() + own_later.len(), MAX_PER_POD);
    }
}
