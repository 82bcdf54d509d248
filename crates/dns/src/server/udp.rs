//! Queries over UDP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::{Handled, Server};
use crate::metrics::Transport;

/// The longest query that is read; what is longer is cut, and malformed then.
const MAX_QUERY: usize = 4096;
/// How many queries are answered before other tasks have their turn.
const BATCH: usize = 64;
/// How long a failing socket is left alone.
const RETRY: Duration = Duration::from_millis(100);

/// Answers the queries of a socket. Those that need no other server are answered in this task: a task for each would cost
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
        // A full socket drops the response, as the network may: the client asks again.
        if let Err(error) = socket.try_send_to(&response, client) {
            tracing::debug!(%error, %client, "cannot send a DNS response");
        }
    }
    Ok(true)
}
