//! The node's HTTP server: the kubelet's endpoints.
//!
//! It is an HTTP service without TLS: the process that embeds it terminates TLS and authorizes requests.
//!
//! | path | response |
//! |---|---|
//! | `/healthz` | the agent's health |
//! | `/containerLogs/{namespace}/{pod}/{container}` | the log of a container |
//! | `/exec/{namespace}/{pod}/{container}` | a command in a container, over WebSockets or SPDY |
//! | `/attach/{namespace}/{pod}/{container}` | the standard streams of a container, likewise |
//! | `/portForward/{namespace}/{pod}` | connections to the ports of a pod, likewise |
//! | `/podConnect/{namespace}/{pod}` | a connection to a port of a pod's address, for the proxies of the API server |
//! | `/pods` | the pods of the node |
//! | `/runningpods/` | the pods whose containers run |
//! | `/stats/summary` | the resource usage of the node and its pods |
//! | `/metrics/resource` | the same for Prometheus |
//! | `/metrics/cadvisor` | the usage of containers under cAdvisor's names |
//! | `/metrics/probes` | the results of probes by container |
//! | `/metrics` | the agent's metrics |
//! | `/configz` | the agent's configuration |
//! | `DELETE /localVolumes/{volume}` | removes the directory of a volume of the storage class `local-path` |
//! | `/logs/{path}` | the files below `/var/log` of the machine |

mod answer;
mod logs;
mod query;
mod sessions;
mod stats;
mod streams;
mod system_logs;

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Extensions, Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use plumb_metrics::Text;
use plumb_runtime::Runtime;
use plumb_runtime::types::{ContainerId, ContainerStatus};
use plumb_supervise::{Supervisor, Task};
use serde_json::{Value, json};
use tower::Service;

pub use answer::Body;

use crate::Clock;
use crate::cri_config::POD_UID;
use crate::metrics::Metrics;
use crate::volumes::{LocalVolumeError, Volumes};
use answer::{json_of, refusal, text_of};
use query::Query;
use sessions::Sessions;
use stats::Stats;

/// The pods of a node, with their status as the node knows it.
pub trait Pods: Send + Sync + 'static {
    /// All of them.
    fn pods(&self) -> Vec<Arc<Pod>>;

    /// One of them.
    fn find(&self, namespace: &str, name: &str) -> Option<Arc<Pod>>;
}

/// Authorizes a request by its extensions, in which the TLS layer has put the client's identity.
pub type Gate = Arc<dyn Fn(&Extensions) -> bool + Send + Sync>;

/// The configuration of a node's server.
#[derive(Clone)]
pub struct ServerConfig {
    /// The node's name.
    pub node: String,
    /// Its pods.
    pub pods: Arc<dyn Pods>,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// The node's addresses, which are those of pods on its network.
    pub addresses: Vec<IpAddr>,
    /// Whether pod addresses are reachable: not if pods are virtual.
    pub reachable: bool,
    /// The agent's metrics.
    pub metrics: Arc<Metrics>,
    /// The clock.
    pub clock: Clock,
    /// The root of the kernel's files, if the node is the whole machine; else its usage is that of its pods.
    pub machine: Option<PathBuf>,
    /// The size of the machine.
    pub size: MachineSize,
    /// The agent's `KubeletConfiguration`, for `/configz`.
    pub configuration: Value,
    /// The volumes of its pods; none if they are virtual.
    pub volumes: Option<Volumes>,
    /// Authorizes every request but `/healthz`.
    pub gate: Gate,
}

/// The CPUs and the memory of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineSize {
    /// How many CPUs it has.
    pub cpus: u32,
    /// Its memory in bytes.
    pub memory: u64,
}

/// The status of a container that the status of a pod names by its id, if it is this container of this pod according to the
/// runtime. A user who may patch `pods/status` could otherwise name a container of any other pod of the node, and read its log
/// or run commands in it.
async fn container_status(
    config: &ServerConfig,
    pod: &Pod,
    name: &str,
    id: &ContainerId,
) -> Result<ContainerStatus, plumb_runtime::Error> {
    let status = config.runtime.container_status(id).await?;
    let labels = &status.container.labels;
    if labels.get(POD_UID) == pod.metadata.uid.as_ref() && status.container.meta.name == name {
        return Ok(status);
    }
    Err(plumb_runtime::Error::NotFound { what: "container", id: id.to_string() })
}

/// The server of one node. Clones share it.
#[derive(Clone)]
pub struct Server {
    config: Arc<ServerConfig>,
    sessions: Arc<Sessions>,
    stats: Arc<Stats>,
    /// The supervised tasks of this process, if the node is its only component.
    tasks: Option<Supervisor>,
    /// The metrics of other parts of this process.
    others: Vec<Figures>,
}

/// Writes what another part of this process counts.
type Figures = Arc<dyn Fn(&mut Text) + Send + Sync>;

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("node", &self.config.node).finish_non_exhaustive()
    }
}

impl Server {
    /// The server of a node.
    pub fn new(config: ServerConfig) -> Self {
        let stats = Stats::new((config.clock)());
        Self {
            config: Arc::new(config),
            sessions: Arc::default(),
            stats: Arc::new(stats),
            tasks: None,
            others: Vec::new(),
        }
    }

    /// The same, with the long-lived tasks of this process under `/healthz` and `/metrics`.
    #[must_use]
    pub fn with_tasks(self, supervisor: &Supervisor) -> Self {
        Self { tasks: Some(supervisor.clone()), ..self }
    }

    /// The same, with further metrics of this process under `/metrics`.
    #[must_use]
    pub fn with_metrics(mut self, render: impl Fn(&mut Text) + Send + Sync + 'static) -> Self {
        self.others.push(Arc::new(render));
        self
    }

    /// Whether no task fails repeatedly; with `?verbose` each by name, as the API server prints them.
    fn health(&self, verbose: bool) -> Response<Body> {
        let tasks = self.tasks.as_ref().map(Supervisor::tasks).unwrap_or_default();
        let failed = tasks.iter().any(|task| task.dead().is_some());
        let line = |task: &Task| match task.dead() {
            None => format!("[+]task/{} ok\n", task.name),
            Some(_) => format!("[-]task/{} failed: reason withheld\n", task.name),
        };
        let lines: String = tasks.iter().map(line).collect();
        if failed {
            return refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("{lines}healthz check failed\n"));
        }
        let text = if verbose { format!("{lines}healthz check passed\n") } else { "ok".to_owned() };
        text_of("text/plain; charset=utf-8", text)
    }

    fn render_metrics(&self) -> String {
        let mut text = self.config.metrics.render();
        let mut more = Text::default();
        if let Some(tasks) = &self.tasks {
            tasks.render(&mut more);
        }
        for others in &self.others {
            others(&mut more);
        }
        text.push_str(&more.finish());
        text
    }

    async fn remove_volume(&self, volume: &str) -> Response<Body> {
        let Some(volumes) = &self.config.volumes else {
            return refusal(StatusCode::NOT_FOUND, "404 page not found");
        };
        match volumes.remove_local(volume).await {
            Ok(()) => json_of(&json!({ "removed": volume })),
            Err(error @ LocalVolumeError::Name(_)) => refusal(StatusCode::BAD_REQUEST, &error.to_string()),
            Err(error @ LocalVolumeError::InUse(_)) => refusal(StatusCode::CONFLICT, &error.to_string()),
            Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        }
    }

    async fn answer(self, request: Parts, query: Query, may: bool) -> Response<Body> {
        let (method, path) = (&request.method, request.uri.path());
        if path == "/healthz" {
            return self.health(query.get("verbose").is_some());
        }
        if !may {
            return refusal(StatusCode::FORBIDDEN, "Forbidden");
        }
        let config = &self.config;
        let sessions = &self.sessions;
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        // Clients begin SPDY with a POST.
        let streams = matches!(parts.as_slice(), ["exec" | "attach" | "portForward", ..]);
        if let (&Method::DELETE, ["localVolumes", volume]) = (method, parts.as_slice()) {
            return self.remove_volume(volume).await;
        }
        if method != Method::GET && !(streams && method == Method::POST) {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
        }
        match parts.as_slice() {
            [what @ ("exec" | "attach"), namespace, pod, container] => {
                let wanted = streams::StreamTarget { namespace, pod, container, query: &query };
                let answer = if *what == "exec" {
                    streams::exec(config, sessions, &wanted, &request).await
                } else {
                    streams::attach(config, sessions, &wanted, &request).await
                };
                answer.unwrap_or_else(streams::Refused::response)
            }
            ["portForward", namespace, pod] => {
                let answer =
                    streams::port_forward(config, sessions, (namespace, pod), &query, &request).await;
                answer.unwrap_or_else(streams::Refused::response)
            }
            ["containerLogs", namespace, pod, container] => {
                logs::answer(config, namespace, pod, container, &query)
                    .await
                    .unwrap_or_else(|refused| refused)
            }
            ["podConnect", namespace, pod] => {
                let answer = streams::connect(config, sessions, (namespace, pod), &query, &request).await;
                answer.unwrap_or_else(streams::Refused::response)
            }
            ["pods"] => {
                let items: Vec<_> = config.pods.pods();
                let items: Vec<&Pod> = items.iter().map(Arc::as_ref).collect();
                json_of(&json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }))
            }
            ["stats", "summary"] => match self.stats.summary(config).await {
                Ok(summary) => json_of(&summary),
                Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
            },
            ["metrics", "resource"] => {
                let summary = self.stats.summary(config).await;
                text_of(plumb_metrics::CONTENT_TYPE, stats::resource_metrics(summary.as_ref()))
            }
            ["metrics", "cadvisor"] => match self.stats.summary(config).await {
                Ok(summary) => {
                    let text = stats::cadvisor_metrics(&summary, &config.pods.pods(), config.size);
                    text_of(plumb_metrics::CONTENT_TYPE, text)
                }
                Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
            },
            ["metrics", "probes"] => text_of(plumb_metrics::CONTENT_TYPE, config.metrics.render_probes()),
            ["runningpods"] => {
                let items: Vec<Value> = config.pods.pods().iter().filter_map(|pod| running(pod)).collect();
                json_of(&json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items }))
            }
            ["configz"] => json_of(&json!({ "kubeletconfig": config.configuration })),
            ["logs", ..] => match &config.machine {
                Some(machine) => {
                    system_logs::answer(machine, path.strip_prefix("/logs").unwrap_or_default()).await
                }
                None => refusal(StatusCode::NOT_FOUND, "404 page not found"),
            },
            ["metrics"] => text_of(plumb_metrics::CONTENT_TYPE, self.render_metrics()),
            _ => refusal(StatusCode::NOT_FOUND, "404 page not found"),
        }
    }
}

/// A pod as `/runningpods/` has it: its identity, and the containers that run; `None` if none does.
fn running(pod: &Pod) -> Option<Value> {
    let status = pod.status.as_ref()?;
    let statuses = [&status.init_container_statuses, &status.container_statuses];
    let statuses = statuses.into_iter().flatten().flatten();
    let runs = statuses.filter(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()));
    let containers: Vec<Value> =
        runs.map(|status| json!({ "name": status.name, "image": status.image, "resources": {} })).collect();
    let metadata = json!({
        "name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid,
    });
    let pod = json!({ "metadata": metadata, "spec": { "containers": containers }, "status": {} });
    (!containers.is_empty()).then_some(pod)
}

impl<B> Service<Request<B>> for Server {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        let may = (server.config.gate)(request.extensions());
        let query = Query::read(request.uri().query().unwrap_or_default());
        let (request, _) = request.into_parts();
        Box::pin(async move { Ok(server.answer(request, query, may).await) })
    }
}
