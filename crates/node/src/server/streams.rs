//! Upgraded connections: commands in containers, clients that are attached to containers, and connections to ports,
//! for `kubectl exec`, `attach` and `port-forward`.
//!
//! ```text
//!                             ┌ WebSocket, a channel a stream ┐
//!   client ⇄ API server ⇄ here┤ SPDY, a stream a stream       ├ ⇄ runtime: streams in this process, or
//!                             └ SPDY inside of a WebSocket    ┘            SPDY to its streaming server
//! ```
//!
//! A connection is one task, which owns all that belongs to it: when the client is gone, so is everything else.

mod channels;
mod command;
mod connect;
mod handshake;
mod port_forward;
mod remote;
mod spdy;
mod status;
mod tunnel;

use std::sync::Arc;

use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use plumb_runtime::types::{Sandbox, SandboxFilter, SandboxState};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::ServerConfig;
use super::answer::{Body, refusal};
use super::sessions::{SessionSlot, Sessions};
use crate::cri_config::POD_UID;
use handshake::Handshake;

pub(super) use command::{StreamTarget, attach, exec};
pub(super) use connect::answer as connect;
pub(super) use port_forward::answer as port_forward;

/// The longest message of a client: one chunk of standard input.
const LONGEST_MESSAGE: usize = 1 << 20;

/// Why there is no connection.
pub(super) struct Refused(StatusCode, String);

impl Refused {
    fn new(code: StatusCode, why: impl Into<String>) -> Self {
        Self(code, why.into())
    }

    /// The response to such a request.
    pub(super) fn response(self) -> Response<Body> {
        refusal(self.0, &self.1)
    }

    /// The slot of one more session of a pod, or the response if there are too many.
    fn or_slot(sessions: &Arc<Sessions>, uid: &str) -> Result<SessionSlot, Self> {
        let slot = sessions.enter(uid);
        slot.ok_or_else(|| Self::new(StatusCode::TOO_MANY_REQUESTS, "too many connections to containers"))
    }

    /// A pod that this node does not have.
    fn no_pod() -> Self {
        Self::new(StatusCode::NOT_FOUND, "pod does not exist")
    }
}

/// The sandbox that the containers of a pod run in, according to the runtime.
async fn ready_sandbox(
    config: &ServerConfig,
    (namespace, pod): (&str, &str),
    uid: &str,
) -> Result<Sandbox, Refused> {
    let failed = |why: String| Refused::new(StatusCode::INTERNAL_SERVER_ERROR, why);
    let labels = [(POD_UID.to_owned(), uid.to_owned())].into();
    let filter = SandboxFilter { state: Some(SandboxState::Ready), labels, ..SandboxFilter::default() };
    let sandboxes =
        config.runtime.list_sandboxes(&filter).await.map_err(|error| failed(error.to_string()))?;
    let newest =
        sandboxes.into_iter().max_by_key(|Sandbox { meta, created_at, .. }| (meta.attempt, *created_at));
    newest.ok_or_else(|| {
        failed(format!("unable to find the sandbox of the pod: not found (\"{pod}_{namespace}\")"))
    })
}

/// A connection that has been upgraded.
type Io = TokioIo<Upgraded>;

/// Answers that the connection is upgraded, and serves it in a separate task.
fn upgrade<F>(
    request: &Parts,
    handshake: &Handshake,
    slot: SessionSlot,
    go_on: impl FnOnce(Io) -> F + Send + 'static,
) -> Result<Response<Body>, Refused>
where
    F: Future<Output = ()> + Send,
{
    let upgrade = request.extensions.get::<OnUpgrade>().cloned();
    let upgrade = upgrade.ok_or_else(|| {
        Refused::new(StatusCode::BAD_REQUEST, "unable to upgrade: this connection cannot be upgraded")
    })?;
    tokio::spawn(async move {
        let _slot = slot;
        match upgrade.await {
            Ok(upgraded) => go_on(TokioIo::new(upgraded)).await,
            Err(error) => tracing::debug!(%error, "a connection to a container was not upgraded"),
        }
    });
    let mut response = handshake.response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    Ok(response)
}

/// The server's side of a `WebSocket`.
async fn websocket(io: Io) -> WebSocketStream<Io> {
    let limits = WebSocketConfig::default()
        .max_message_size(Some(LONGEST_MESSAGE))
        .max_frame_size(Some(LONGEST_MESSAGE));
    WebSocketStream::from_raw_socket(io, Role::Server, Some(limits)).await
}
