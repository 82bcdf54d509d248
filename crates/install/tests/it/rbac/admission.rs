//! The admission webhook, called by the API server.

use plumb_client::Api;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, Informer};
use plumb_install::Component;
use plumb_supervise::Supervisor;
use plumb_testkit::{eventually, in_time};
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa_admission::metrics::AdmissionMetrics;
use plumb_vpa_admission::registration::registration;
use plumb_vpa_admission::status_lease::StatusLease;
use plumb_vpa_admission::vpa::Gates;
use plumb_vpa_admission::{Admission, Environment, Options};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::json;
use tokio::task::JoinSet;

use super::log::client;
use super::world::{KINDS, World};

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_uses_every_right_that_it_has_and_needs_no_other() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let world = World::new().await;
    let (client, log) = client(&world.cluster, Component::Admission);
    let namespace = plumb_install::Options::default().namespace;
    let register = |endpoint| registration(endpoint, &Namespaces::All);
    let options = Options {
        server: plumb_webhook::Options::on_loopback(&namespace, "vpa-webhook-ca", register),
        status_lease: StatusLease::new(namespace, "test"),
        max_allowed_cpu_boost: None,
        node_selectors: true,
        gates: Gates { startup_boost: true, in_place: true, per_vpa_config: true },
    };
    let vpas: Informer<VerticalPodAutoscaler> = Informer::default();
    let supervisor = Supervisor::default();
    let environment = Environment {
        client: client.clone(),
        vpas: vpas.clone(),
        supervisor: supervisor.clone(),
        metrics: Metrics::default(),
        admission_metrics: AdmissionMetrics::default(),
        clock: Clock::default(),
    };
    let admission = Admission::new(options, environment);
    let mut registered = admission.registered();
    let mut running = JoinSet::new();
    running.spawn(vpas.supervised(Api::all(client.clone()), &supervisor));
    running.spawn(admission.run());
    in_time(registered.wait_for(|registered| *registered)).await.unwrap();
    for (api_version, kind) in KINDS {
        world.workload(api_version, kind, "Initial").await;
        world.recommend(&kind.to_lowercase()).await;
    }
    world.vpa("second", "apps/v1", "Deployment", "Initial").await;
    // Pods that come later have a VPA whose target is to be found.
    for (_, kind) in KINDS {
        world.another_pod(kind).await;
    }
    // Its labels decide which VPA of the DaemonSet controls the pod, once the webhook knows the second VPA.
    world.vpa_of_nodes("of-nodes").await;
    eventually(async || {
        world.pod_on_unknown_node(json!({})).await;
        log.has_used("get nodes")
    })
    .await;
    log.wait_for("create leases.coordination.k8s.io").await;
    // Two VPAs target the Deployment: the webhook reports on one of them that it controls nothing.
    log.wait_for("create events").await;
    log.check(
        Component::Admission,
        &[
            // An event that is repeated is counted up.
            "patch events",
            // When the authority is renewed, after years.
            "update secrets",
        ],
    )
    .await;
    running.shutdown().await;
}
