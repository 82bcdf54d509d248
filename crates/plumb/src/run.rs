//! `plumb run`: components against a cluster that runs elsewhere, until SIGTERM or Ctrl-C.
//!
//! ```text
//!   flags ──▶ client, with upstream's rate limit ──▶ parts ──▶ lease held? ──▶ each part works
//!                                                      │
//!                     --address: /metrics, /health-check, /debug/… ◀┘
//! ```
//!
//! A component joins as a [`Part`]: what it does while this process leads, what it counts, and what it says of itself.

mod http;
mod rate_limit;
mod recommender;

use std::path::Path;
use std::sync::Arc;

use ::http::StatusCode;
use anyhow::Context as _;
use futures_util::future::{BoxFuture, join_all};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use plumb_controller::leader::{Durations, LeaderConfig, LeaderElector};
use plumb_controller::metrics::Metrics;
use plumb_metrics::{CONTENT_TYPE, Text};
use plumb_supervise::Supervisor;
use tokio::sync::watch;

use crate::cli::{CommonFlags, RecommenderFlags, Run, RunCommand};
use crate::features;
use crate::up::stop_requested;
use http::{Asked, Handler, Page};

/// The work of a component, for as long as this process leads.
type Work = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What answers requests for the pages of a component.
type Pages = Box<dyn Fn(&Asked) -> Option<Page> + Send + Sync>;

/// A component that runs.
pub(crate) struct Part {
    /// What it is called.
    pub(crate) name: &'static str,
    /// What it does while this process leads. It is dropped when leadership is lost, and called again when it is back.
    pub(crate) work: Work,
    /// Its metrics.
    pub(crate) metrics: Box<dyn Fn(&mut Text) + Send + Sync>,
    /// What is wrong with it, if anything is.
    pub(crate) health: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Its own pages.
    pub(crate) page: Pages,
}

/// What parts are made with.
pub(crate) struct Ground {
    /// The cluster.
    pub(crate) client: Client,
    /// What informers, clients and elections count.
    pub(crate) metrics: Metrics,
    /// Restarts tasks.
    pub(crate) supervisor: Supervisor,
}

/// Runs components until the process is asked to stop.
pub(crate) fn run(args: Run) -> anyhow::Result<()> {
    plumb_apiserver::serve::install_crypto();
    let (RunCommand::All(flags) | RunCommand::Recommender(flags)) = args.command;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the asynchronous runtime")?;
    runtime.block_on(run_parts(*flags))
}

async fn run_parts(flags: RecommenderFlags) -> anyhow::Result<()> {
    warn_of_ignored(&flags);
    let common = &flags.common;
    let listener = http::listen(&flags.address).await?;
    let address = listener.local_addr().context("finding the address")?;
    let metrics = Metrics::default();
    let client = connect(common, &metrics).await?;
    if common.install_crds {
        plumb_autoscaler::install::install(&client).await.context("installing definitions")?;
    }
    let supervisor = plumb_supervise::process().clone();
    let ground = Ground { client: client.clone(), metrics: metrics.clone(), supervisor: supervisor.clone() };
    // Each component that is added joins here.
    let parts = Arc::new([recommender::part(&flags, &ground)?]);

    let stop = stop_requested()?;
    let (ask_to_stop, stopped) = watch::channel(false);
    let until_stopped = |mut stopped: watch::Receiver<bool>| async move {
        // The sender lives until the end.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let handler = pages(parts.clone(), metrics.clone(), common);
    let serving = tokio::spawn(http::serve(listener, handler, until_stopped(stopped.clone())));
    let names: Vec<&str> = parts.iter().map(|part| part.name).collect();
    println!("plumb runs {}; metrics and health are at http://{}", names.join(", "), http::reached(address));

    let work = || join_all(parts.iter().map(|part| (part.work)()));
    let working = async {
        if common.leader_elect {
            let elector = elector(&flags, &ground)?;
            elector.run(until_stopped(stopped), work).await;
        } else {
            tokio::select! {
                _ = work() => {}
                () = until_stopped(stopped) => {}
            }
        }
        anyhow::Ok(())
    };
    let stopping = async {
        stop.await;
        eprintln!("plumb: stopping");
        ask_to_stop.send_replace(true);
    };
    // The election releases its lease before this ends.
    let (worked, ()) = tokio::join!(working, stopping);
    worked?;
    serving.await.context("the server of metrics ended badly")
}

/// Says which flags are accepted for the sake of upstream's deployments and do nothing.
fn warn_of_ignored(flags: &RecommenderFlags) {
    let ignored: Vec<String> = flags.ignored.names().iter().map(|name| format!("--{name}")).collect();
    if !ignored.is_empty() {
        tracing::warn!(
            flags = ignored.join(", "),
            "flags of upstream's recommender without effect here; --log sets what is logged"
        );
    }
}

/// A client of the cluster that the flags name, which counts its requests and does not send too many.
async fn connect(flags: &CommonFlags, metrics: &Metrics) -> anyhow::Result<Client> {
    let config = config(Path::new(&flags.kubeconfig)).await?;
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let client = Client::try_from(config).context("making a client")?;
    let namespace = client.default_namespace().to_owned();
    let limited = rate_limit::limited(client, flags.kube_api_qps, flags.kube_api_burst);
    Ok(Client::new(metrics.rest_client(&host).count(limited), namespace))
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

fn elector(flags: &RecommenderFlags, ground: &Ground) -> anyhow::Result<LeaderElector> {
    let common = &flags.common;
    let identity = format!("{}_{}", hostname(), std::process::id());
    let config = LeaderConfig {
        durations: Durations {
            lease: common.leader_elect_lease_duration,
            renew_deadline: common.leader_elect_renew_deadline,
            retry_period: common.leader_elect_retry_period,
        },
        supervisor: ground.supervisor.clone(),
        metrics: ground.metrics.clone(),
        ..LeaderConfig::new(
            &*common.leader_elect_resource_namespace,
            &*flags.leader_elect_resource_name,
            identity,
        )
    };
    LeaderElector::new(ground.client.clone(), config).context("the flags of the leader election")
}

fn hostname() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| "plumb".to_owned())
}

/// What is served: metrics, health, and what the parts say of themselves.
fn pages<const N: usize>(parts: Arc<[Part; N]>, metrics: Metrics, flags: &CommonFlags) -> Handler {
    let gates = flags.feature_gates.clone();
    Arc::new(move |asked| match asked.path.as_str() {
        "/metrics" => {
            let mut text = Text::default();
            metrics.render(&mut text);
            features::render(&gates, &mut text);
            for part in &*parts {
                (part.metrics)(&mut text);
            }
            Page { content_type: CONTENT_TYPE, ..Page::text(text.finish()) }
        }
        // Upstream's name, and the usual ones.
        "/health-check" | "/healthz" | "/livez" | "/readyz" => {
            let wrong = parts.iter().find_map(|part| Some((part.name, (part.health)()?)));
            match wrong {
                None => Page::text("OK"),
                Some((name, why)) => {
                    Page::refusal(StatusCode::INTERNAL_SERVER_ERROR, format!("Error: {name}: {why}\n"))
                }
            }
        }
        _ => {
            let page = parts.iter().find_map(|part| (part.page)(asked));
            page.unwrap_or_else(|| {
                Page::refusal(
                    StatusCode::NOT_FOUND,
                    "not found; there are /metrics, /health-check and /debug/vpa\n",
                )
            })
        }
    })
}
