//! The usage in the status of quotas, through the API.

use futures_util::future::join_all;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, Pod, ReplicationController, ResourceQuota, Secret, Service,
};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, InformerFactory};
use plumb_controllers::{Clients, quota};
use plumb_resize::rules::Rules;
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, eventually, until};
use serde_json::{Value, json};
use tokio::task::JoinSet;

struct Cluster {
    client: Client,
    supervisor: Supervisor,
    _running: JoinSet<()>,
    _informing: JoinSet<()>,
}

impl Cluster {
    fn start() -> Self {
        Self::start_as("admin")
    }

    /// Starts a cluster whose quota controller writes as this user; `admin` may do everything.
    fn start_as(writer: &str) -> Self {
        let cluster = TestCluster::start();
        let client = cluster.admin();
        let supervisor = Supervisor::default();
        let mut running = JoinSet::new();
        let informers = InformerFactory::default();
        let config = quota::Config { rules: Rules::v1_36(), clock: Clock::default() };
        let groups = if writer == "admin" { vec!["system:masters"] } else { vec![] };
        let write = cluster.client_as(writer, groups);
        let clients = Clients {
            watch: client.clone(),
            write,
            supervisor: supervisor.clone(),
            metrics: Metrics::default(),
        };
        running.spawn(quota::run(clients, &informers, config));
        let informing = informers.start(&client, &supervisor);
        Self { client, supervisor, _running: running, _informing: informing }
    }

    async fn quota(&self, hard: Value) {
        let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": hard } });
        let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
        self.quotas().create(&PostParams::default(), &quota).await.unwrap();
    }

    fn quotas(&self) -> Api<ResourceQuota> {
        Api::default_namespaced(self.client.clone())
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Waits until the quota has this status.
    async fn used(&self, wanted: Value) {
        let is_so = |quota: &ResourceQuota| json!(quota.status.clone().unwrap_or_default().used) == wanted;
        until(&self.quotas(), "q", is_so).await;
    }
}

fn pod(name: &str, cpu: &str) -> Pod {
    let amounts = json!({ "cpu": cpu });
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "containers": [{ "name": "c", "image": "x", "resources": { "requests": amounts, "limits": amounts } }] },
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_objects_count_in_quotas_until_they_are_deleted() {
    let cluster = Cluster::start();
    cluster.pods().create(&PostParams::default(), &pod("old", "1")).await.unwrap();
    cluster.quota(json!({ "pods": "2", "requests.cpu": "4", "count/configmaps": "9" })).await;
    cluster.used(json!({ "pods": "1", "requests.cpu": "1", "count/configmaps": "0" })).await;
    cluster.pods().create(&PostParams::default(), &pod("new", "2")).await.unwrap();
    cluster.used(json!({ "pods": "2", "requests.cpu": "3", "count/configmaps": "0" })).await;
    assert!(cluster.pods().create(&PostParams::default(), &pod("more", "1m")).await.is_err());
    cluster.pods().delete("old", &DeleteParams::default()).await.unwrap();
    cluster.used(json!({ "pods": "1", "requests.cpu": "2", "count/configmaps": "0" })).await;
    cluster.pods().create(&PostParams::default(), &pod("more", "1m")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shrink_frees_quota_when_the_node_reports_it() {
    let cluster = Cluster::start();
    cluster.quota(json!({ "requests.cpu": "4" })).await;
    cluster.used(json!({ "requests.cpu": "0" })).await;
    cluster.pods().create(&PostParams::default(), &pod("web", "2")).await.unwrap();
    let report = |cpu: &str| {
        let resources = json!({ "requests": { "cpu": cpu }, "limits": { "cpu": cpu } });
        json!({ "status": { "containerStatuses": [{
            "name": "c", "image": "x", "imageID": "", "ready": true, "restartCount": 0, "resources": resources,
        }] } })
    };
    let pods = cluster.pods();
    let merge = |body: Value| Patch::Merge(body);
    pods.patch_status("web", &PatchParams::default(), &merge(report("2"))).await.unwrap();
    let amounts = json!({ "cpu": "1" });
    let resize = json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": amounts, "limits": amounts } }] } });
    pods.patch_subresource("resize", "web", &PatchParams::default(), &Patch::Strategic(resize))
        .await
        .unwrap();
    let held = cluster.quotas().get("q").await.unwrap().status.unwrap().used;
    assert_eq!(json!(held), json!({ "requests.cpu": "2" }));
    pods.patch_status("web", &PatchParams::default(), &merge(report("1"))).await.unwrap();
    cluster.used(json!({ "requests.cpu": "1" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_never_loses_an_admission_in_progress() {
    let cluster = Cluster::start();
    cluster.quota(json!({ "pods": "5" })).await;
    cluster.used(json!({ "pods": "0" })).await;
    for round in 0..10 {
        let names: Vec<String> = (0..10).map(|number| format!("p{round}-{number}")).collect();
        let made = join_all(names.iter().map(|name| {
            let pods = cluster.pods();
            async move { pods.create(&PostParams::default(), &pod(name, "1m")).await.is_ok() }
        }))
        .await;
        let there = cluster.pods().list(&kube::api::ListParams::default()).await.unwrap().items;
        assert!(there.len() <= 5, "{} pods in round {round}", there.len());
        assert!(made.iter().any(|made| *made), "nothing was admitted in round {round}");
        for pod in there {
            let name = pod.metadata.name.unwrap();
            cluster.pods().delete(&name, &DeleteParams::default()).await.unwrap();
        }
        cluster.used(json!({ "pods": "0" })).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_is_watched_for_as_long_as_a_quota_counts_it() {
    let cluster = Cluster::start();
    let watched = |name: &str| cluster.supervisor.tasks().iter().any(|task| task.name == name);
    cluster.quota(json!({ "pods": "2", "count/configmaps": "9" })).await;
    cluster.used(json!({ "pods": "0", "count/configmaps": "0" })).await;
    assert!(watched("quota-informer/pods") && watched("quota-informer/configmaps"));
    // A quota of another namespace counts config maps, too.
    let namespace: Namespace = read(json!({ "metadata": { "name": "a" } }));
    Api::all(cluster.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let other: ResourceQuota =
        read(json!({ "metadata": { "name": "q" }, "spec": { "hard": { "count/configmaps": "1" } } }));
    let others: Api<ResourceQuota> = Api::namespaced(cluster.client.clone(), "a");
    others.create(&PostParams::default(), &other).await.unwrap();
    let hard = json!({ "spec": { "hard": { "pods": null, "count/configmaps": "8", "services": "1" } } });
    cluster.quotas().patch("q", &PatchParams::default(), &Patch::Merge(hard)).await.unwrap();
    cluster.used(json!({ "count/configmaps": "0", "services": "0" })).await;
    eventually(async || !watched("quota-informer/pods")).await;
    cluster.quotas().delete("q", &DeleteParams::default()).await.unwrap();
    eventually(async || !watched("quota-informer/services")).await;
    assert!(watched("quota-informer/configmaps"), "the other quota counts them");
    others.delete("q", &DeleteParams::default()).await.unwrap();
    eventually(async || !watched("quota-informer/configmaps")).await;
    // It is watched again when it is counted again.
    cluster.quota(json!({ "pods": "2" })).await;
    cluster.used(json!({ "pods": "0" })).await;
    cluster.pods().create(&PostParams::default(), &pod("p", "1")).await.unwrap();
    cluster.pods().delete("p", &DeleteParams::default()).await.unwrap();
    cluster.used(json!({ "pods": "0" })).await;
}

/// The controller retries a quota whose status it cannot write, and recalculates others meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_fails_does_not_keep_the_others_from_being_measured() {
    // The controller may write quotas in `default` alone, and "a" comes before it.
    let cluster = Cluster::start_as("quota-writer");
    let client = &cluster.client;
    let params = PostParams::default();
    let rule = json!({ "apiGroups": [""], "resources": ["resourcequotas/status"], "verbs": ["update"] });
    let role: Role = read(json!({ "metadata": { "name": "writer" }, "rules": [rule] }));
    Api::default_namespaced(client.clone()).create(&params, &role).await.unwrap();
    let subject = json!({ "kind": "User", "name": "quota-writer", "apiGroup": "rbac.authorization.k8s.io" });
    let role = json!({ "kind": "Role", "name": "writer", "apiGroup": "rbac.authorization.k8s.io" });
    let binding = json!({ "metadata": { "name": "writer" }, "subjects": [subject], "roleRef": role });
    let binding: RoleBinding = read(binding);
    Api::default_namespaced(client.clone()).create(&params, &binding).await.unwrap();
    let namespace: Namespace = read(json!({ "metadata": { "name": "a" } }));
    Api::all(client.clone()).create(&params, &namespace).await.unwrap();
    let quota: ResourceQuota =
        read(json!({ "metadata": { "name": "q" }, "spec": { "hard": { "pods": "1" } } }));
    Api::namespaced(client.clone(), "a").create(&params, &quota).await.unwrap();

    cluster.quota(json!({ "pods": "2" })).await;
    cluster.used(json!({ "pods": "0" })).await;
    cluster.pods().create(&PostParams::default(), &pod("p", "1")).await.unwrap();
    cluster.pods().delete("p", &DeleteParams::default()).await.unwrap();
    cluster.used(json!({ "pods": "0" })).await;
}

/// A counted object: its resource in a quota, its API resource, and itself.
fn counted() -> Vec<(&'static str, ApiResource, Value)> {
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "x" }] } });
    let set = json!({ "replicas": 0, "selector": { "matchLabels": { "a": "b" } }, "template": template });
    let controller = json!({ "replicas": 0, "selector": { "a": "b" }, "template": template });
    vec![
        ("configmaps", ApiResource::erase::<ConfigMap>(&()), json!({ "data": { "k": "v" } })),
        ("secrets", ApiResource::erase::<Secret>(&()), json!({ "data": { "k": "dg==" } })),
        ("services", ApiResource::erase::<Service>(&()), json!({ "spec": { "ports": [{ "port": 80 }] } })),
        ("count/replicasets.apps", ApiResource::erase::<ReplicaSet>(&()), json!({ "spec": set })),
        (
            "replicationcontrollers",
            ApiResource::erase::<ReplicationController>(&()),
            json!({ "spec": controller }),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_each_kind_are_counted_from_their_creation_to_their_deletion() {
    let cluster = Cluster::start();
    let counted = counted();
    let names: Vec<&str> = counted.iter().map(|(name, ..)| *name).chain(["resourcequotas"]).collect();
    let hard: Value =
        names.iter().map(|name| ((*name).to_owned(), json!("9"))).collect::<serde_json::Map<_, _>>().into();
    cluster.quota(hard).await;
    let used = |present: &[&str]| -> Value {
        let count =
            |name: &&str| json!(if present.contains(name) || *name == "resourcequotas" { "1" } else { "0" });
        names.iter().map(|name| ((*name).to_owned(), count(name))).collect::<serde_json::Map<_, _>>().into()
    };
    cluster.used(used(&[])).await;
    for (name, resource, object) in counted {
        let api: Api<DynamicObject> = Api::default_namespaced_with(cluster.client.clone(), &resource);
        let mut object = object;
        (object["apiVersion"], object["kind"]) = (json!(resource.api_version), json!(resource.kind));
        object["metadata"] = json!({ "name": "counted" });
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        cluster.used(used(&[name])).await;
        api.delete("counted", &DeleteParams::background()).await.unwrap();
        cluster.used(used(&[])).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_decides_which_pods_a_quota_counts() {
    let cluster = Cluster::start();
    let scopes = ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating"];
    for scope in scopes {
        let quota: ResourceQuota = read(json!({
            "metadata": { "name": scope.to_lowercase() }, "spec": { "hard": { "pods": "5" }, "scopes": [scope] },
        }));
        cluster.quotas().create(&PostParams::default(), &quota).await.unwrap();
    }
    let used = async |wanted: [&str; 4]| {
        for (scope, wanted) in scopes.iter().zip(wanted) {
            let is_so = |quota: &ResourceQuota| {
                json!(quota.status.clone().unwrap_or_default().used) == json!({ "pods": wanted })
            };
            until(&cluster.quotas(), &scope.to_lowercase(), is_so).await;
        }
    };
    used(["0", "0", "0", "0"]).await;
    let mut bare = pod("bare", "1");
    bare.spec.as_mut().unwrap().containers[0].resources = None;
    cluster.pods().create(&PostParams::default(), &bare).await.unwrap();
    used(["1", "0", "0", "1"]).await;
    let mut ends = pod("ends", "1");
    ends.spec.as_mut().unwrap().active_deadline_seconds = Some(3600);
    cluster.pods().create(&PostParams::default(), &ends).await.unwrap();
    used(["1", "1", "1", "1"]).await;
    cluster.pods().delete("bare", &DeleteParams::default()).await.unwrap();
    used(["0", "1", "1", "0"]).await;
    cluster.pods().delete("ends", &DeleteParams::default()).await.unwrap();
    used(["0", "0", "0", "0"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_changed_is_measured_anew() {
    let cluster = Cluster::start();
    cluster.quota(json!({ "requests.cpu": "1", "pods": "1" })).await;
    let is_hard = |wanted: Value| {
        move |quota: &ResourceQuota| json!(quota.status.clone().unwrap_or_default().hard) == wanted
    };
    until(&cluster.quotas(), "q", is_hard(json!({ "requests.cpu": "1", "pods": "1" }))).await;
    let hard = json!({ "spec": { "hard": { "requests.cpu": "2", "pods": "3" } } });
    cluster.quotas().patch("q", &PatchParams::default(), &Patch::Merge(hard)).await.unwrap();
    until(&cluster.quotas(), "q", is_hard(json!({ "requests.cpu": "2", "pods": "3" }))).await;
    // A status that another client writes is corrected.
    let wrong = json!({ "status": { "hard": { "pods": "7" }, "used": { "pods": "7" } } });
    cluster.quotas().patch_status("q", &PatchParams::default(), &Patch::Merge(wrong)).await.unwrap();
    until(&cluster.quotas(), "q", is_hard(json!({ "requests.cpu": "2", "pods": "3" }))).await;
    cluster.used(json!({ "requests.cpu": "0", "pods": "0" })).await;
    cluster.quotas().delete("q", &DeleteParams::default()).await.unwrap();
    super::until_gone(&cluster.quotas(), "q").await;
}

fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}
