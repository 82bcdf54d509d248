//! The state of the API server, which all requests share.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use jiff::Timestamp;
use plumb_audit::Auditor;
use plumb_resize::rules::Rules;
use plumb_store::Store;
use plumb_supervise::Supervisor;

use crate::accounts::Accounts;
use crate::admission::{Chain, Plugin, Plugins};
use crate::aggregation::Aggregator;
use crate::audit::Auditing;
use crate::authn::Authenticator;
use crate::cluster::Cluster;
use crate::completion::Tasks;
use crate::encoders::Encoders;
use crate::error::ApiError;
use crate::in_flight::{InFlight, Limits};
use crate::kinds::{Defaults, Kinds, Strategies};
use crate::kubelet::KubeletClient;
use crate::metrics::Metrics;
use crate::openapi::Documents;
use crate::pki::Pki;
use crate::request_body::{Received, RequestBodies};
use crate::response_body::Body;
use crate::serve::ConnectionMetrics;
use crate::usage::UsageSource;

/// The configuration of an API server.
pub struct Config {
    /// The store of all objects.
    pub store: Store,
    /// The rules for resizes.
    pub rules: Rules,
    /// The clock.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// The limits of requests in flight.
    pub limits: Limits,
    /// How clients are authenticated.
    pub authenticator: Authenticator,
    /// The connection to nodes, for logs, exec and proxies; without it these requests fail.
    pub nodes: Option<KubeletClient>,
    /// The admission plugins.
    pub plugins: Plugins,
    /// What measures nodes and pods, for `metrics.k8s.io`; without it that group answers 503.
    pub usage: Option<Arc<dyn UsageSource>>,
    /// What records requests; without it none are.
    pub audit: Option<Arc<Auditor>>,
}

/// The built-in kinds of a server, and all that knows them by name. The server itself knows none.
pub struct BuiltinKinds {
    /// The strategy of each kind.
    pub strategies: Strategies,
    /// The defaults of each kind.
    pub defaults: Defaults,
    /// The admission plugins that decide by kind, in the order in which they are called. They come after those that handle
    /// every kind.
    pub plugins: Vec<Box<dyn Plugin>>,
    /// Creates the objects that every cluster has, if they are missing.
    pub create_system_objects: fn(&Cluster) -> Result<(), ApiError>,
}

/// What handles requests. It is neither generic nor `async`, so that the handlers are compiled with this crate and not with
/// each crate that calls it.
pub(crate) type Handler =
    fn(ApiServer, Request<Received>) -> BoxFuture<'static, Result<Response<Body>, Infallible>>;

/// The API server. Clones share all state.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

struct Shared {
    cluster: Arc<Cluster>,
    handler: Handler,
    auditing: Option<Auditing>,
    authenticator: Authenticator,
    admission: Chain,
    nodes: Option<KubeletClient>,
    aggregator: Aggregator,
    usage: Option<Arc<dyn UsageSource>>,
    documents: Documents,
    request_bodies: RequestBodies,
    encoders: Encoders,
    in_flight: InFlight,
    metrics: Metrics,
    /// Tasks that complete writes after their client has disconnected.
    tasks: Arc<Tasks>,
    /// The long-lived tasks of this process, for the health checks.
    supervisor: OnceLock<Supervisor>,
}

impl ApiServer {
    /// An API server over a store, which handles requests by a handler.
    pub(crate) fn of(config: Config, builtin: BuiltinKinds, handler: Handler) -> Self {
        let Config { store, rules, clock, limits, authenticator, nodes, plugins, usage, audit } = config;
        let kinds = Kinds::builtin(builtin.strategies, builtin.defaults).under(&rules);
        let in_flight = InFlight::new(limits);
        let metrics = Metrics::default();
        if let Some(auditor) = audit.clone() {
            metrics.also_show(move |text| auditor.render(text));
        }
        let shared = Shared {
            auditing: audit.map(|auditor| Auditing::new(auditor, Arc::clone(&clock))),
            admission: Chain::new(&plugins, builtin.plugins, &store),
            cluster: Arc::new(Cluster::new(store, rules, clock, kinds)),
            handler,
            authenticator,
            nodes,
            aggregator: Aggregator::default(),
            usage,
            documents: Documents::default(),
            request_bodies: RequestBodies::new(&in_flight, limits.body),
            encoders: Encoders::new(),
            in_flight,
            metrics,
            tasks: Arc::new(Tasks::new()),
            supervisor: OnceLock::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Handles a request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Ok(response) = (self.shared.handler)(self.clone(), request.map(Received::of)).await;
        response
    }

    /// Waits until all writes are completed whose clients have disconnected.
    pub async fn writes_completed(&self) {
        self.shared.tasks.finished().await;
    }

    /// The metrics of connections, for [`Listener::counting`](crate::serve::Listener::counting).
    pub fn connection_metrics(&self) -> Arc<ConnectionMetrics> {
        self.shared.metrics.connections()
    }

    /// Adds the metrics of another component of this process to `/metrics`.
    pub fn also_show(&self, figures: impl Fn(&mut plumb_metrics::Text) + Send + 'static) {
        self.shared.metrics.also_show(figures);
    }

    /// Shows the long-lived tasks of this process under `/readyz`, `/livez` and `/metrics`. Only the first call counts.
    pub fn show_tasks(&self, supervisor: &Supervisor) {
        if self.shared.supervisor.set(supervisor.clone()).is_ok() {
            let supervisor = supervisor.clone();
            self.also_show(move |text| supervisor.render(text));
        }
    }

    /// Sets a cluster IP aside for one Service: others do not get it, before that Service exists and after.
    pub fn set_aside_cluster_ip(&self, address: std::net::Ipv4Addr, namespace: &str, name: &str) {
        self.cluster().allocations().set_aside(address, namespace, name);
    }

    /// Lets the server show itself to aggregated API servers, which take its word about users. Only the first call counts.
    pub fn show_as_front_proxy(&self, pki: Arc<Pki>) {
        self.shared.aggregator.show_as_front_proxy(pki);
    }

    /// The aggregated API servers.
    pub(crate) fn aggregator(&self) -> &Aggregator {
        &self.shared.aggregator
    }

    /// The state of the cluster.
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.shared.cluster
    }

    pub(crate) fn admission(&self) -> &Chain {
        &self.shared.admission
    }

    /// What records requests.
    pub(crate) fn auditing(&self) -> Option<&Auditing> {
        self.shared.auditing.as_ref()
    }

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.shared.authenticator
    }

    pub(crate) fn accounts(&self) -> Option<&Accounts> {
        self.authenticator().accounts()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// The client of the node agents.
    pub(crate) fn kubelet_client(&self) -> Result<&KubeletClient, ApiError> {
        let nodes = self.shared.nodes.as_ref();
        nodes.ok_or_else(|| ApiError::unavailable("this server has no way to its nodes"))
    }

    /// What measures nodes and pods.
    pub(crate) fn usage(&self) -> Result<&dyn UsageSource, ApiError> {
        let source = self.shared.usage.as_deref();
        source.ok_or_else(|| ApiError::unavailable("nothing here measures what nodes and pods use"))
    }

    /// The requests in flight, and their limits.
    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.shared.in_flight
    }

    pub(crate) fn request_bodies(&self) -> &RequestBodies {
        &self.shared.request_bodies
    }

    /// The threads that encode large responses.
    pub(crate) fn encoders(&self) -> &Encoders {
        &self.shared.encoders
    }

    pub(crate) fn documents(&self) -> &Documents {
        &self.shared.documents
    }

    pub(crate) fn tasks(&self) -> &Arc<Tasks> {
        &self.shared.tasks
    }

    pub(crate) fn supervisor(&self) -> Option<&Supervisor> {
        self.shared.supervisor.get()
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        (self.shared.handler)(self.clone(), request.map(Received::of))
    }
}
