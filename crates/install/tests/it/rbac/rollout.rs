//! The rollout controllers and their webhook, among the native controllers and a node.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use plumb_client::{Api, Codec};
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, Watchable};
use plumb_controllers::{GROUPS, WATCHER, user_of};
use plumb_install::Component;
use plumb_resize::rules::Rules;
use plumb_rollout::api::cloneset::CloneSet;
use plumb_rollout::webhook::{self, HoldWebhook};
use plumb_rollout::{Config, Rollout};
use plumb_supervise::Supervisor;
use plumb_testkit::{eventually, in_time, object, until_all};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::log::{Log, client};
use super::node::{INFEASIBLE, run_node};
use super::world::World;

/// The workloads, and how many pods each has.
const WORKLOADS: [(&str, usize); 4] = [("web", 2), ("db", 2), ("agent", 1), ("set", 3)];

fn workload(name: &str, further: Value) -> Value {
    let labels = json!({ "app": name });
    let mut workload = json!({
        "metadata": { "name": name, "annotations": { "rollout.plumb.dev/in-place": "true" } },
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "terminationGracePeriodSeconds": 0, "containers": [{
                "name": "main", "image": "i:1", "resources": { "requests": { "cpu": "100m", "memory": "16Mi" } },
            }] },
        } },
    });
    for (field, value) in further.as_object().unwrap() {
        workload["spec"][field] = value.clone();
    }
    workload
}

/// A workload of every kind, and a policy that has the pods of one recreated where they cannot be resized.
async fn create_workloads(world: &World) {
    world.create("apps/v1", "Deployment", workload("web", json!({ "replicas": 2 }))).await;
    let stateful = workload("db", json!({ "replicas": 2, "serviceName": "db" }));
    world.create("apps/v1", "StatefulSet", stateful).await;
    world.create("apps/v1", "DaemonSet", workload("agent", json!({}))).await;
    // The CloneSet adopts this pod.
    let orphan: ControllerRevision =
        object(json!({ "metadata": { "name": "orphan", "labels": { "app": "set" } }, "revision": 1 }));
    let revisions: Api<ControllerRevision> = Api::default_namespaced(world.admin.clone());
    revisions.create(&PostParams::default(), &orphan).await.unwrap();
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let further = json!({
        "replicas": 3, "volumeClaimTemplates": [claim], "revisionHistoryLimit": 1,
        "updateStrategy": { "type": "InPlaceIfPossible", "maxUnavailable": "100%" },
        // The controller removes names of pods that do not exist.
        "scaleStrategy": { "podsToDelete": ["set-missing"] },
    });
    world.create("apps.kruise.io/v1alpha1", "CloneSet", workload("set", further)).await;
    let policy = json!({ "metadata": { "name": "web" }, "spec": {
        "targetRef": { "kind": "Deployment", "name": "web" }, "onFailure": "RecreatePod",
    } });
    world.create("plumb.dev/v1alpha1", "RolloutPolicy", policy).await;
}

/// Waits until the pods of a workload run with this cpu.
async fn until_pods(world: &World, app: &str, count: usize, cpu: &str) {
    let has = |pod: &Pod| {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        Some(statuses.first()?.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0 == cpu)
    };
    let pods: Api<Pod> = Api::default_namespaced(world.admin.clone());
    until_all(&pods, |pods| {
        let mut own = pods.values().filter(|pod| pod.labels().get("app").is_some_and(|own| own == app));
        own.clone().count() == count && own.all(|pod| has(pod) == Some(true))
    })
    .await;
}

async fn edit<K>(world: &World, name: &str, cpu: &str)
where
    K: Watchable + Codec + kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    let container = json!({ "name": "main", "resources": { "requests": { "cpu": cpu } } });
    let patch = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
    let api: Api<K> = Api::default_namespaced(world.admin.clone());
    api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

async fn edit_set(world: &World, image: &str, cpu: &str, replicas: u32) {
    let resources = json!({ "requests": { "cpu": cpu, "memory": "16Mi" } });
    let container = json!({ "name": "main", "image": image, "resources": resources });
    let template = json!({ "spec": { "containers": [container] } });
    let patch = json!({ "spec": { "replicas": replicas, "template": template } });
    let sets: Api<CloneSet> = Api::default_namespaced(world.admin.clone());
    sets.patch("set", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits until the Deployment is released to its own controller.
async fn until_released(world: &World) {
    let deployments: Api<Deployment> = Api::default_namespaced(world.admin.clone());
    eventually(async || deployments.get("web").await.unwrap().spec.unwrap().paused != Some(true)).await;
}

/// Starts the native controllers, the node, and the rollout with the permissions that it is installed with.
async fn start(world: &World, running: &mut JoinSet<()>) -> (kube::Client, Log) {
    drop(rustls::crypto::ring::default_provider().install_default());
    let supervisor = Supervisor::default();
    let writer = |name: &str| world.cluster.client_as(&user_of(name), GROUPS);
    let native =
        plumb_controllers::workloads(Clock::default(), supervisor.clone(), Metrics::default(), writer);
    running.spawn(native.run(world.cluster.client(WATCHER)));
    running.spawn(run_node(world).await);
    let (client, log) = client(&world.cluster, Component::Rollout);
    let namespace = plumb_install::Options::default().namespace;
    let hold = HoldWebhook::new(webhook::Config {
        client: client.clone(),
        server: plumb_webhook::Options::on_loopback(&namespace, webhook::SECRET, webhook::registration),
        rules: Rules::v1_36(),
        clock: Clock::default(),
        supervisor: supervisor.clone(),
        metrics: Metrics::default(),
    });
    let mut registered = hold.registered();
    running.spawn(hold.run());
    let config = Config { supervisor, ..Config::new(client.clone(), Rules::v1_36(), true) };
    running.spawn(Rollout::new(config).run());
    in_time(registered.wait_for(|registered| *registered)).await.unwrap();
    (client, log)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rollout_uses_every_right_that_it_has_and_needs_no_other() {
    let world = World::new().await;
    let mut running = JoinSet::new();
    let (client, log) = start(&world, &mut running).await;
    create_workloads(&world).await;
    for (app, count) in WORKLOADS {
        until_pods(&world, app, count, "100m").await;
    }

    edit::<Deployment>(&world, "web", "200m").await;
    edit::<StatefulSet>(&world, "db", "200m").await;
    edit::<DaemonSet>(&world, "agent", "200m").await;
    edit_set(&world, "i:1", "200m", 3).await;
    for (app, count) in WORKLOADS {
        until_pods(&world, app, count, "200m").await;
    }
    until_released(&world).await;

    // The ReplicaSet of the first revision is deleted where the Deployment returns to it; a revision of the CloneSet becomes
    // the latest again.
    edit::<Deployment>(&world, "web", "100m").await;
    until_pods(&world, "web", 2, "100m").await;
    log.wait_for("delete replicasets.apps").await;
    until_released(&world).await;
    edit_set(&world, "i:2", "200m", 3).await;
    log.wait_for("patch pods/status").await;
    log.wait_for("delete controllerrevisions.apps").await;
    edit_set(&world, "i:1", "200m", 3).await;
    log.wait_for("update controllerrevisions.apps").await;
    edit_set(&world, "i:1", "200m", 1).await;
    log.wait_for("delete pods").await;
    log.wait_for("delete persistentvolumeclaims").await;

    edit::<Deployment>(&world, "web", INFEASIBLE).await;
    log.wait_for("create pods/eviction").await;
    webhook::unregister(&client).await.unwrap();
    log.check(
        Component::Rollout,
        &[
            // An event that is repeated is counted up.
            "patch events",
            // When the authority is renewed, after years.
            "update secrets",
            // Where OpenKruise is installed.
            "list daemonsets.apps.kruise.io",
            "patch daemonsets.apps.kruise.io",
            "watch daemonsets.apps.kruise.io",
            "list statefulsets.apps.kruise.io",
            "patch statefulsets.apps.kruise.io",
            "watch statefulsets.apps.kruise.io",
        ],
    )
    .await;
    running.shutdown().await;
}
