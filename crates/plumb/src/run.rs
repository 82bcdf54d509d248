//! `plumb run`: components against a cluster that runs elsewhere, until SIGTERM or Ctrl-C.
//!
//! ```text
//!   flags ──▶ client, with upstream's rate limit ──▶ components ──▶ each holds its lease? ──▶ it works
//!                                                           │
//!                     --address: /metrics, /healthz, /readyz, /debug/… ◀─────┘
//! ```
//!
//! A component is a [`RunningComponent`]: its work while this process leads, its metrics, its health and its pages.

mod admission;
mod http;
mod informers;
mod recommender;
mod rollout;
mod updater;
mod webhook;

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use anyhow::Context as _;
use futures_util::future::{BoxFuture, try_join_all};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use plumb_cluster::features;
use plumb_cluster::signals::Signals;
use plumb_cluster::{announce, say};
use plumb_controller_runtime::crds::InstallError;
use plumb_controller_runtime::leader::{LeaderConfig, LeaderElector};
use plumb_controller_runtime::metrics::Metrics;
use plumb_metrics::{CONTENT_TYPE, Text};
use plumb_supervise::{Exponential, Supervisor};
use tokio::sync::watch;

use crate::cli::{Chosen, CommonFlags, ElectionFlags, Ignored, Run};
use crate::client::connection_failure;
use crate::rate_limit;
use crate::reachability::Reported;
use http::{Handler, PageRequest, PageResponse};
use informers::SharedInformers;

/// The work of a component, for as long as this process leads.
type Work = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Serves the pages of a component.
type Pages = Box<dyn Fn(&PageRequest) -> Option<PageResponse> + Send + Sync>;

/// The delays between attempts to install definitions while the API server cannot be reached.
const INSTALL_DELAYS: Exponential = Exponential::new(Duration::from_secs(1), Duration::from_secs(15));

/// The failed check of a component, if there is one.
type Check = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// A component that runs.
pub(crate) struct RunningComponent {
    /// Its name.
    pub(crate) name: &'static str,
    /// The lease that it works under; none if it works in every process.
    pub(crate) lease: Option<String>,
    /// Whether its work ends by itself when the process stops, such as after it has released leases of its own.
    pub(crate) stops: bool,
    /// Its work while this process leads. It is dropped when leadership is lost, and called again when it is back.
    pub(crate) work: Work,
    /// Its metrics.
    pub(crate) metrics: Box<dyn Fn(&mut Text) + Send + Sync>,
    /// Its health check.
    pub(crate) health: Check,
    /// Its readiness check.
    pub(crate) readiness: Check,
    /// Its own pages.
    pub(crate) page: Pages,
}

impl RunningComponent {
    /// A component without metrics, checks and pages.
    pub(crate) fn new(name: &'static str, work: Work) -> Self {
        Self {
            name,
            lease: None,
            stops: false,
            work,
            metrics: Box::new(|_| {}),
            health: Box::new(|| None),
            readiness: Box::new(|| None),
            page: Box::new(|_| None),
        }
    }
}

/// The shared inputs of all components.
pub(crate) struct RunContext {
    /// The cluster.
    pub(crate) client: Client,
    /// The metrics of informers, clients and elections.
    pub(crate) metrics: Metrics,
    /// Restarts tasks.
    pub(crate) supervisor: Supervisor,
    /// VPAs and pods.
    pub(crate) informers: SharedInformers,
    /// Set when the process stops.
    pub(crate) stopped: watch::Receiver<bool>,
}

/// The maximal number of worker threads. Components wait for the API server most of the time, and each thread has a
/// heap of its own, so that a node with many cores would waste memory.
const MOST_THREADS: usize = 2;

/// How long the API server may take to respond before this process logs that it waits for it.
const REACH: Duration = Duration::from_secs(5);

/// Runs components until the process receives a signal to stop.
pub(crate) fn run(args: Run) -> anyhow::Result<()> {
    plumb_apiserver::serve::install_crypto();
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.min(MOST_THREADS))
        .enable_all()
        .build()
        .context("starting the asynchronous runtime")?;
    runtime.block_on(run_components(args.command.chosen()))
}

async fn run_components(chosen: Chosen) -> anyhow::Result<()> {
    warn_of_ignored(&chosen.ignored);
    let listener = http::listen(&chosen.address).await?;
    let address = listener.local_addr().context("finding the address")?;
    let metrics = Metrics::default();
    let client = connect(&chosen.common, &metrics).await?;
    if chosen.common.install_crds {
        install_when_reachable(&chosen, &client).await.context("installing definitions")?;
    }
    let (ask_to_stop, stopped) = watch::channel(false);
    let supervisor = plumb_supervise::process().clone();
    let informers = SharedInformers::new(&chosen, &metrics);
    let context = RunContext { client, metrics, supervisor, informers, stopped: stopped.clone() };
    let components: Arc<[RunningComponent]> = components(&chosen, &context)?.into();

    let mut signals = Signals::listen()?;
    let handler = pages(components.clone(), &context, &chosen.common);
    let serving = tokio::spawn(http::serve(listener, handler, until_stopped(stopped.clone())));
    let names: Vec<&str> = components.iter().map(|component| component.name).collect();
    // The components start meanwhile.
    let announcing = async {
        tokio::select! {
            is_reachable = is_reachable(&context.client) => announce!(
                "plumb {} {}; metrics and health are at http://{}",
                if is_reachable { "runs" } else { "waits for the API server to run" },
                names.join(", "),
                http::reached(address)
            ),
            () = until_stopped(stopped.clone()) => {}
        }
        Ok(())
    };

    let election = chosen.election.as_ref();
    let working = components.iter().map(|component| work(component, election, &context, stopped.clone()));
    let stopping = async {
        signals.next().await;
        say!("plumb: stopping");
        ask_to_stop.send_replace(true);
        Ok(())
    };
    // Elections release their leases before this ends.
    tokio::try_join!(try_join_all(working), stopping, announcing)?;
    serving.await.context("the metrics server failed")
}

/// Each component that a command may choose joins here.
fn components(chosen: &Chosen, context: &RunContext) -> anyhow::Result<Vec<RunningComponent>> {
    let (gates, vpas) = (&chosen.common.feature_gates, &chosen.vpas);
    let mut components = Vec::new();
    if let Some(recommender) = &chosen.recommender {
        let election = chosen.election.as_ref();
        components.push(recommender::component(recommender, election, vpas, gates, context)?);
    }
    if let Some(updater) = &chosen.updater {
        components.push(updater::component(updater, vpas, gates, context));
    }
    if let Some(admission) = &chosen.admission {
        components.push(admission::component(admission, vpas, gates, context));
    }
    if let Some(rollout) = &chosen.rollout {
        components.extend(rollout::components(rollout, gates, context));
    }
    Ok(components)
}

/// Installs the definitions of the components, once the API server can be reached.
async fn install_when_reachable(chosen: &Chosen, client: &Client) -> Result<(), InstallError> {
    let mut failures = 0;
    loop {
        match install(chosen, client).await {
            Err(InstallError::Request { source, .. }) if connection_failure(&source).is_some() => {
                failures += 1;
                tokio::time::sleep(INSTALL_DELAYS.after(failures)).await;
            }
            installed => return installed,
        }
    }
}

/// Installs the definitions of the components.
async fn install(chosen: &Chosen, client: &Client) -> Result<(), InstallError> {
    if chosen.recommender.is_some() || chosen.updater.is_some() || chosen.admission.is_some() {
        plumb_vpa::install::install(client).await?;
    }
    if chosen.rollout.is_some() {
        plumb_rollout::install::install(client).await?;
    }
    Ok(())
}

async fn until_stopped(mut stopped: watch::Receiver<bool>) {
    // The sender lives until the end.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Runs a component until the process stops: while it leads, if it is elected.
async fn work(
    component: &RunningComponent,
    election: Option<&ElectionFlags>,
    context: &RunContext,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    match (&component.lease, election.filter(|election| election.leader_elect)) {
        (Some(lease), Some(election)) => {
            let elector = LeaderElector::new(context.client.clone(), leader_config(election, lease, context));
            let elector = elector.context("the flags of the leader election")?;
            elector.run(until_stopped(stopped), || (component.work)()).await;
        }
        _ if component.stops => (component.work)().await,
        _ => tokio::select! {
            () = (component.work)() => {}
            () = until_stopped(stopped) => {}
        },
    }
    Ok(())
}

/// Warns about flags that are accepted for the sake of upstream's deployments and have no effect.
fn warn_of_ignored(ignored: &Ignored) {
    let ignored: Vec<String> = ignored.names().iter().map(|name| format!("--{name}")).collect();
    if !ignored.is_empty() {
        tracing::warn!(
            flags = ignored.join(", "),
            "flags of upstream's components without effect here; --log sets what is logged"
        );
    }
}

/// A client of the cluster that the flags name, which counts its requests and does not send too many.
async fn connect(flags: &CommonFlags, metrics: &Metrics) -> anyhow::Result<Client> {
    let mut config = config(Path::new(&flags.kubeconfig)).await?;
    // Components have backoffs of their own. A disruption budget answers an eviction with 429: the client would
    // repeat it for minutes, without a report meanwhile.
    config.default_retry = false;
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let url = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let client = Client::try_from(config).context("making a client")?;
    let namespace = client.default_namespace().to_owned();
    let limited = rate_limit::limited(client, flags.kube_api_qps, flags.kube_api_burst);
    let reported = Reported::new(limited, url, |text| say!("plumb: {text}"));
    Ok(Client::new(metrics.rest_client(&host).count(reported), namespace))
}

/// Whether the API server can be reached now.
async fn is_reachable(client: &Client) -> bool {
    match tokio::time::timeout(REACH, client.apiserver_version()).await {
        Ok(Err(error)) => connection_failure(&error).is_none(),
        Ok(Ok(_)) => true,
        Err(_) => false,
    }
}

/// How the cluster is reached: by the file that is named, by the service account of the pod, or by the user's kubeconfig.
async fn config(kubeconfig: &Path) -> anyhow::Result<Config> {
    if !kubeconfig.as_os_str().is_empty() {
        let read = Kubeconfig::read_from(kubeconfig);
        let read = read.with_context(|| format!("reading the kubeconfig {}", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
        return config.with_context(|| format!("reading the kubeconfig {}", kubeconfig.display()));
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Config::incluster().context("reading the service account of this pod");
    }
    Config::from_kubeconfig(&KubeConfigOptions::default())
        .await
        .context("finding the cluster; --kubeconfig or KUBECONFIG names a kubeconfig")
}

fn leader_config(election: &ElectionFlags, lease: &str, context: &RunContext) -> LeaderConfig {
    LeaderConfig {
        durations: election.durations(),
        supervisor: context.supervisor.clone(),
        metrics: context.metrics.clone(),
        ..LeaderConfig::new(&*election.leader_elect_resource_namespace, lease, identity())
    }
}

/// The identity of this process in leases.
pub(crate) fn identity() -> String {
    format!("{}_{}", hostname(), std::process::id())
}

fn hostname() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| "plumb".to_owned())
}

/// Serves metrics, health, and the pages of components.
fn pages(components: Arc<[RunningComponent]>, context: &RunContext, flags: &CommonFlags) -> Handler {
    let gates = flags.feature_gates.clone();
    let (metrics, supervisor) = (context.metrics.clone(), context.supervisor.clone());
    Arc::new(move |request| match request.path.as_str() {
        "/metrics" => {
            let mut text = Text::default();
            metrics.render(&mut text);
            supervisor.render(&mut text);
            features::render(&gates, &mut text);
            for component in &*components {
                (component.metrics)(&mut text);
            }
            PageResponse { content_type: CONTENT_TYPE, ..PageResponse::text(text.finish()) }
        }
        // Upstream's name, and the usual ones.
        "/health-check" | "/healthz" | "/livez" => health(wrong(&components, &supervisor)),
        "/readyz" => health(wrong(&components, &supervisor).or_else(|| unready(&components))),
        _ => {
            let page = components.iter().find_map(|component| (component.page)(request));
            page.unwrap_or_else(|| {
                PageResponse::refusal(
                    StatusCode::NOT_FOUND,
                    "not found; there are /metrics, /healthz, /readyz and, of the recommender, /debug/vpa\n",
                )
            })
        }
    })
}

fn health(wrong: Option<String>) -> PageResponse {
    match wrong {
        None => PageResponse::text("OK"),
        Some(why) => PageResponse::refusal(StatusCode::INTERNAL_SERVER_ERROR, format!("Error: {why}\n")),
    }
}

/// Why a restart of this process may help: the failed health check.
fn wrong(components: &[RunningComponent], supervisor: &Supervisor) -> Option<String> {
    let of_components = components
        .iter()
        .find_map(|component| Some(format!("{}: {}", component.name, (component.health)()?)));
    of_components.or_else(|| {
        let tasks = supervisor.tasks();
        tasks.iter().find_map(|task| Some(format!("{}: {}", task.name, task.dead()?)))
    })
}

/// Why no requests should be sent to this process yet: the failed readiness check.
fn unready(components: &[RunningComponent]) -> Option<String> {
    components.iter().find_map(|component| Some(format!("{}: {}", component.name, (component.readiness)()?)))
}
