//! Commands in containers, as `kubectl exec` asks for them: over `WebSocket`s.
//!
//! ```text
//!   client ⇄ API server ⇄ WebSocket ── 0 stdin, 4 resize ──▶ the command in the container
//!                                   ◀─ 1 stdout, 2 stderr, 3 how it ended
//! ```

mod handshake;
mod session;

use http::header::CONNECTION;
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use plumb_runtime::ExecRequest;
use plumb_runtime::types::ContainerId;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::ServerConfig;
use super::answer::Body;
use super::query::Query;
use handshake::Handshake;
use session::Session;

/// The longest message of a client: one piece of what it types.
const LONGEST_MESSAGE: usize = 1 << 20;

/// What a client wants to run, and where.
pub(super) struct Wanted<'a> {
    pub(super) namespace: &'a str,
    pub(super) pod: &'a str,
    pub(super) container: &'a str,
    pub(super) query: &'a Query,
}

/// Why there is no connection.
pub(super) struct Refused(pub(super) StatusCode, pub(super) String);

/// Answers with a connection on which the command talks; or says why there is none.
pub(super) fn answer(
    config: &ServerConfig,
    wanted: &Wanted<'_>,
    request: &Parts,
) -> Result<Response<Body>, Refused> {
    let refuse = |code: StatusCode, why: &str| Refused(code, why.to_owned());
    let found = config.pods.find(wanted.namespace, wanted.pod);
    let found = found.ok_or_else(|| refuse(StatusCode::NOT_FOUND, "pod does not exist"))?;
    let id = running(&found, wanted.container).ok_or_else(|| {
        let why = format!("container not found ({:?})", wanted.container);
        refuse(StatusCode::NOT_FOUND, &why)
    })?;
    let asked = options(wanted.query).map_err(|why| refuse(StatusCode::BAD_REQUEST, why))?;
    let handshake = Handshake::read(&request.headers)
        .map_err(|why| refuse(StatusCode::BAD_REQUEST, &format!("unable to upgrade: {why}")))?;
    let upgrade = request.extensions.get::<OnUpgrade>().cloned();
    let upgrade = upgrade.ok_or_else(|| {
        refuse(StatusCode::BAD_REQUEST, "unable to upgrade: this connection cannot be upgraded")
    })?;
    let session =
        Session { runtime: config.runtime.clone(), id, protocol: handshake.protocol, request: asked };
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => {
                let limits = WebSocketConfig::default()
                    .max_message_size(Some(LONGEST_MESSAGE))
                    .max_frame_size(Some(LONGEST_MESSAGE));
                let io = TokioIo::new(upgraded);
                session.run(WebSocketStream::from_raw_socket(io, Role::Server, Some(limits)).await).await;
            }
            Err(error) => tracing::debug!(%error, "a connection for a command was not upgraded"),
        }
    });
    let mut response = handshake.response();
    response.headers_mut().insert(CONNECTION, http::HeaderValue::from_static("Upgrade"));
    Ok(response)
}

/// What is to be run, in the agent's own words for it.
fn options(query: &Query) -> Result<ExecRequest, &'static str> {
    let request = ExecRequest {
        command: query.all("command").map(str::to_owned).collect(),
        stdin: query.is_on("input"),
        stdout: query.is_on("output"),
        // A terminal has no other side for complaints.
        stderr: query.is_on("error") && !query.is_on("tty"),
        tty: query.is_on("tty"),
    };
    if request.command.is_empty() {
        return Err("you must specify at least one command for the container");
    }
    if !request.stdin && !request.stdout && !request.stderr {
        return Err("you must specify at least 1 of stdin, stdout, stderr");
    }
    Ok(request)
}

/// The container of a pod, if it runs.
fn running(pod: &Pod, container: &str) -> Option<ContainerId> {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let all = [&status.container_statuses, &status.init_container_statuses];
    let runs = |status: &&ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
    let own = all.into_iter().flatten().flatten().filter(runs).find(|status| status.name == container)?;
    let id = own.container_id.as_deref().filter(|id| !id.is_empty())?;
    // `runtime://id`.
    Some(ContainerId::from(id.split_once("://").map_or(id, |(_, id)| id)))
}
