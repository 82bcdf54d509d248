//! The updater.

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use plumb_controller_runtime::Clock;
use plumb_controller_runtime::metrics::Metrics;
use plumb_install::Component;
use plumb_resize::rules::Rules;
use plumb_supervise::Supervisor;
use plumb_updater::options::AdmissionLease;
use plumb_updater::{Config, Options, Updater, UpdaterMetrics};
use plumb_vpa::boost::annotation::key;
use plumb_vpa::informers::Informers;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa::target::{TargetConfig, Targets};
use serde_json::json;
use tokio::task::JoinSet;

use super::log::client;
use super::world::{KINDS, World};

/// Starts the updater with the permissions of a client. It ends when the result is dropped.
fn start(client: &Client, namespace: String) -> JoinSet<()> {
    let supervisor = Supervisor::default();
    let informers = Informers::new(Namespaces::All, &Metrics::default());
    let updater = Updater::new(Config {
        client: client.clone(),
        informers: informers.clone(),
        targets: Targets::new(client.clone(), TargetConfig::default()),
        options: Options {
            admission_lease: Some(AdmissionLease { namespace, ..AdmissionLease::default() }),
            memory_decrease_guard: true,
            node_selectors: true,
            ..Options::default()
        },
        rules: Rules::v1_36(),
        clock: Clock::default(),
        supervisor: supervisor.clone(),
        metrics: Metrics::default(),
        updater_metrics: UpdaterMetrics::default(),
    });
    let mut running = JoinSet::new();
    running.spawn(updater.run());
    running.spawn(informers.run(client, &supervisor));
    running
}

#[tokio::test(flavor = "multi_thread")]
async fn the_updater_uses_every_right_that_it_has_and_needs_no_other() {
    let world = World::new().await;
    for (api_version, kind) in KINDS {
        // One that is evicted, and one that does not fit its node, which is recorded; the others are resized.
        let (mode, milli) = match kind {
            "StatefulSet" => ("Recreate", 500),
            "DaemonSet" => ("InPlace", 20_000),
            _ => ("InPlaceOrRecreate", 500),
        };
        world.workload(api_version, kind, mode).await;
        world.recommend_cpu(&kind.to_lowercase(), milli).await;
    }
    let (client, log) = client(&world.cluster, Component::Updater);
    let namespace = plumb_install::Options::default().namespace;
    // Valid for longer than the test takes on a slow machine.
    world.admission_lease(&namespace, Timestamp::now() + SignedDuration::from_hours(1)).await;
    let running = start(&client, namespace);
    log.wait_for("patch pods/resize").await;
    log.wait_for("create pods/eviction").await;
    log.wait_for("create events").await;
    log.wait_for("patch verticalpodautoscalers/status.autoscaling.k8s.io").await;
    log.check(
        Component::Updater,
        &[
            // Other tests cover these.
            "get pods",
            "get nodes",
            // An event that is repeated is counted up.
            "patch events",
        ],
    )
    .await;
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_updater_may_read_a_boosted_pod_whose_vpa_is_deleted() {
    let world = World::new().await;
    let original = json!({ "requests": { "cpu": "100m" } }).to_string();
    let pod = json!({
        "metadata": { "name": "boosted", "annotations": { key("app"): original } },
        "spec": { "nodeName": "n", "containers": [{
            "name": "app", "image": "i", "resources": { "requests": { "cpu": "300m" } },
        }] },
    });
    world.create("v1", "Pod", pod).await;
    let (client, log) = client(&world.cluster, Component::Updater);
    let running = start(&client, plumb_install::Options::default().namespace);
    log.wait_for("get pods").await;
    log.check_not_forbidden(Component::Updater);
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_updater_may_read_the_node_of_a_boosted_pod_that_it_has_not_observed() {
    let world = World::new().await;
    world.workload("apps/v1", "DaemonSet", "Initial").await;
    world.vpa_of_nodes("of-nodes").await;
    let original = json!({ "requests": { "cpu": "100m" } }).to_string();
    world.pod_on_unknown_node(json!({ key("app"): original })).await;
    let (client, log) = client(&world.cluster, Component::Updater);
    let running = start(&client, plumb_install::Options::default().namespace);
    log.wait_for("get nodes").await;
    log.check_not_forbidden(Component::Updater);
    drop(running);
}
