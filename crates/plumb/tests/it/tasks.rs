//! Every long-lived task of a cluster is killed, and the cluster works.

mod soak;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, ResourceQuota, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cluster::Cluster;

const PARTS: [&str; 11] = [
    "--components",
    "apiserver,controllers,scheduler,node",
    "--runtime",
    "virtual",
    "--nodes",
    "2",
    "--node-cpu",
    "8",
    "--node-memory",
    "16Gi",
    "--abort-tasks-on-signal",
];

/// Some of the tasks that there must be, one of each kind.
const SOME: [&str; 20] = [
    "apiserver",
    "backup-server",
    "certificate-controller",
    "certificate-rotation",
    "deployment-controller",
    "disruption-controller/stale",
    "event-recorder/deployment-controller",
    "event-ttl-controller",
    "generic-garbage-collector",
    "informer/pods",
    "metadata-informer/deployments.apps",
    "namespace-controller",
    "node-agent",
    "node-agent-2",
    "node-controller",
    "node-server",
    "node-usage",
    "resource-discovery",
    "scheduler",
    "scheduler-informer/pods",
];

async fn get(client: &Client, path: &str) -> kube::Result<String> {
    client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await
}

/// The names of the tasks, if all are well.
async fn tasks(client: &Client) -> Option<BTreeSet<String>> {
    let said = get(client, "/readyz?verbose").await.ok()?;
    let names = said.lines().filter_map(|line| line.strip_prefix("[+]task/")?.strip_suffix(" ok"));
    Some(names.map(str::to_owned).collect())
}

/// The tasks that were aborted so often at least.
async fn aborted(client: &Client, times: u64) -> BTreeSet<String> {
    let figures = get(client, "/metrics").await.unwrap();
    let mut names = BTreeSet::new();
    for line in figures.lines().filter_map(|line| line.strip_prefix("plumb_task_restarts_total{task=\"")) {
        let (name, rest) = line.split_once('"').unwrap();
        let count: u64 = rest.rsplit_once(' ').unwrap().1.parse().unwrap();
        if rest.contains("cause=\"abort\"") && count >= times {
            names.insert(name.to_owned());
        }
    }
    names
}

/// Waits until this answers.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            // Metrics and health have no watch; they are polled.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let Ok(found) = tokio::time::timeout(plumb_testkit::TIMEOUT, waiting).await else {
        panic!("{what}: not in time")
    };
    found
}

/// Waits until an object is as it should be.
async fn becomes<K>(api: &Api<K>, name: &str, holds: impl Fn(&K) -> bool) -> K
where
    K: Clone + DeserializeOwned + std::fmt::Debug + 'static,
{
    let watching = async {
        loop {
            let one = WatchParams::default().fields(&format!("metadata.name={name}"));
            let Ok(events) = api.watch(&one, "0").await else { continue };
            let mut events = events.boxed();
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                    && holds(&object)
                {
                    return object;
                }
            }
        }
    };
    let Ok(object) = tokio::time::timeout(plumb_testkit::TIMEOUT, watching).await else {
        panic!("{name} is not as it should be: {:#?}", api.get(name).await);
    };
    object
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let object = serde_json::from_value(object).unwrap();
    answered("create", async || match api.create(&PostParams::default(), &object).await {
        // The response to the first attempt was lost.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created.map(drop),
    })
    .await;
}

/// Repeats a request until it has a response: the task that serves it may be killed meanwhile.
async fn answered<T>(what: &str, mut ask: impl AsyncFnMut() -> kube::Result<T>) -> T {
    until(what, async || match ask().await {
        Ok(answer) => Some(answer),
        Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
            panic!("{what}: {status:?}")
        }
        Err(error) => {
            println!("{what} is repeated: {error}");
            None
        }
    })
    .await
}

fn template() -> Value {
    let amounts = json!({ "cpu": "10m", "memory": "16Mi" });
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "plumb/load", "resources": { "requests": amounts, "limits": amounts } }],
        },
    })
}

fn ready(replicas: i32) -> impl Fn(&Deployment) -> bool {
    move |web| {
        let status = web.status.clone().unwrap_or_default();
        status.ready_replicas == Some(replicas) && status.replicas == Some(replicas)
    }
}

/// Works on a cluster as its users do, with every part of it; in a namespace of its own.
async fn work(client: &Client, namespace: &str, disturb: impl Fn()) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({ "metadata": { "name": namespace } })).await;
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
    create(&quotas, json!({ "metadata": { "name": "q" }, "spec": { "hard": { "pods": "50" } } })).await;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    becomes(&accounts, "default", |_| true).await;
    let web = json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "web" } }, "template": template() },
    });
    create(&deployments, web).await;
    disturb();
    becomes(&deployments, "web", ready(3)).await;
    let scale = |replicas: i32| Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let params = PatchParams::default();
    answered("scale up", async || deployments.patch("web", &params, &scale(8)).await).await;
    disturb();
    becomes(&deployments, "web", ready(8)).await;
    answered("scale down", async || deployments.patch("web", &params, &scale(2)).await).await;
    becomes(&deployments, "web", ready(2)).await;
    becomes(&quotas, "q", |quota| {
        let used = quota.status.as_ref().and_then(|status| status.used.as_ref()?.get("pods").cloned());
        used.is_some_and(|used| used.0 == "2")
    })
    .await;

    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let listed = answered("list pods", async || pods.list(&ListParams::default()).await).await;
    let name = listed.items[0].metadata.name.clone().unwrap();
    let amounts = json!({ "cpu": "20m", "memory": "32Mi" });
    let resized = json!({ "spec": { "containers": [{ "name": "main", "resources": { "requests": amounts, "limits": amounts } }] } });
    let resized = Patch::Strategic(resized);
    answered("resize", async || pods.patch_resize(&name, &params, &resized).await).await;
    disturb();
    becomes(&pods, &name, |pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let limits = statuses.and_then(|all| all.first()?.resources.as_ref()?.limits.as_ref());
        limits.is_some_and(|limits| limits["cpu"].0 == "20m")
    })
    .await;

    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let mut once = template();
    once["spec"]["restartPolicy"] = json!("Never");
    create(&jobs, json!({ "metadata": { "name": "once" }, "spec": { "suspend": true, "template": once } }))
        .await;
    becomes(&jobs, "once", |job| {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Suspended" && one.status == "True"))
    })
    .await;

    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    for reason in ["ScalingReplicaSet", "SuccessfulCreate", "Scheduled", "Started"] {
        until(&format!("an event {reason}"), async || {
            let recorded = events.list(&ListParams::default()).await.ok()?;
            recorded.items.iter().any(|event| event.reason.as_deref() == Some(reason)).then_some(())
        })
        .await;
    }
    answered("delete the namespace", async || {
        match namespaces.delete(namespace, &DeleteParams::default()).await {
            // The response to the first attempt was lost.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            deleted => deleted.map(drop),
        }
    })
    .await;
    disturb();
    until("the namespace goes", async || namespaces.get_opt(namespace).await.ok()?.is_none().then_some(()))
        .await;
}

/// The components count into one page, where each family begins once.
async fn shows_metrics_of_components(client: &Client) {
    let page = get(client, "/metrics").await.unwrap();
    for series in [
        "controller_runtime_reconcile_total{controller=\"deployment-controller\",result=\"success\"} ",
        "workqueue_adds_total{name=\"deployment-controller\"} ",
        "reflector_lists_total{name=\"pods\"} ",
        "plumb_event_recorder_events_total{component=\"deployment-controller\",result=\"created\"} ",
        "plumb_event_recorder_events_total{component=\"default-scheduler\",result=\"created\"} ",
        "rest_client_requests_total{code=\"201\",method=\"POST\",host=\"in-process\"} ",
    ] {
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        assert!(line.is_some_and(|count| count != "0"), "{series}\nin\n{page}");
    }
    let mut families: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    let all = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), all, "a family that begins twice cannot be read");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_task_that_is_killed_comes_back_and_the_cluster_works() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &PARTS);
    let client = cluster.client().await;
    let pid = Pid::from_raw(i32::try_from(cluster.pid()).unwrap());
    let kill_all = || kill(pid, Signal::SIGUSR1).unwrap();
    let all = until("all tasks run", async || {
        tasks(&client).await.filter(|all| SOME.iter().all(|name| all.contains(*name)))
    })
    .await;

    kill_all();
    let killed = until("each is killed", async || {
        let killed = aborted(&client, 1).await;
        if all.iter().all(|name| killed.contains(name)) {
            return Some(killed);
        }
        // A task that ended because another one was killed, in the moment that it was to be killed itself, came back without.
        if tasks(&client).await.is_some_and(|now| all.iter().all(|name| now.contains(name))) {
            kill_all();
        }
        None
    })
    .await;
    assert!(killed.len() >= all.len());
    until("each is back", async || {
        tasks(&client).await.filter(|now| all.iter().all(|name| now.contains(name)))
    })
    .await;
    work(&client, "after", || ()).await;
    shows_metrics_of_components(&client).await;
    // And in the midst of it.
    work(&client, "amid", kill_all).await;
    let said = cluster.said();
    assert!(!said.contains("panicked"), "{said}");
}
