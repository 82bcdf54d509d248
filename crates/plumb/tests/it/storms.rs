//! What workloads come to when the process is killed in their midst: the same as if nothing had happened.
//!
//! ```text
//!   namespace calm:   prepare ──▶ edit ──────────────▶ picture ──┐
//!                                                                ├── the same; and calm's pods are still the same pods
//!   namespace storm:  prepare ──▶ edit ✂ ✂ ✂ restart ▶ picture ──┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::{ApiResource, GroupVersionKind, NamespaceResourceScope};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::dice::Dice;

const PARTS: [&str; 8] = [
    "--components",
    "apiserver,controllers,scheduler,node",
    "--runtime",
    "virtual",
    "--nodes",
    "3",
    "--node-cpu",
    "8",
];
const CALM: &str = "calm";
const STORM: &str = "storm";
/// How long anything may take.
const DEADLINE: Duration = Duration::from_mins(10);
/// The most events of pods before a kill.
const EVENTS: u64 = 30;

/// How often to kill; `PLUMB_KILLS` asks for more.
fn kills() -> u64 {
    std::env::var("PLUMB_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// A cluster that is killed now and then.
struct Stage {
    data: PathBuf,
    cluster: Option<Cluster>,
    dice: Dice,
    _folder: tempfile::TempDir,
}

impl Stage {
    fn set(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let cluster = Some(Cluster::start_with(&data, &PARTS));
        Self { data, cluster, dice: Dice::new(seed), _folder: folder }
    }

    async fn client(&self) -> Client {
        self.cluster.as_ref().expect("it runs between two kills").client().await
    }

    /// Kills it after some events of the pods of a namespace, and starts it again.
    async fn kill(&mut self, namespace: &str) {
        let pods: Api<Pod> = Api::namespaced(self.client().await, namespace);
        let from = pods.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let mut events = pods.watch(&WatchParams::default(), &from).await.unwrap().boxed();
        for _ in 0..self.dice.below(EVENTS) {
            // Where nothing happens any more it is killed all the same.
            if tokio::time::timeout(Duration::from_secs(2), events.next()).await.is_err() {
                break;
            }
        }
        drop(events);
        if let Some(cluster) = self.cluster.take() {
            cluster.kill();
        }
        self.cluster = Some(Cluster::start_with(&self.data, &PARTS));
    }
}

/// Plays a scene in peace and in a storm, and compares.
async fn compare(seed: u64, scene: &impl Scene) {
    let mut stage = Stage::set(seed);
    let client = stage.client().await;
    make_namespace(&client, CALM).await;
    scene.prepare(&client, CALM).await;
    scene.edit(&client, CALM).await;
    scene.done(&client, CALM).await;
    let (wanted, bystanders) = (picture(&client, CALM).await, uids(&client, CALM).await);

    make_namespace(&client, STORM).await;
    scene.prepare(&client, STORM).await;
    let before = uids(&client, STORM).await;
    scene.edit(&client, STORM).await;
    for _ in 0..kills() {
        stage.kill(STORM).await;
    }
    let client = stage.client().await;
    scene.done(&client, STORM).await;
    assert_eq!(picture(&client, STORM).await, wanted, "seed {seed}");
    scene.survivors(&before, &uids(&client, STORM).await);
    assert_eq!(uids(&client, CALM).await, bystanders, "seed {seed}: pods without a change");
}

/// Something that is done with workloads.
trait Scene {
    async fn prepare(&self, client: &Client, namespace: &str);
    async fn edit(&self, client: &Client, namespace: &str);
    /// Waits until it is over.
    async fn done(&self, client: &Client, namespace: &str);
    /// Looks who is left: uids by name, before the edit and in the end.
    fn survivors(&self, _before: &BTreeMap<String, String>, _after: &BTreeMap<String, String>) {}
}

fn template(app: &str, version: u64, model: &str) -> Value {
    let container = json!({
        "name": "main", "image": "plumb/load",
        "env": [{ "name": "VERSION", "value": version.to_string() }],
        "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
    });
    json!({
        "metadata": { "labels": { "app": app }, "annotations": { "virtual.plumb.dev/model": model } },
        "spec": { "terminationGracePeriodSeconds": 1, "containers": [container] },
    })
}

fn set(kind: &str, name: &str, replicas: u64, more: &Value) -> Value {
    let mut spec = json!({
        "replicas": replicas,
        "selector": { "matchLabels": { "app": name } },
        "template": template(name, 0, "cpu=1m"),
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

fn deployment(name: &str, replicas: u64) -> Value {
    set("Deployment", name, replicas, &Value::Null)
}

fn stateful_set(name: &str, replicas: u64, policy: &str) -> Value {
    set("StatefulSet", name, replicas, &json!({ "serviceName": name, "podManagementPolicy": policy }))
}

fn daemon_set(name: &str) -> Value {
    let mut set = set("DaemonSet", name, 0, &Value::Null);
    if let Some(spec) = set["spec"].as_object_mut() {
        spec.remove("replicas");
    }
    set
}

/// A job whose pods end after a moment; they are restarted where they are, or made anew.
fn job(name: &str, mode: &str, restart: &str) -> Value {
    let mut template = template(name, 0, "duration=400ms");
    template["spec"]["restartPolicy"] = json!(restart);
    let spec = json!({
        "completions": 6, "parallelism": 2, "completionMode": mode, "backoffLimit": 100, "template": template,
    });
    json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name }, "spec": spec })
}

async fn make_namespace(client: &Client, name: &str) {
    let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    // Pods are refused before their namespace has an account for them.
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), name);
    until(&accounts, "default", |_| true).await;
}

async fn make(client: &Client, namespace: &str, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind));
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn merge<K>(client: &Client, namespace: &str, name: &str, spec: Value)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({ "spec": spec }));
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until an object is as it should be.
async fn until<K>(api: &Api<K>, name: &str, wanted: impl Fn(&K) -> bool)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let waiting = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&wanted));
    let seen = tokio::time::timeout(DEADLINE, Box::pin(waiting)).await;
    assert!(seen.is_ok(), "it came to {:#?}", api.get(name).await);
}

/// Waits until these are what they should be.
async fn stand(client: &Client, namespace: &str, deployments: &[&str], sets: &[&str], daemons: &[&str]) {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    for name in deployments {
        until(&api, name, |one| {
            let (wanted, status) =
                (one.spec.as_ref().unwrap().replicas, one.status.clone().unwrap_or_default());
            let counts = [status.replicas, status.updated_replicas, status.available_replicas];
            status.observed_generation == one.metadata.generation
                && counts.iter().all(|count| *count == wanted)
        })
        .await;
    }
    let api: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    for name in sets {
        until(&api, name, |one| {
            let (wanted, status) =
                (one.spec.as_ref().unwrap().replicas, one.status.clone().unwrap_or_default());
            status.observed_generation == one.metadata.generation
                && [Some(status.replicas), status.ready_replicas].iter().all(|count| *count == wanted)
                && status.current_revision == status.update_revision
        })
        .await;
    }
    let api: Api<DaemonSet> = Api::namespaced(client.clone(), namespace);
    for name in daemons {
        until(&api, name, |one| {
            let status = one.status.clone().unwrap_or_default();
            status.observed_generation == one.metadata.generation
                && status.number_available == Some(3)
                && status.updated_number_scheduled == Some(3)
        })
        .await;
    }
    // What is to go is gone, too.
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        if pod.metadata.deletion_timestamp.is_some() {
            let (name, uid) = (pod.name_any(), pod.uid().unwrap());
            let gone = await_condition(pods.clone(), &name, is_deleted(&uid));
            tokio::time::timeout(DEADLINE, Box::pin(gone)).await.unwrap().unwrap();
        }
    }
}

/// The uids of the pods of a namespace, by name.
async fn uids(client: &Client, namespace: &str) -> BTreeMap<String, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    pods.into_iter().map(|pod| (pod.name_any(), pod.uid().unwrap())).collect()
}

/// What is in a namespace, without what differs between two runs.
async fn picture(client: &Client, namespace: &str) -> Vec<String> {
    let all = ListParams::default();
    let mut lines = Vec::new();
    for pod in Api::<Pod>::namespaced(client.clone(), namespace).list(&all).await.unwrap() {
        let owner = pod.owner_references().first().cloned();
        let owner = owner.map(|owner| format!("{} {}", owner.kind, owner.name)).unwrap_or_default();
        // Only pods of stateful sets are called the same each time, and daemons have a node each.
        let slot = if owner.starts_with("StatefulSet") { pod.name_any() } else { String::new() };
        let (spec, status) = (pod.spec.clone().unwrap(), pod.status.clone().unwrap());
        let node =
            if owner.starts_with("DaemonSet") { spec.node_name.unwrap_or_default() } else { String::new() };
        let index = pod.annotations().get("batch.kubernetes.io/job-completion-index").cloned();
        // Pods of a job that failed since their containers were lost were replaced.
        if owner.starts_with("Job") && status.phase.as_deref() == Some("Failed") {
            continue;
        }
        let version = spec.containers[0].env.clone().unwrap_or_default()[0].value.clone();
        let (phase, going) = (status.phase.unwrap_or_default(), pod.metadata.deletion_timestamp.is_some());
        let kept = pod.metadata.finalizers.clone().unwrap_or_default();
        lines.push(format!(
            "pod of {owner} {slot}{node} {index:?} {version:?} {phase} going={going} {kept:?}"
        ));
    }
    for set in Api::<ReplicaSet>::namespaced(client.clone(), namespace).list(&all).await.unwrap() {
        let (name, status) = (set.name_any(), set.status.unwrap_or_default());
        let asked = set.spec.unwrap_or_default().replicas;
        lines.push(format!("set {name} of {asked:?}: {} {:?}", status.replicas, status.available_replicas));
    }
    for job in Api::<Job>::namespaced(client.clone(), namespace).list(&all).await.unwrap() {
        let (name, status) = (job.name_any(), job.status.unwrap_or_default());
        let said: BTreeSet<String> = status
            .conditions
            .into_iter()
            .flatten()
            .map(|said| format!("{}={}", said.type_, said.status))
            .collect();
        let (succeeded, indexes) = (status.succeeded, status.completed_indexes);
        lines.push(format!("job {name}: {succeeded:?} {indexes:?} {:?} {said:?}", status.active));
    }
    lines.sort();
    lines
}

struct Rollouts;

impl Scene for Rollouts {
    async fn prepare(&self, client: &Client, namespace: &str) {
        make(client, namespace, stateful_set("one", 4, "OrderedReady")).await;
        make(client, namespace, stateful_set("many", 4, "Parallel")).await;
        make(client, namespace, daemon_set("agent")).await;
        make(client, namespace, deployment("web", 6)).await;
        self.done(client, namespace).await;
    }

    async fn edit(&self, client: &Client, namespace: &str) {
        let changed = |app: &str| json!({ "template": template(app, 1, "cpu=1m") });
        merge::<StatefulSet>(client, namespace, "one", changed("one")).await;
        merge::<StatefulSet>(client, namespace, "many", changed("many")).await;
        merge::<DaemonSet>(client, namespace, "agent", changed("agent")).await;
        merge::<Deployment>(client, namespace, "web", changed("web")).await;
    }

    async fn done(&self, client: &Client, namespace: &str) {
        stand(client, namespace, &["web"], &["one", "many"], &["agent"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_of_all_kinds_have_the_same_result_whichever_component_is_killed() {
    compare(1, &Rollouts).await;
}

struct Running;

impl Scene for Running {
    async fn prepare(&self, _: &Client, _: &str) {}

    async fn edit(&self, client: &Client, namespace: &str) {
        make(client, namespace, job("plain", "NonIndexed", "OnFailure")).await;
        make(client, namespace, job("indexed", "Indexed", "OnFailure")).await;
        make(client, namespace, job("anew", "Indexed", "Never")).await;
    }

    async fn done(&self, client: &Client, namespace: &str) {
        let api: Api<Job> = Api::namespaced(client.clone(), namespace);
        for name in ["plain", "indexed", "anew"] {
            until(&api, name, |job| {
                let said = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
                said.into_iter().any(|said| said.type_ == "Complete" && said.status == "True")
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_have_the_same_result_whichever_component_is_killed() {
    compare(2, &Running).await;
}

struct ScaleDowns;

impl Scene for ScaleDowns {
    async fn prepare(&self, client: &Client, namespace: &str) {
        make(client, namespace, deployment("web", 12)).await;
        make(client, namespace, stateful_set("one", 5, "OrderedReady")).await;
        make(client, namespace, stateful_set("many", 6, "Parallel")).await;
        self.done(client, namespace).await;
    }

    async fn edit(&self, client: &Client, namespace: &str) {
        merge::<Deployment>(client, namespace, "web", json!({ "replicas": 4 })).await;
        merge::<StatefulSet>(client, namespace, "one", json!({ "replicas": 2 })).await;
        merge::<StatefulSet>(client, namespace, "many", json!({ "replicas": 3 })).await;
    }

    async fn done(&self, client: &Client, namespace: &str) {
        stand(client, namespace, &["web"], &["one", "many"], &[]).await;
    }

    fn survivors(&self, before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) {
        // None of the remaining pods is new.
        assert!(after.iter().all(|(name, uid)| before.get(name) == Some(uid)), "{after:?} of {before:?}");
        assert_eq!(after.len(), 4 + 2 + 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaling_down_deletes_no_more_whichever_component_is_killed() {
    compare(3, &ScaleDowns).await;
}

/// Something of every kind.
async fn furnish(client: &Client, namespace: &str) {
    make(client, namespace, deployment("web", 6)).await;
    make(client, namespace, stateful_set("one", 3, "OrderedReady")).await;
    make(client, namespace, daemon_set("agent")).await;
    make(client, namespace, job("plain", "NonIndexed", "OnFailure")).await;
    let template = json!({ "spec": job("tick", "NonIndexed", "Never")["spec"] });
    let budget = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } });
    for (group, kind, spec) in [
        ("batch/v1", "CronJob", json!({ "schedule": "@yearly", "jobTemplate": template })),
        ("policy/v1", "PodDisruptionBudget", budget),
        ("v1", "ResourceQuota", json!({ "hard": { "pods": "50" } })),
    ] {
        let metadata = json!({ "name": "more" });
        make(
            client,
            namespace,
            json!({ "apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec }),
        )
        .await;
    }
    make(
        client,
        namespace,
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "more" } }),
    )
    .await;
    stand(client, namespace, &["web"], &["one"], &["agent"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_namespace_leaves_nothing_whichever_component_is_killed() {
    let mut stage = Stage::set(4);
    let client = stage.client().await;
    for namespace in [CALM, STORM] {
        make_namespace(&client, namespace).await;
        furnish(&client, namespace).await;
    }
    let bystanders = uids(&client, CALM).await;
    let spaces: Api<Namespace> = Api::all(client);
    spaces.delete(STORM, &DeleteParams::default()).await.unwrap();
    for _ in 0..kills() {
        stage.kill(STORM).await;
    }
    let client = stage.client().await;
    let spaces: Api<Namespace> = Api::all(client.clone());
    if let Some(left) = spaces.get_opt(STORM).await.unwrap() {
        let uid = left.uid().unwrap();
        let gone = await_condition(spaces.clone(), STORM, is_deleted(&uid));
        let gone = tokio::time::timeout(DEADLINE, Box::pin(gone)).await;
        assert!(gone.is_ok(), "it came to {:#?}", spaces.get_opt(STORM).await);
    }
    nothing_of::<Pod>(&client).await;
    nothing_of::<ReplicaSet>(&client).await;
    nothing_of::<Deployment>(&client).await;
    nothing_of::<StatefulSet>(&client).await;
    nothing_of::<DaemonSet>(&client).await;
    nothing_of::<Job>(&client).await;
    nothing_of::<CronJob>(&client).await;
    nothing_of::<PodDisruptionBudget>(&client).await;
    nothing_of::<ResourceQuota>(&client).await;
    nothing_of::<ConfigMap>(&client).await;
    let left: BTreeMap<String, String> = uids(&client, CALM).await;
    assert!(bystanders.iter().all(|(name, uid)| left.get(name) == Some(uid)), "{left:?} of {bystanders:?}");
}

/// Whether nothing of a kind is left in the storm's namespace.
async fn nothing_of<K>(client: &Client)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), STORM);
    let left = api.list_metadata(&ListParams::default()).await.unwrap().items;
    assert!(left.is_empty(), "{left:?}");
}
