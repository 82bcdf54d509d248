//! Commands in containers, and containers that clients are attached to.

use std::sync::Arc;

use http::request::Parts;
use http::{Response, StatusCode};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use plumb_runtime::types::ContainerId;
use plumb_runtime::{AttachRequest, Error, ExecRequest, Execution, Runtime, Streaming};

use super::super::answer::Body;
use super::super::query::Query;
use super::super::sessions::Sessions;
use super::super::{ServerConfig, container_status};
use super::handshake::{Handshake, Spoken};
use super::{Refused, channels, remote, spdy, upgrade, websocket};

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// A failure is text.
    V1,
    /// The same.
    V2,
    /// With the size of the terminal.
    V3,
    /// With a `Status`, and so with an exit code.
    V4,
    /// With an end of standard input as well.
    V5,
}

/// Inside of `WebSocket`s: the name, the version, and whether messages are text, with their data in base64.
const WEBSOCKET: [(&str, Version, bool); 5] = [
    ("v5.channel.k8s.io", Version::V5, false),
    ("v4.channel.k8s.io", Version::V4, false),
    ("v4.base64.channel.k8s.io", Version::V4, true),
    ("channel.k8s.io", Version::V1, false),
    ("base64.channel.k8s.io", Version::V1, true),
];

/// The same inside of SPDY.
const SPDY: [(&str, Version); 4] = [
    ("v4.channel.k8s.io", Version::V4),
    ("v3.channel.k8s.io", Version::V3),
    ("v2.channel.k8s.io", Version::V2),
    ("channel.k8s.io", Version::V1),
];

const SPOKEN: Spoken = Spoken {
    websocket: &[WEBSOCKET[0].0, WEBSOCKET[1].0, WEBSOCKET[2].0, WEBSOCKET[3].0, WEBSOCKET[4].0],
    spdy: &[SPDY[0].0, SPDY[1].0, SPDY[2].0, SPDY[3].0],
};

/// The container that a request names.
pub(in super::super) struct StreamTarget<'a> {
    pub(in super::super) namespace: &'a str,
    pub(in super::super) pod: &'a str,
    pub(in super::super) container: &'a str,
    pub(in super::super) query: &'a Query,
}

/// A streaming request to a container.
#[derive(Clone, Debug)]
pub(super) enum StreamRequest {
    Exec(ExecRequest),
    Attach(AttachRequest),
}

impl StreamRequest {
    /// The streams that a client is to be connected to, besides that of errors.
    pub(super) fn streams(&self) -> AttachRequest {
        match self {
            Self::Exec(request) => AttachRequest {
                stdin: request.stdin,
                stdout: request.stdout,
                stderr: request.stderr,
                tty: request.tty,
            },
            Self::Attach(request) => *request,
        }
    }

    /// The operation, for error messages.
    pub(super) fn doing(&self) -> &'static str {
        match self {
            Self::Exec(_) => "executing command in",
            Self::Attach(_) => "attaching to",
        }
    }
}

/// The request, and its target.
pub(super) struct Task {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) id: ContainerId,
    pub(super) what: StreamRequest,
}

impl Task {
    /// Starts it.
    pub(super) async fn start(&self) -> Result<Execution, Error> {
        let streaming = match &self.what {
            StreamRequest::Exec(request) => self.runtime.exec(&self.id, request.clone()).await?,
            StreamRequest::Attach(request) => self.runtime.attach(&self.id, *request).await?,
        };
        match streaming {
            Streaming::Streams(streams) => Ok(streams),
            Streaming::Url(url) => remote::execution(&url, self.what.streams()).await,
        }
    }
}

/// Responds with a connection to a command that runs in a container; or with an error.
pub(in super::super) async fn exec(
    config: &ServerConfig,
    sessions: &Arc<Sessions>,
    wanted: &StreamTarget<'_>,
    request: &Parts,
) -> Result<Response<Body>, Refused> {
    let streams = streams(wanted.query)?;
    let command: Vec<String> = wanted.query.all("command").map(str::to_owned).collect();
    if command.is_empty() {
        let why = "you must specify at least one command for the container";
        return Err(Refused::new(StatusCode::BAD_REQUEST, why));
    }
    let AttachRequest { stdin, stdout, stderr, tty } = streams;
    let what = StreamRequest::Exec(ExecRequest { command, stdin, stdout, stderr, tty });
    answer(config, sessions, wanted, request, what).await
}

/// Responds with a connection to the standard streams of a container; or with an error.
pub(in super::super) async fn attach(
    config: &ServerConfig,
    sessions: &Arc<Sessions>,
    wanted: &StreamTarget<'_>,
    request: &Parts,
) -> Result<Response<Body>, Refused> {
    answer(config, sessions, wanted, request, StreamRequest::Attach(streams(wanted.query)?)).await
}

async fn answer(
    config: &ServerConfig,
    sessions: &Arc<Sessions>,
    wanted: &StreamTarget<'_>,
    request: &Parts,
    what: StreamRequest,
) -> Result<Response<Body>, Refused> {
    let found = config.pods.find(wanted.namespace, wanted.pod).ok_or_else(Refused::no_pod)?;
    let no_container =
        || Refused::new(StatusCode::NOT_FOUND, format!("container not found ({:?})", wanted.container));
    let id = running(&found, wanted.container).ok_or_else(no_container)?;
    container_status(config, &found, wanted.container, &id).await.map_err(|error| {
        if error.is_not_found() {
            no_container()
        } else {
            Refused::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
    })?;
    let handshake = Handshake::read(&request.headers, SPOKEN)
        .map_err(|why| Refused::new(StatusCode::BAD_REQUEST, format!("unable to upgrade: {why}")))?;
    let task = Task { runtime: config.runtime.clone(), id, what };
    let slot = Refused::or_slot(sessions, found.metadata.uid.as_deref().unwrap_or_default())?;
    let agreed = handshake.clone();
    upgrade(request, &handshake, slot, move |io| async move {
        match agreed {
            Handshake::WebSocket { protocol, .. } => {
                let protocol = channels::Protocol::named(&WEBSOCKET, protocol);
                channels::run(task, protocol, websocket(io).await).await;
            }
            Handshake::Spdy(protocol) => {
                let known = SPDY.iter().find(|(name, _)| *name == protocol);
                spdy::run(task, known.map_or(Version::V1, |(_, version)| *version), io).await;
            }
            // It is never agreed on.
            Handshake::Raw => {}
        }
    })
}

/// The streams that a client wants, by the agent's own names for them.
fn streams(query: &Query) -> Result<AttachRequest, Refused> {
    let wanted = AttachRequest {
        stdin: query.is_on("input"),
        stdout: query.is_on("output"),
        // A terminal has no other side for complaints.
        stderr: query.is_on("error") && !query.is_on("tty"),
        tty: query.is_on("tty"),
    };
    if !wanted.stdin && !wanted.stdout && !wanted.stderr {
        let why = "you must specify at least 1 of stdin, stdout, stderr";
        return Err(Refused::new(StatusCode::BAD_REQUEST, why));
    }
    Ok(wanted)
}

/// The container of a pod, if it runs.
fn running(pod: &Pod, container: &str) -> Option<ContainerId> {
    let none = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&none);
    let all =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let runs = |status: &&ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
    let own = all.into_iter().flatten().flatten().filter(runs).find(|status| status.name == container)?;
    let id = own.container_id.as_deref().filter(|id| !id.is_empty())?;
    // `runtime://id`.
    Some(ContainerId::from(id.split_once("://").map_or(id, |(_, id)| id)))
}
