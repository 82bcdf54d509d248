//! Connections to the address of a pod, for the proxies of the API server, which may be where that address leads nowhere.
//!
//! The address is the one that the runtime reports for the pod's sandbox. `status.podIP` is not read: a user who may patch
//! `pods/status` would have the agent connect to the loopback interface of the node, whatever the API server has checked
//! before.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::UPGRADE;
use http::request::Parts;
use http::{Response, StatusCode};
use plumb_runtime::types::NamespaceMode;
use plumb_validation::addresses::is_global_unicast;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::ServerConfig;
use super::super::answer::Body;
use super::super::query::Query;
use super::super::sessions::Sessions;
use super::handshake::{Handshake, RAW};
use super::{Refused, ready_sandbox, upgrade};
use crate::probe::dialed;

/// How long a pod may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(30);

/// Responds with a connection to a port of a pod; or with an error.
pub(in super::super) async fn answer(
    config: &ServerConfig,
    sessions: &Arc<Sessions>,
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
    let address = address(config, (namespace, pod), &found.metadata.uid.clone().unwrap_or_default()).await?;
    let slot = Refused::or_slot(sessions, found.metadata.uid.as_deref().unwrap_or_default())?;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "i/o timeout");
    let connected = timeout(CONNECT, TcpStream::connect((address, port))).await.map_err(late).flatten();
    let mut stream = connected
        .map_err(|error| Refused::new(StatusCode::BAD_GATEWAY, dialed(&address.to_string(), port, &error)))?;
    // Clients wait for answers to the little that they send.
    let _ = stream.set_nodelay(true);
    upgrade(request, &Handshake::Raw, slot, move |mut io| async move {
        if let Err(error) = tokio::io::copy_bidirectional(&mut io, &mut stream).await {
            tracing::debug!(%error, "a connection to a pod ended with an error");
        }
    })
}

/// The address of a pod according to the runtime; that of the node for a pod on its network.
async fn address(config: &ServerConfig, pod: (&str, &str), uid: &str) -> Result<IpAddr, Refused> {
    if !config.reachable {
        return Err(Refused::new(StatusCode::BAD_GATEWAY, "the pod is virtual: it has no network"));
    }
    let sandbox = ready_sandbox(config, pod, uid).await?;
    let status = config.runtime.sandbox_status(&sandbox.id).await;
    let status =
        status.map_err(|error| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let addresses = match status.namespaces.network {
        NamespaceMode::Node => &config.addresses,
        NamespaceMode::Pod | NamespaceMode::Container => &status.ips,
    };
    let address = addresses.first().copied();
    let address = address.ok_or_else(|| Refused::new(StatusCode::BAD_REQUEST, "the pod has no address"))?;
    if is_global_unicast(&address) {
        Ok(address)
    } else {
        Err(Refused::new(StatusCode::FORBIDDEN, "address not allowed"))
    }
}
