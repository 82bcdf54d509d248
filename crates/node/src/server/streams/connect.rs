//! Connections to the address of a pod, for the proxies of the API server, which may be where that address leads nowhere.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use http::header::UPGRADE;
use http::request::Parts;
use http::{Response, StatusCode};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::ServerConfig;
use super::super::answer::Body;
use super::super::query::Query;
use super::handshake::{Handshake, RAW};
use super::{Refused, upgrade};
use crate::probe::dialed;

/// How long a pod may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(30);

/// Responds with a connection to a port of a pod; or with an error.
pub(in super::super) async fn answer(
    config: &ServerConfig,
    (namespace, pod): (&str, &str),
    query: &Query,
    request: &Parts,
) -> Result<Response<Body>, Refused> {
    let found = config.pods.find(namespace, pod).ok_or_else(Refused::no_pod)?;
    let bad = |why: &str| Refused::new(StatusCode::BAD_REQUEST, why);
    if request.headers.get(UPGRADE).is_none_or(|upgrade| upgrade != RAW) {
        return Err(bad("unable to upgrade: missing upgrade headers in request"));
    }
    let port = query.get("port").and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0);
    let port = port.ok_or_else(|| bad("query parameter \"port\" is required"))?;
    let address = found.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse::<IpAddr>().ok());
    let address = address.ok_or_else(|| bad("the pod has no address"))?;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "i/o timeout");
    let connected = timeout(CONNECT, TcpStream::connect((address, port))).await.map_err(late).flatten();
    let mut stream = connected
        .map_err(|error| Refused::new(StatusCode::BAD_GATEWAY, dialed(&address.to_string(), port, &error)))?;
    // Clients wait for answers to the little that they send.
    let _ = stream.set_nodelay(true);
    upgrade(request, &Handshake::Raw, move |mut io| async move {
        if let Err(error) = tokio::io::copy_bidirectional(&mut io, &mut stream).await {
            tracing::debug!(%error, "a connection to a pod ended with an error");
        }
    })
}
