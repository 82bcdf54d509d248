//! The workload controllers, through the API. The test makes a pod ready as soon as it observes it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Event, Pod, ReplicationController, ResourceQuota};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, Reflector, WatchConfig, Watchable};
use plumb_controllers::garbage::graph_builder::{self, GraphBuilder};
use plumb_controllers::{
    Clients, GROUPS, WATCHER, garbage, namespaces, nodes, pod_gc, protection, quota, user_of, volumes,
};
use plumb_resize::rules::Rules;
use plumb_supervise::Supervisor;
use plumb_testkit::TestCluster;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// A cluster whose workloads are reconciled, each controller with the permissions of its own role.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The number of reconciles.
    pub(crate) reconciles: Arc<AtomicU64>,
    pub(crate) supervisor: Supervisor,
    server: TestCluster,
    running: JoinSet<()>,
}

impl Cluster {
    /// Starts a cluster whose pods become ready.
    pub(crate) fn start() -> Self {
        let mut cluster = Self::without_nodes();
        let client = cluster.client.clone();
        cluster.running.spawn(be_ready(client));
        cluster
    }

    /// A cluster without node agents.
    pub(crate) fn without_nodes() -> Self {
        Self::at(Clock::default())
    }

    /// A cluster without node agents, whose controllers have a clock of their own.
    pub(crate) fn at(clock: Clock) -> Self {
        let cluster = TestCluster::start();
        let watcher = cluster.client(WATCHER);
        let writer = |name: &str| cluster.client_as(&user_of(name), GROUPS);
        let supervisor = Supervisor::default();
        let clients = |name: &str| Clients {
            watch: watcher.clone(),
            write: writer(name),
            supervisor: supervisor.clone(),
            metrics: Metrics::default(),
        };
        let mut running = JoinSet::new();
        let manager =
            plumb_controllers::workloads(clock.clone(), supervisor.clone(), Metrics::default(), writer);
        let informers = manager.informers();
        let factory = manager.factory();
        running.spawn(protection::protect_volumes(clients(protection::VOLUMES_NAME), factory));
        running.spawn(volumes::binder::run(clients(volumes::binder::NAME), factory, clock.clone()));
        let attaching = clients(volumes::attach_detach::NAME);
        running.spawn(volumes::attach_detach::run(attaching, factory, clock.clone()));
        running.spawn(volumes::local_path::run(clients(volumes::local_path::NAME), factory, clock.clone()));
        running.spawn(nodes::run(informers, clients(nodes::NAME), clock.clone()));
        running.spawn(pod_gc::run(informers, clients(pod_gc::NAME), clock.clone()));
        let graph_builder: Arc<GraphBuilder> = Arc::default();
        running.spawn(graph_builder::run(&graph_builder, clients(garbage::NAME)));
        running.spawn(garbage::run(&graph_builder, clients(garbage::NAME)));
        running.spawn(namespaces::run(&graph_builder, clients(namespaces::NAME), factory, clock.clone()));
        let config = quota::Config { rules: Rules::v1_36(), clock };
        running.spawn(quota::run(clients(quota::NAME), factory, config));
        let reconciles = manager.reconciles();
        running.spawn(manager.run(watcher));
        Self { client: cluster.admin(), reconciles, supervisor, server: cluster, running }
    }

    /// A client with the rights of a controller.
    pub(crate) fn writer(&self, controller: &str) -> Client {
        self.server.client_as(&user_of(controller), GROUPS)
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Watchable
            + Serialize
            + DeserializeOwned
            + Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.api().create(&PostParams::default(), &object).await.unwrap()
    }

    pub(crate) async fn merge<K>(&self, name: &str, patch: Value) -> K
    where
        K: Watchable
            + DeserializeOwned
            + Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Waits until an object is as it should be.
    pub(crate) async fn until<K>(&self, name: &str, wanted: impl Fn(&K) -> bool) -> K
    where
        K: Watchable
            + DeserializeOwned
            + Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        plumb_testkit::until(&self.api(), name, wanted).await
    }

    /// Waits until the objects of a kind are as they should be.
    pub(crate) async fn until_all<K>(
        &self,
        wanted: impl Fn(&BTreeMap<String, K>) -> bool,
    ) -> BTreeMap<String, K>
    where
        K: Watchable
            + DeserializeOwned
            + Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        plumb_testkit::until_all(&self.api(), wanted).await
    }
}

pub(crate) fn name(object: &impl Resource) -> String {
    object.meta().name.clone().unwrap()
}

/// Makes every pod ready, except those that opt out.
pub(crate) async fn be_ready(client: Client) {
    let pods: Api<Pod> = Api::all(client.clone());
    let mut events = std::pin::pin!(Reflector::new(pods, WatchConfig::default()).into_stream());
    while let Some(event) = events.next().await {
        for pod in event.into_objects() {
            let said = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let image = &pod.spec.as_ref().unwrap().containers[0].image;
            if said != Some("Pending") || image.as_deref() == Some("broken") {
                continue;
            }
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": now });
            let status = json!({ "status": { "phase": "Running", "startTime": now, "conditions": [ready] } });
            let api: Api<Pod> = Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap());
            // The pod may have been deleted meanwhile.
            let _ = api.patch_status(&name(&pod), &PatchParams::default(), &Patch::Merge(status)).await;
        }
    }
}

pub(crate) fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": { "containers": [{ "name": "c", "image": image }], "terminationGracePeriodSeconds": 0 },
    })
}

pub(crate) fn spec(app: &str, replicas: i32) -> Value {
    json!({
        "replicas": replicas,
        "selector": { "matchLabels": { "app": app } },
        "template": template(app, "x"),
    })
}

fn has<K: Debug>(count: usize) -> impl Fn(&BTreeMap<String, K>) -> bool {
    move |all| all.len() == count
}

fn controller(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_ref()?;
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.name.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_creates_its_replicas_and_reports_them() {
    let cluster = Cluster::start();
    cluster.create::<ReplicaSet>(json!({ "metadata": { "name": "web" }, "spec": spec("web", 3) })).await;
    let ready = |count: i32| {
        move |set: &ReplicaSet| {
            let status = set.status.clone().unwrap_or_default();
            let counts =
                (status.replicas, status.ready_replicas.unwrap_or(0), status.available_replicas.unwrap_or(0));
            counts == (count, count, count) && status.observed_generation == set.metadata.generation
        }
    };
    cluster.until("web", ready(3)).await;
    let pods = cluster.until_all::<Pod>(has(3)).await;
    assert!(pods.iter().all(|(name, pod)| name.starts_with("web-") && controller(pod) == Some("web")));

    // A deleted pod is replaced.
    let lost = pods.keys().next().unwrap();
    cluster.api::<Pod>().delete(lost, &DeleteParams::default()).await.unwrap();
    cluster.until_all::<Pod>(|pods| pods.len() == 3 && !pods.contains_key(lost)).await;

    // Of the surplus pods those with the highest deletion cost stay.
    let kept = cluster.until_all::<Pod>(has(3)).await.keys().next().unwrap().clone();
    let dear =
        json!({ "metadata": { "annotations": { "controller.kubernetes.io/pod-deletion-cost": "9" } } });
    cluster.merge::<Pod>(&kept, dear).await;
    cluster.until("web", ready(3)).await;
    cluster.merge::<ReplicaSet>("web", json!({ "spec": { "replicas": 1 } })).await;
    cluster.until("web", ready(1)).await;
    let left = cluster.until_all::<Pod>(has(1)).await;
    assert_eq!(left.keys().collect::<Vec<_>>(), [&kept]);

    let said = |reason: &'static str| {
        move |events: &BTreeMap<String, Event>| {
            events.values().filter(|event| event.reason.as_deref() == Some(reason)).count() >= 2
        }
    };
    cluster.until_all::<Event>(said("SuccessfulCreate")).await;
    cluster.until_all::<Event>(said("SuccessfulDelete")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_adopts_pods_that_it_selects_and_releases_others() {
    let cluster = Cluster::start();
    let mut orphan = template("web", "x");
    orphan["metadata"]["name"] = json!("orphan");
    cluster.create::<Pod>(orphan).await;
    cluster.create::<ReplicaSet>(json!({ "metadata": { "name": "web" }, "spec": spec("web", 2) })).await;
    cluster.until::<Pod>("orphan", |pod| controller(pod) == Some("web")).await;
    cluster.until_all::<Pod>(has(2)).await;

    cluster.merge::<Pod>("orphan", json!({ "metadata": { "labels": { "app": "mine" } } })).await;
    cluster.until::<Pod>("orphan", |pod| controller(pod).is_none()).await;
    cluster.until_all::<Pod>(has(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_exceeds_a_quota_reports_it_and_continues_when_the_quota_allows_it() {
    let cluster = Cluster::start();
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "pods": "2" } } });
    cluster.create::<ResourceQuota>(quota).await;
    cluster
        .until::<ResourceQuota>("q", |quota| quota.status.as_ref().is_some_and(|s| s.used.is_some()))
        .await;
    cluster.create::<ReplicaSet>(json!({ "metadata": { "name": "web" }, "spec": spec("web", 4) })).await;
    let failure = |set: &ReplicaSet| {
        let conditions = set.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_ == "ReplicaFailure")
    };
    let set = cluster.until::<ReplicaSet>("web", |set| failure(set).is_some()).await;
    let said = failure(&set).unwrap();
    assert_eq!(said.reason.as_deref(), Some("FailedCreate"));
    assert!(said.message.unwrap().contains("exceeded quota"));
    cluster.until_all::<Pod>(has(2)).await;
    cluster.merge::<ResourceQuota>("q", json!({ "spec": { "hard": { "pods": "9" } } })).await;
    cluster.until_all::<Pod>(has(4)).await;
    cluster.until::<ReplicaSet>("web", |set| failure(set).is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pod_is_created_twice_however_many_replicas() {
    let cluster = Cluster::without_nodes();
    cluster.create::<ReplicaSet>(json!({ "metadata": { "name": "web" }, "spec": spec("web", 200) })).await;
    cluster.until::<ReplicaSet>("web", |set| set.status.as_ref().is_some_and(|s| s.replicas == 200)).await;
    let events = cluster.api::<Pod>().list(&ListParams::default()).await.unwrap();
    assert_eq!(events.items.len(), 200);
    let deleted = |event: &Event| event.reason.as_deref() == Some("SuccessfulDelete");
    let said = cluster.api::<Event>().list(&ListParams::default()).await.unwrap();
    assert!(!said.items.iter().any(deleted), "more were made than were asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_objects_are_not_reconciled() {
    let cluster = Cluster::start();
    let ready = |set: &ReplicaSet| {
        let status = set.status.clone().unwrap_or_default();
        status.available_replicas == Some(1) && status.observed_generation == set.metadata.generation
    };
    let names: Vec<String> = (0..30).map(|number| format!("web-{number}")).collect();
    for name in &names {
        let set = json!({ "metadata": { "name": name }, "spec": spec(name, 1) });
        cluster.create::<ReplicaSet>(set).await;
    }
    for name in &names {
        cluster.until(name, ready).await;
    }
    // The controller observes an object that is created now, and so has reconciled the others before.
    cluster.create::<ReplicaSet>(json!({ "metadata": { "name": "last" }, "spec": spec("last", 1) })).await;
    cluster.until("last", ready).await;
    let before = cluster.reconciles.load(Ordering::Relaxed);
    cluster.merge::<ReplicaSet>("web-7", json!({ "spec": { "minReadySeconds": 0, "replicas": 2 } })).await;
    cluster.until_all::<Pod>(has(32)).await;
    cluster
        .until::<ReplicaSet>("web-7", |set| set.status.clone().unwrap().available_replicas == Some(2))
        .await;
    let looks = cluster.reconciles.load(Ordering::Relaxed) - before;
    assert!(looks < 25, "{looks} looks because one of thirty changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replication_controller_is_a_replica_set() {
    let cluster = Cluster::start();
    let spec = json!({ "replicas": 2, "selector": { "app": "old" }, "template": template("old", "x") });
    cluster.create::<ReplicationController>(json!({ "metadata": { "name": "old" }, "spec": spec })).await;
    cluster
        .until::<ReplicationController>("old", |controller| {
            controller.status.as_ref().is_some_and(|status| status.available_replicas == Some(2))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replication_controller_adopts_and_releases_pods_and_reports_that_a_quota_is_exceeded() {
    let cluster = Cluster::start();
    let mut orphan = template("old", "x");
    orphan["metadata"]["name"] = json!("orphan");
    cluster.create::<Pod>(orphan).await;
    let spec = json!({ "replicas": 1, "selector": { "app": "old" }, "template": template("old", "x") });
    cluster.create::<ReplicationController>(json!({ "metadata": { "name": "old" }, "spec": spec })).await;
    cluster.until::<Pod>("orphan", |pod| controller(pod) == Some("old")).await;
    cluster.merge::<Pod>("orphan", json!({ "metadata": { "labels": { "app": "mine" } } })).await;
    cluster.until::<Pod>("orphan", |pod| controller(pod).is_none()).await;
    cluster.until_all::<Pod>(has(2)).await;

    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "pods": "2" } } });
    cluster.create::<ResourceQuota>(quota).await;
    let is_full = |quota: &ResourceQuota| {
        let used = quota.status.as_ref().and_then(|status| status.used.as_ref());
        used.is_some_and(|used| used.get("pods").is_some_and(|pods| pods.0 == "2"))
    };
    cluster.until("q", is_full).await;
    let failure = |set: &ReplicationController| {
        let conditions = set.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_ == "ReplicaFailure")
    };
    cluster.merge::<ReplicationController>("old", json!({ "spec": { "replicas": 2 } })).await;
    let set = cluster.until("old", |set| failure(set).is_some()).await;
    assert_eq!(failure(&set).unwrap().reason.as_deref(), Some("FailedCreate"));
    cluster.merge::<ReplicationController>("old", json!({ "spec": { "replicas": 1 } })).await;
    cluster.until::<ReplicationController>("old", |set| failure(set).is_none()).await;
}
