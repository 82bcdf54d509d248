//! Runs the webhook: informers, the server and its status.
//!
//! ```text
//!   informers ─▶ synced ─▶ serve ─▶ registered ─▶ Lease, every 10 s
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use plumb_client::Api;
use plumb_controller_runtime::events::{EventRecorder, RecorderConfig};
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Backoff, Clock, Exponential, Informer};
use plumb_resize::Quantity;
use plumb_supervise::Supervisor;
use plumb_vpa::informers::keep;
use plumb_vpa::node_groups::labels_only;
use plumb_vpa::target::{TargetConfig, Targets};
use plumb_vpa::vpas::{Nodes, Vpas};
use plumb_vpa_api::VerticalPodAutoscaler;
use plumb_webhook::WebhookServer;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::limits::NamespaceLimits;
use crate::metrics::AdmissionMetrics;
use crate::status_lease::StatusLease;
use crate::vpa::Gates;
use crate::webhook::{RecentMessages, Webhook};

/// The interval of checks whether `pods/resize` is served.
const DISCOVERY_INTERVAL: Duration = Duration::from_mins(5);
/// How long to wait after something failed.
const DELAYS: Exponential = Exponential::new(Duration::from_millis(200), Duration::from_secs(30));

/// The options of the webhook: upstream's flags with their names and defaults, and those that only this one has.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Where it listens, with which certificates, and how it is registered.
    pub server: plumb_webhook::Options,
    /// Which Lease is renewed.
    pub status_lease: StatusLease,
    /// `--max-allowed-cpu-boost`.
    pub max_allowed_cpu_boost: Option<Quantity>,
    /// The feature gates.
    pub gates: Gates,
    /// Whether VPAs may select nodes, see [`node_groups`](plumb_vpa::node_groups) (`--node-selectors`).
    pub node_selectors: bool,
}

/// Configuration of the webhook.
#[derive(Clone)]
pub struct Environment {
    /// The client for the API server.
    pub client: Client,
    /// All VPAs; the caller runs the informer.
    pub vpas: Informer<VerticalPodAutoscaler>,
    /// Restarts tasks.
    pub supervisor: Supervisor,
    /// Metrics of informers and events.
    pub metrics: Metrics,
    /// Metrics of the webhook.
    pub admission_metrics: AdmissionMetrics,
    /// The clock.
    pub clock: Clock,
}

/// A webhook that can be run.
pub struct Admission {
    options: Options,
    environment: Environment,
    vpas: Vpas,
    nodes: Option<Informer<Node>>,
    limits: NamespaceLimits,
    /// Whether the API server serves `pods/resize`, once that is known.
    serves_resize: watch::Sender<Option<bool>>,
    server: Arc<WebhookServer>,
}

impl Admission {
    /// A webhook. It has to be made before the informer of VPAs runs.
    pub fn new(options: Options, environment: Environment) -> Self {
        let targets = Targets::new(environment.client.clone(), TargetConfig::default());
        let nodes = options.node_selectors.then(|| {
            Informer::<Node>::default().with_transform(labels_only).with_metrics(&environment.metrics)
        });
        let known = nodes.clone().map(|informer| Nodes { client: environment.client.clone(), informer });
        let vpas = Vpas::new(environment.vpas.store(), targets, options.gates.startup_boost, known);
        let limits = NamespaceLimits::new(&environment.metrics);
        let (client, clock) = (environment.client.clone(), environment.clock.clone());
        let server = WebhookServer::new(options.server.clone(), client, clock);
        Self { options, environment, vpas, nodes, limits, serves_resize: watch::Sender::default(), server }
    }

    /// Where the server listens, once it does.
    pub fn listening(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.server.listening()
    }

    /// Whether the webhook is registered with the API server.
    pub fn registered(&self) -> watch::Receiver<bool> {
        self.server.registered()
    }

    /// Runs it for good. Failures are retried.
    pub fn run(self) -> BoxFuture<'static, ()> {
        let supervisor = self.environment.supervisor.clone();
        let admission = Arc::new(self);
        let client = &admission.environment.client;
        let limits = admission.limits.run(client, &supervisor);
        let nodes = admission
            .nodes
            .as_ref()
            .map(|nodes| keep(&supervisor, "vpa-informer/nodes", nodes, Api::all(client.clone())));
        let informers = join_all(nodes.into_iter().chain([limits]));
        let discovery =
            admission.clone().supervised("discovery", |admission| admission.watch_discovery().boxed());
        let serving = admission.clone().supervised("server", |admission| admission.serve().boxed());
        let status = admission.supervised("status", |admission| admission.renew_status().boxed());
        async move {
            tokio::join!(informers, discovery, serving, status);
        }
        .boxed()
    }

    fn supervised(
        self: Arc<Self>,
        task: &str,
        run: fn(Arc<Self>) -> BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, ()> {
        let supervisor = self.environment.supervisor.clone();
        supervisor.keep(&format!("vpa-admission/{task}"), move || run(self.clone())).boxed()
    }

    /// Serves for good, once everything is known that answers depend on.
    async fn serve(self: Arc<Self>) {
        self.environment.vpas.wait_for_sync().await;
        self.limits.wait_for_sync().await;
        if let Some(nodes) = &self.nodes {
            nodes.wait_for_sync().await;
        }
        // Pods that are created before would get no boost. The sender lives as long as this.
        let _ = self.serves_resize.subscribe().wait_for(Option::is_some).await;
        self.server.clone().serve(Arc::new(self.webhook())).await;
    }

    fn webhook(&self) -> Webhook {
        let Environment { client, supervisor, metrics, admission_metrics, clock, .. } = &self.environment;
        let mut recorder = RecorderConfig::new(client.clone(), "vpa-admission-controller", supervisor);
        recorder.metrics = metrics.clone();
        Webhook {
            vpas: self.vpas.clone(),
            limits: self.limits.clone(),
            max_allowed_cpu_boost: self.options.max_allowed_cpu_boost,
            gates: self.options.gates,
            serves_resize: self.serves_resize.subscribe(),
            recorder: Some(EventRecorder::start(recorder)),
            metrics: admission_metrics.clone(),
            supervisor: supervisor.clone(),
            clock: clock.clone(),
            recent_messages: RecentMessages::default(),
        }
    }

    /// Renews the Lease while the webhook is registered.
    async fn renew_status(self: Arc<Self>) {
        let lease = &self.options.status_lease;
        let api: Api<Lease> = Api::namespaced(self.environment.client.clone(), &lease.namespace);
        let mut registered = self.server.registered();
        loop {
            // The sender lives as long as this.
            let _ = registered.wait_for(|registered| *registered).await;
            if let Err(error) = lease.renew(&api, self.environment.clock.now()).await {
                tracing::warn!(%error, lease = lease.name, "the status of the admission webhook cannot be renewed");
            }
            sleep(lease.interval).await;
        }
    }

    /// Finds out whether the API server can resize pods.
    async fn watch_discovery(self: Arc<Self>) {
        let mut backoff = Backoff::new(DELAYS);
        loop {
            match self.environment.client.list_core_api_resources("v1").await {
                Ok(list) => {
                    backoff.reset();
                    let serves = list.resources.iter().any(|resource| resource.name == "pods/resize");
                    if self.serves_resize.send_replace(Some(serves)) != Some(serves) {
                        tracing::info!(serves, "whether the API server can resize pods");
                    }
                    sleep(DISCOVERY_INTERVAL).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "the resources of the API server cannot be listed yet");
                    backoff.wait().await;
                }
            }
        }
    }
}
