//! The recommender.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::DeleteParams;
use plumb_client::Api;
use plumb_controller_runtime::Clock;
use plumb_controller_runtime::metrics::Metrics;
use plumb_install::Component;
use plumb_recommender::input::environment::EnvironmentOptions;
use plumb_recommender::input::external_metrics::{ExternalMetrics, ExternalMetricsSettings};
use plumb_recommender::input::live_usage::{LiveUsage as _, MetricsApi};
use plumb_recommender::metrics::RecommenderMetrics;
use plumb_recommender::shards::Ownership;
use plumb_recommender::{Config, Options, Recommender};
use plumb_resize::resource::Resource;
use plumb_supervise::Supervisor;
use plumb_testkit::eventually;
use plumb_vpa::informers::Informers;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa::target::{TargetConfig, Targets};
use plumb_vpa_api::VerticalPodAutoscaler;
use tokio::task::JoinSet;

use super::log::client;
use super::world::{KINDS, World};

/// Usage that comes from an adapter, instead of metrics-server.
const EXTERNAL_METRICS: &str = "list *.external.metrics.k8s.io";

#[tokio::test(flavor = "multi_thread")]
async fn the_recommender_uses_every_right_that_it_has_and_needs_no_other() {
    let world = World::new().await;
    for (api_version, kind) in KINDS {
        world.workload(api_version, kind, "Off").await;
    }
    let (client, log) = client(&world.cluster, Component::Recommender);
    let supervisor = Supervisor::default();
    let informers = Informers::new(Namespaces::All, &Metrics::default());
    let recommender = Recommender::new(Config {
        client: client.clone(),
        options: Options {
            interval: Duration::from_millis(100),
            checkpoints_gc_interval: Duration::from_millis(100),
            environment: EnvironmentOptions {
                cap_by_largest_node: true,
                cap_by_quota: true,
                yield_to_hpa: true,
                ..EnvironmentOptions::default()
            },
            ..Options::default()
        },
        informers: informers.clone(),
        targets: Targets::new(client.clone(), TargetConfig::default()),
        usage: Arc::new(MetricsApi::new(client.clone(), &Namespaces::All)),
        history: None,
        clock: Clock::default(),
        supervisor: supervisor.clone(),
        ownership: Ownership::everything(),
        metrics: RecommenderMetrics::default(),
    });
    let mut running = JoinSet::new();
    running.spawn(recommender.run());
    running.spawn(informers.run(&client, &supervisor));
    log.wait_for("patch verticalpodautoscalers/status.autoscaling.k8s.io").await;
    log.wait_for("create verticalpodautoscalercheckpoints.autoscaling.k8s.io").await;
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(world.admin.clone());
    vpas.delete("statefulset", &DeleteParams::default()).await.unwrap();
    log.wait_for("delete verticalpodautoscalercheckpoints.autoscaling.k8s.io").await;
    log.check(Component::Recommender, &[EXTERNAL_METRICS]).await;
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recommender_may_read_external_metrics() {
    let world = World::new().await;
    world.workload("apps/v1", "Deployment", "Off").await;
    let (client, log) = client(&world.cluster, Component::Recommender);
    let informers = Informers::new(Namespaces::All, &Metrics::default());
    let usage = ExternalMetrics::new(
        client.clone(),
        ExternalMetricsSettings {
            metrics: [(Resource::Cpu, "cpu_usage".to_owned())].into(),
            container_name_label: "container".to_owned(),
        },
        &Options::default(),
        &informers,
        &Targets::new(client.clone(), TargetConfig::default()),
        &Ownership::everything(),
    );
    let mut running = JoinSet::new();
    running.spawn(informers.run(&client, &Supervisor::default()));
    // There is no adapter here: the request has to be allowed, and fail with 404.
    eventually(async || {
        let _ = usage.read(Timestamp::now()).await;
        log.has_used("list cpu_usage.external.metrics.k8s.io")
    })
    .await;
    log.check_not_forbidden(Component::Recommender);
    running.shutdown().await;
}
