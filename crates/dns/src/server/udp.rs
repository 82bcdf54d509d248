//! Queries over UDP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::{Handled, Server};
use crate::metrics::Transport;

/// The maximum size of a query. A longer one is truncated, and so malformed.
const MAX_QUERY: usize = 4096;
/// The number of queries that are handled before the task yields.
const BATCH: usize = 64;
/// The delay after an error of the socket.
const RETRY: Duration = Duration::from_millis(100);

/// Answers the queries of a socket. Queries that need no other server are answered in this task, since spawning a task would cost
/// more than the answer.
pub(super) async fn serve(server: &Arc<Server>, socket: &Arc<UdpSocket>) {
    let mut buffer = vec![0; MAX_QUERY];
    let mut waiting = JoinSet::new();
    loop {
        let ready = tokio::select! {
            ready = socket.readable() => ready,
            Some(_) = waiting.join_next() => continue,
        };
        let received = ready.and_then(|()| receive(server, socket, &mut buffer, &mut waiting));
        match received {
            Ok(true) => tokio::task::yield_now().await,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot receive DNS queries");
                tokio::time::sleep(RETRY).await;
            }
        }
        while waiting.try_join_next().is_some() {}
    }
}

/// Answers the queries that have arrived. Returns whether there may be more.
fn receive(
    server: &Arc<Server>,
    socket: &Arc<UdpSocket>,
    buffer: &mut [u8],
    waiting: &mut JoinSet<()>,
) -> io::Result<bool> {
    for _ in 0..BATCH {
        let (length, client) = match socket.try_recv_from(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            received => received?,
        };
        let response = match server.handle(&buffer[..length], Transport::Udp) {
            Handled::Nothing => continue,
            Handled::Response(response) => response,
            Handled::Pending(pending) => match server.pending.enter(client.ip()) {
                None => server.refuse(&pending),
                Some(slot) => {
                    let server = server.clone();
                    let socket = socket.clone();
                    waiting.spawn(async move {
                        let _slot = slot;
                        let response = server.resolve(*pending).await;
                        if let Err(error) = socket.send_to(&response, client).await {
                            tracing::debug!(%error, %client, "cannot send a DNS response");
                        }
                    });
                    continue;
                }
            },
        };
        // If the send buffer is full, the response is dropped, as the network may do; the client retries.
        if let Err(error) = socket.try_send_to(&response, client) {
            tracing::debug!(%error, %client, "cannot send a DNS response");
        }
    }
    Ok(true)
}
