//! The autoscaler of a cluster on this machine: each part is a user of its own.

mod admission;

use std::sync::Arc;

use kube::Client;
use plumb_apiserver::authn::User;
use plumb_controller_runtime::Clock;
use plumb_controllers::{GROUPS, user_of};
use plumb_recommender::input::environment::EnvironmentOptions;
use plumb_recommender::input::live_usage::MetricsApi;
use plumb_recommender::metrics::RecommenderMetrics;
use plumb_recommender::shards::Ownership;
use plumb_recommender::{Config, Options, Recommender};
use plumb_updater::{Updater, UpdaterMetrics};
use plumb_vpa::features::PER_VPA_CONFIG;
use plumb_vpa::informers::Informers;
use plumb_vpa::install::install;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa::target::{TargetConfig, Targets};
use plumb_vpa_admission::metrics::AdmissionMetrics;
use plumb_vpa_admission::{Admission, Environment};
use tokio::task::JoinSet;

use crate::components::Context;
use crate::definitions::{self, define};

/// The user that the recommender is.
const RECOMMENDER: &str = "vpa-recommender";
/// The user that the updater is.
const UPDATER: &str = "vpa-updater";
/// The user that the admission webhook is.
const ADMISSION: &str = "vpa-admission-controller";

/// Starts the autoscaler; it ends when the returned value is dropped.
pub(crate) fn start(context: &Context<'_>) -> JoinSet<()> {
    let (server, supervisor) = (context.server, context.supervisor.clone());
    let client = |name: &str| {
        let user = User::new(user_of(name), "", GROUPS);
        Client::new(context.count(server.inside(user)), "default")
    };
    let informers = Informers::new(Namespaces::All, context.metrics);
    let own = client(RECOMMENDER);
    let metrics = RecommenderMetrics::default();
    let recommender = Recommender::new(Config {
        client: own.clone(),
        options: Options {
            interval: context.autoscaler.recommender_interval,
            per_vpa_config: context.binding.gates.enabled(&PER_VPA_CONFIG),
            environment: EnvironmentOptions {
                node_selectors: context.autoscaler.node_selectors,
                ..EnvironmentOptions::default()
            },
            ..Options::default()
        },
        informers: informers.clone(),
        targets: Targets::new(own.clone(), TargetConfig::default()),
        usage: Arc::new(MetricsApi::new(own.clone(), &Namespaces::All)),
        history: None,
        clock: Clock::default(),
        supervisor: supervisor.clone(),
        ownership: Ownership::everything(),
        metrics: metrics.clone(),
    });
    server.also_show(move |text| metrics.render(text));
    let updater = updater(context, client(UPDATER), &informers);
    let admission_metrics = AdmissionMetrics::default();
    let admission = Admission::new(
        admission::options(context.autoscaler, &context.binding.gates),
        Environment {
            client: client(ADMISSION),
            vpas: informers.vpas.clone(),
            supervisor: supervisor.clone(),
            metrics: context.metrics.clone(),
            admission_metrics: admission_metrics.clone(),
            clock: Clock::default(),
        },
    );
    server.also_show(move |text| admission_metrics.render(text));
    let mut running = JoinSet::new();
    running.spawn(admission.run());
    running.spawn(recommender.run());
    running.spawn(updater.run());
    let installer = client(definitions::USER);
    running.spawn(async move {
        define("VPAs", || install(&installer)).await;
        informers.run(&own, &supervisor).await;
    });
    running
}

fn updater(context: &Context<'_>, client: Client, informers: &Informers) -> Updater {
    let metrics = UpdaterMetrics::default();
    let shown = metrics.clone();
    context.server.also_show(move |text| shown.render(text));
    Updater::new(plumb_updater::Config {
        client: client.clone(),
        informers: informers.clone(),
        targets: Targets::new(client, TargetConfig::default()),
        options: plumb_updater::Options {
            interval: context.autoscaler.updater_interval,
            node_selectors: context.autoscaler.node_selectors,
            memory_decrease_guard: context.autoscaler.memory_decrease_guard,
            startup_boost_deadline: Some(context.autoscaler.startup_boost_deadline),
            startup_boost_on_restart: context.autoscaler.startup_boost_on_restart,
            max_allowed_cpu_boost: context.autoscaler.max_allowed_cpu_boost,
            ..plumb_updater::Options::new(&context.binding.gates)
        },
        rules: context.rules.clone(),
        clock: Clock::default(),
        supervisor: context.supervisor.clone(),
        metrics: context.metrics.clone(),
        updater_metrics: metrics,
    })
}
