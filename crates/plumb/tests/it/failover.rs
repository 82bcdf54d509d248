//! Leaders are killed in the middle of their work, again and again: every pod gets every size once, none is evicted or
//! replaced, and in the end everything is as if no process had been killed.
//!
//! ```text
//!   plumb up: API server, controllers, scheduler, virtual node
//!      ▲  ▲  ▲
//!      │  │  └── 2 × plumb run updater ──▶ pods of a VPA in mode InPlace
//!      │  └───── 2 × plumb run rollout ──▶ pods of a Deployment; its webhook behind one address, as behind a Service
//!      └──────── the test: a new size for both, then kill -9 of each leader after so many of its resizes
//! ```

mod history;
mod proxy;
mod replicas;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use plumb_rollout::workloads::{IN_PLACE_ANNOTATION, RECORD_ANNOTATION};
use plumb_testkit::{eventually, in_time, object};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};

use self::history::{History, requested};
use self::proxy::Proxy;
use self::replicas::Replicas;
use super::cluster::Cluster;
use super::run::FLAGS;

/// The pods of each of the two workloads.
const PODS: usize = 4;
/// The workload of the VPA, and the one that is rolled out.
const SCALED: &str = "scaled";
const ROLLED: &str = "rolled";

/// The cpu of pods in a round.
fn size(round: usize) -> String {
    format!("{}m", 50 + 10 * round)
}

fn workload(name: &str, annotations: Value) -> Deployment {
    let labels = json!({ "app": name });
    object(json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "replicas": PODS, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "containers": [{
                "name": "main", "image": "plumb/load",
                "resources": { "requests": { "cpu": size(0), "memory": "16Mi" } },
            }] },
        } },
    }))
}

async fn create_workloads(client: &Client) {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let annotations = json!({ IN_PLACE_ANNOTATION: "true" });
    for deployment in [workload(SCALED, json!({})), workload(ROLLED, annotations)] {
        deployments.create(&PostParams::default(), &deployment).await.unwrap();
    }
    let vpa: VerticalPodAutoscaler = object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": SCALED },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": SCALED },
            "updatePolicy": { "updateMode": "InPlace" },
            "resourcePolicy": { "containerPolicies": [{ "containerName": "*", "controlledResources": ["cpu"] }] },
        },
    }));
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    vpas.create(&PostParams::default(), &vpa).await.unwrap();
}

/// Edits the template of one workload, and recommends the same for the other, as a recommender would.
async fn ask_for(client: &Client, cpu: &str) {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let container = json!({ "name": "main", "resources": { "requests": { "cpu": cpu } } });
    let edit = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
    let held = deployments.patch(ROLLED, &PatchParams::default(), &Patch::Strategic(edit)).await.unwrap();
    assert!(held.annotations().contains_key(RECORD_ANNOTATION), "the webhook holds it for {cpu}");
    let amounts = json!({ "cpu": cpu });
    let recommended =
        json!([{ "containerName": "main", "target": amounts, "lowerBound": amounts, "upperBound": amounts }]);
    let patch = json!({ "status": { "recommendation": { "containerRecommendations": recommended } } });
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    vpas.patch_status(SCALED, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// The cpu that a pod's node reports as actual.
fn actual(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(&status.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0)
}

async fn pods(client: &Client) -> Vec<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.list(&ListParams::default()).await.unwrap().items
}

/// Waits until every pod has this cpu, and the Deployment is its controller's again.
async fn until_applied(client: &Client, cpu: &str) {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    eventually(async || {
        let pods = pods(client).await;
        let released = deployments.get(ROLLED).await.unwrap().spec.unwrap().paused != Some(true);
        let has = |pod: &Pod| requested(pod) == cpu && actual(pod) == Some(cpu);
        released && pods.len() == 2 * PODS && pods.iter().all(has)
    })
    .await;
}

/// How many requests the API server has answered with success, of those whose series has these labels.
async fn requests(client: &Client, labels: &[&str]) -> u64 {
    let request = ::http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    let series = text.lines().filter(|line| line.starts_with("apiserver_request_total{"));
    let wanted =
        series.filter(|line| line.contains("code=\"20") && labels.iter().all(|label| line.contains(label)));
    wanted.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// What a run comes to.
#[derive(Debug, PartialEq)]
struct End {
    /// The cpu of every pod, one after the other.
    histories: Vec<Vec<String>>,
    /// How often the spec of every pod was changed.
    changes: BTreeSet<Option<i64>>,
    restarts: i32,
    resizes: u64,
    evictions: u64,
    /// The cpu and the replicas of every ReplicaSet.
    replica_sets: BTreeMap<String, Vec<(String, i32)>>,
}

async fn end(client: &Client, history: &History) -> End {
    let pods = pods(client).await;
    let histories = history.of_all();
    let uids: BTreeSet<String> = pods.iter().filter_map(Pod::uid).collect();
    assert_eq!(histories.keys().cloned().collect::<BTreeSet<_>>(), uids, "no pod was replaced");
    let statuses = pods.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref());
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    let mut replica_sets = BTreeMap::<String, Vec<(String, i32)>>::new();
    for set in sets.list(&ListParams::default()).await.unwrap() {
        let spec = set.spec.clone().unwrap();
        let template = spec.template.unwrap().spec.unwrap();
        let cpu =
            template.containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0.clone();
        let app = set.labels()["app"].clone();
        replica_sets.entry(app).or_default().push((cpu, spec.replicas.unwrap_or(1)));
    }
    for sets in replica_sets.values_mut() {
        sets.sort();
    }
    End {
        histories: histories.into_values().collect(),
        changes: pods.iter().map(|pod| pod.metadata.generation).collect(),
        restarts: statuses.flatten().map(|status| status.restart_count).sum(),
        resizes: requests(client, &["verb=\"PATCH\"", "subresource=\"resize\""]).await,
        evictions: requests(client, &["subresource=\"eviction\""]).await,
        replica_sets,
    }
}

/// Runs so many rounds, and kills so many leaders meanwhile: both in a round if there are enough.
async fn run(rounds: usize, kills: usize) -> End {
    let folder = tempfile::tempdir().unwrap();
    let flags = [&FLAGS[..], &["--resize-dialect", "v1.36"]].concat();
    let cluster = Cluster::start_with(&folder.path().join("data"), &flags);
    let client = cluster.client().await;
    let proxy = Proxy::start().await;
    let address = proxy.port().to_string();
    let mut updaters = Replicas::start(&cluster, "updater", "vpa-updater", [&[], &[]]);
    let rollout_flags = |port: u16| {
        [
            "--feature-gates=InPlaceWorkloadVerticalScaling=true".to_owned(),
            "--register-by-url".to_owned(),
            "--webhook-address=127.0.0.1".to_owned(),
            format!("--webhook-port={address}"),
            format!("--port={port}"),
        ]
    };
    let [first, second] = proxy.backends().map(rollout_flags);
    let mut rollouts = Replicas::start(&cluster, "rollout", "plumb-rollout-lease", [&first, &second]);
    create_workloads(&client).await;
    let history = History::follow(&client);
    until_applied(&client, &size(0)).await;
    let mut left = kills;
    for round in 1..=rounds {
        let cpu = size(round);
        // Both webhooks answer, and both leases are held by a process that runs.
        updaters.until_led(&client).await;
        rollouts.until_led(&client).await;
        ask_for(&client, &cpu).await;
        for (replicas, app) in [(&mut rollouts, ROLLED), (&mut updaters, SCALED)] {
            if left > 0 {
                // Before the first resize of a round, after each, and after the last.
                in_time(history.until_resized(app, &cpu, round % (PODS + 1))).await;
                replicas.kill_leader(&cluster, &client).await;
                left -= 1;
            }
        }
        until_applied(&client, &cpu).await;
        println!("round {round} of {rounds}: {cpu}, {} of {kills} leaders killed", kills - left);
    }
    let end = end(&client, &history).await;
    assert!(cluster.stop().success());
    end
}

/// Kills leaders, and compares with a run in which none is killed.
async fn compare(kills: usize) {
    let rounds = kills.div_ceil(2);
    let killed = run(rounds, kills).await;
    let sizes: Vec<String> = (0..=rounds).map(size).collect();
    for history in &killed.histories {
        assert_eq!(*history, sizes, "every size once, and in order");
    }
    assert_eq!((killed.restarts, killed.evictions), (0, 0));
    assert_eq!(killed.resizes, u64::try_from(2 * PODS * rounds).unwrap(), "no resize is repeated or missing");
    assert_eq!(killed, run(rounds, 0).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_gets_every_size_once_while_a_few_leaders_are_killed() {
    compare(4).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: cargo test -p plumb --test it failover -- --ignored --nocapture"]
async fn every_pod_gets_every_size_once_while_a_hundred_leaders_are_killed() {
    let kills = std::env::var("PLUMB_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    compare(kills).await;
}
