//! Queries over TCP (RFC 7766). A connection handles one query after the other; the length precedes each message.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Handled, Server};
use crate::metrics::Transport;

/// The maximum size of a query. Queries are much smaller, even with all options.
const MAX_QUERY: u16 = 4096;
/// The timeout of an idle connection, and of sending or receiving one message.
const IDLE: Duration = Duration::from_secs(8);
/// The delay after a failed accept, such as for too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Answers the queries of a listener.
pub(super) async fn serve(server: &Arc<Server>, listener: &TcpListener) {
    let mut open = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = open.join_next() => continue,
        };
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a DNS connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        // A connection beyond the limit is closed immediately.
        let Some(slot) = server.connections.enter(client.ip()) else {
            tracing::debug!(%client, "a client has too many DNS connections");
            continue;
        };
        let server = server.clone();
        open.spawn(async move {
            let _slot = slot;
            if let Err(error) = answer(&server, stream, client.ip()).await {
                tracing::debug!(%error, %client, "a DNS connection ended with an error");
            }
        });
    }
}

/// Answers the queries of a connection until its client closes it or is silent.
async fn answer(server: &Arc<Server>, mut stream: TcpStream, client: IpAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Ok(received) = timeout(IDLE, receive(&mut stream, &mut buffer)).await {
        if !received? {
            return Ok(());
        }
        let response = match server.handle(&buffer, Transport::Tcp) {
            Handled::Nothing => return Ok(()),
            Handled::Response(response) => response,
            Handled::Pending(pending) => match server.pending.enter(client) {
                None => server.refuse(&pending),
                Some(_slot) => server.resolve(*pending).await,
            },
        };
        let length = u16::try_from(response.len()).map_err(io::Error::other)?;
        let framed = [&length.to_be_bytes(), &*response].concat();
        timeout(IDLE, stream.write_all(&framed)).await??;
    }
    Ok(())
}

/// Receives a message. Returns false at the end of the connection, and for a message that is too long.
async fn receive(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<bool> {
    let length = match stream.read_u16().await {
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    };
    if length > MAX_QUERY {
        return Ok(false);
    }
    buffer.resize(length.into(), 0);
    stream.read_exact(buffer).await?;
    Ok(true)
}
