//! The recommender as a component of `plumb run`.

use std::sync::Arc;

use ::http::StatusCode;
use anyhow::Context as _;
use futures_util::future::{FutureExt as _, join, select};
use parking_lot::Mutex;
use plumb_controller_runtime::Clock;
use plumb_controller_runtime::leader::{Durations, LeaderConfig};
use plumb_features::FeatureGates;
use plumb_recommender::input::environment::EnvironmentOptions;
use plumb_recommender::input::external_metrics::ExternalMetrics;
use plumb_recommender::input::live_usage::{LiveUsage, MetricsApi};
use plumb_recommender::input::prometheus::Prometheus;
use plumb_recommender::metrics::RecommenderMetrics;
use plumb_recommender::shards::{Elections, Ownership, ShardConfig};
use plumb_recommender::{ClusterSettings, Config, Options, Recommender, SharedState, Storage, VpaKey};
use plumb_vpa::features::PER_VPA_CONFIG;
use plumb_vpa::target::{TargetConfig, Targets};
use plumb_vpa_explain::{VpaExplanation, printable};

use super::http::{PageRequest, PageResponse};
use super::{RunContext, RunningComponent};
use crate::cli::{Elected, ElectionFlags, RecommenderFlags, StorageFlag, VpaScope};

/// Where explanations are served.
const DEBUG: &str = "/debug/vpa";

/// The recommender that works at the moment, if this process leads.
type Current = Arc<Mutex<Option<Recommender>>>;

/// The recommender of these flags.
pub(super) fn component(
    elected: &Elected<RecommenderFlags>,
    election: Option<&ElectionFlags>,
    vpas: &VpaScope,
    gates: &FeatureGates,
    context: &RunContext,
) -> anyhow::Result<RunningComponent> {
    let flags = &elected.flags;
    let metrics = RecommenderMetrics::default();
    let options = options(flags, vpas, gates);
    let external = flags.external_metrics();
    let history = match options.storage {
        Storage::Checkpoint => None,
        Storage::Prometheus => Some(
            Prometheus::with_metrics(
                flags.prometheus_settings(&vpas.namespaces),
                metrics.prometheus_client(),
            )
            .context("the flags of Prometheus")?,
        ),
    };
    let sharded = election.filter(|_| flags.shards > 1);
    let sharded = sharded.map(|election| elections(flags.shards, election, &elected.lease, context));
    let elections = sharded.transpose()?;
    let is_sharded = elections.is_some();
    let ownership = elections.as_ref().map_or_else(Ownership::everything, Elections::ownership);
    // There is one term with shards: the work is called for once.
    let elections = Mutex::new(elections);
    let stopped = context.stopped.clone();
    let current = Current::default();
    let (shown, healthy, explained) = (metrics.clone(), current.clone(), current.clone());
    let (client, of_toolkit, supervisor) =
        (context.client.clone(), context.metrics.clone(), context.supervisor.clone());
    let shared = context.informers.clone();
    let work = move || {
        let (informers, informing) = shared.of_term(&options.namespaces, &client, &of_toolkit, &supervisor);
        let targets = Targets::new(client.clone(), TargetConfig::default());
        let usage: Arc<dyn LiveUsage> = match external.clone() {
            None => Arc::new(MetricsApi::new(client.clone(), &options.namespaces)),
            Some(settings) => {
                let client = client.clone();
                Arc::new(ExternalMetrics::new(client, settings, &options, &informers, &targets, &ownership))
            }
        };
        let recommender = Recommender::new(Config {
            client: client.clone(),
            targets,
            usage,
            history: history.clone(),
            options: options.clone(),
            informers,
            clock: Clock::default(),
            supervisor: supervisor.clone(),
            ownership: ownership.clone(),
            metrics: metrics.clone(),
        });
        *current.lock() = Some(recommender.clone());
        let working = join(recommender.run(), informing).map(drop);
        let Some(elections) = elections.lock().take() else { return working.boxed() };
        let electing = elections.run(super::until_stopped(stopped.clone()).boxed());
        // The leases are released while requests that are under way end.
        select(working.boxed(), electing).map(drop).boxed()
    };
    Ok(RunningComponent {
        lease: Some(elected.lease.clone()).filter(|_| !is_sharded),
        stops: is_sharded,
        metrics: Box::new(move |text| shown.render(text)),
        health: Box::new(move || {
            let late = healthy.lock().as_ref()?.overdue()?;
            Some(format!("a run has been overdue for {} s", late.as_secs()))
        }),
        page: Box::new(move |request| page(&explained, request)),
        ..RunningComponent::new("recommender", Box::new(work))
    })
}

/// The elections of the shards. By default they are taken over sooner than upstream's lease.
fn elections(
    shards: u32,
    election: &ElectionFlags,
    lease: &str,
    context: &RunContext,
) -> anyhow::Result<Elections> {
    let leader = super::leader_config(election, lease, context);
    let mut config = ShardConfig::sharded(shards, &leader.namespace, &leader.identity);
    let durations =
        if leader.durations == Durations::default() { config.leader.durations } else { leader.durations };
    config.leader = LeaderConfig { durations, jitter: config.leader.jitter, ..leader };
    Elections::new(&context.client, &config).context("the flags of the leader election")
}

/// The options of these flags.
fn options(flags: &RecommenderFlags, vpas: &VpaScope, gates: &FeatureGates) -> Options {
    Options {
        name: flags.recommender_name.clone(),
        interval: flags.recommender_interval,
        namespaces: vpas.namespaces.clone(),
        cluster: ClusterSettings {
            aggregation: flags.tuning.aggregation(),
            estimation: flags.tuning.estimation(),
            memory_saver: flags.memory_saver,
            ..ClusterSettings::default()
        },
        storage: match flags.storage {
            StorageFlag::Checkpoint => Storage::Checkpoint,
            StorageFlag::Prometheus => Storage::Prometheus,
        },
        checkpoints_timeout: flags.checkpoints_timeout,
        min_checkpoints: flags.min_checkpoints,
        checkpoints_gc_interval: flags.checkpoints_gc_interval,
        update_workers: flags.update_worker_count.into(),
        per_vpa_config: gates.enabled(&PER_VPA_CONFIG),
        environment: EnvironmentOptions {
            cap_by_largest_node: flags.cap_by_largest_node,
            cap_by_quota: flags.cap_by_quota,
            yield_to_hpa: flags.yield_to_hpa,
            node_selectors: vpas.node_selectors,
        },
    }
}

/// `/debug/vpa`: the VPAs; `/debug/vpa/NAMESPACE/NAME`: why one has the recommendation that it has.
fn page(current: &Current, request: &PageRequest) -> Option<PageResponse> {
    let state = current.lock().as_ref().map(Recommender::state).unwrap_or_default();
    let rest = request.path.strip_prefix(DEBUG)?;
    let segments: Vec<&str> = rest.split('/').filter(|segment| !segment.is_empty()).collect();
    let standby = || {
        PageResponse::refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the recommender does not work at the moment: another process leads, or it starts\n",
        )
    };
    match segments.as_slice() {
        [] => Some(list(&state, request.json).unwrap_or_else(standby)),
        [namespace, name] => {
            let key = VpaKey::new(namespace, name);
            let explained = state.read(|state| state.explain(&key));
            Some(explained.map_or_else(standby, |explained| match explained {
                None => PageResponse::refusal(StatusCode::NOT_FOUND, {
                    format!("this recommender has no VPA {}\n", printable(&key.to_string()))
                }),
                Some(containers) => {
                    let explanation = VpaExplanation::of_recommender(key, containers);
                    if request.json {
                        PageResponse::json(&explanation.json())
                    } else {
                        PageResponse::text(explanation.text())
                    }
                }
            }))
        }
        _ => None,
    }
}

/// The VPAs that have an explanation.
fn list(state: &SharedState, json: bool) -> Option<PageResponse> {
    let keys: Vec<String> = state.read(|state| {
        let mut keys: Vec<String> = state.cluster().vpa_keys().map(ToString::to_string).collect();
        keys.sort_unstable();
        keys
    })?;
    Some(if json {
        PageResponse::json(&serde_json::json!(keys))
    } else {
        PageResponse::text(keys.iter().flat_map(|key| [DEBUG, "/", key, "\n"]).collect::<String>())
    })
}
