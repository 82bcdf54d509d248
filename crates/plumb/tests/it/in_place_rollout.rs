//! The rollout that `plumb up` runs: CloneSets, and workloads whose pods are resized when their template changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use plumb_rollout::workloads::{IN_PLACE_ANNOTATION, RECORD_ANNOTATION};
use plumb_testkit::{eventually, object, until, until_all};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::command_line::run;

const FLAGS: [&str; 8] = [
    "--components",
    "apiserver,controllers,scheduler,node,rollout",
    "--runtime",
    "virtual",
    "--nodes",
    "2",
    "--node-cpu",
    "8",
];
const GATE: [&str; 2] = ["--feature-gates", "InPlaceWorkloadVerticalScaling=true"];

fn on() -> Vec<&'static str> {
    [&FLAGS[..], &GATE[..]].concat()
}

fn workload(name: &str, further: Value) -> Value {
    let mut workload = json!({
        "metadata": { "name": name, "annotations": { IN_PLACE_ANNOTATION: "true" } },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "terminationGracePeriodSeconds": 0, "containers": [{
                    "name": "main", "image": "plumb/load",
                    "resources": { "requests": { "cpu": "100m", "memory": "16Mi" } },
                }] },
            },
        },
    });
    for (field, value) in further.as_object().unwrap() {
        workload["spec"][field] = value.clone();
    }
    workload
}

/// The change of a user: nothing but cpu.
fn more_cpu() -> Patch<Value> {
    with_cpu("150m")
}

fn with_cpu(cpu: &str) -> Patch<Value> {
    let container = json!({ "name": "main", "resources": { "requests": { "cpu": cpu } } });
    Patch::Strategic(json!({ "spec": { "template": { "spec": { "containers": [container] } } } }))
}

fn cpu(pod: &Pod) -> String {
    let resources = pod.spec.as_ref().unwrap().containers[0].resources.as_ref();
    resources.unwrap().requests.as_ref().unwrap()["cpu"].0.clone()
}

/// Creates the policy of the Deployment, and waits until the controllers have observed it.
async fn create_policy(client: &Client, mut spec: Value) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("plumb.dev", "v1alpha1", "RolloutPolicy"));
    let resource = ApiResource { plural: "rolloutpolicies".to_owned(), ..resource };
    let policies: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    spec["targetRef"] = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let policy = json!({
        "apiVersion": "plumb.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": { "name": "web" }, "spec": spec,
    });
    policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
    until(&policies, "web", |policy: &DynamicObject| policy.data["status"]["conditions"].is_array()).await;
    policies
}

/// What the node reports as actual.
fn actual_cpu(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let resources = statuses.first()?.resources.as_ref()?;
    Some(resources.requests.as_ref()?.get("cpu")?.0.clone())
}

async fn pods(client: &Client, app: &str) -> Vec<Pod> {
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    api.list(&ListParams::default().labels(&format!("app={app}"))).await.unwrap().items
}

fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(Pod::uid).collect()
}

/// Waits until so many pods run with so much cpu, spec and actual.
async fn until_pods(client: &Client, app: &str, count: usize, wanted: &str) -> Vec<Pod> {
    let mut found = Vec::new();
    eventually(async || {
        found = pods(client, app).await;
        found.len() == count
            && found.iter().all(|pod| cpu(pod) == wanted && actual_cpu(pod).as_deref() == Some(wanted))
    })
    .await;
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_gate_a_change_of_resources_resizes_the_same_pods() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &on());
    let client = cluster.client().await;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    until(&webhooks, "plumb-rollout-webhook", |_: &MutatingWebhookConfiguration| true).await;

    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let stateful_sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    let daemon_sets: Api<DaemonSet> = Api::default_namespaced(client.clone());
    let create = PostParams::default();
    deployments.create(&create, &object(workload("web", json!({ "replicas": 3 })))).await.unwrap();
    let stateful = json!({ "replicas": 2, "serviceName": "db", "podManagementPolicy": "Parallel" });
    stateful_sets.create(&create, &object(workload("db", stateful))).await.unwrap();
    daemon_sets.create(&create, &object(workload("agent", json!({})))).await.unwrap();
    let counts = BTreeMap::from([("web", 3), ("db", 2), ("agent", 2)]);
    let mut before = BTreeMap::new();
    for (app, count) in &counts {
        before.insert(*app, uids(&until_pods(&client, app, *count, "100m").await));
    }

    let patch = PatchParams::default();
    let held = deployments.patch("web", &patch, &more_cpu()).await.unwrap();
    assert!(held.annotations().contains_key(RECORD_ANNOTATION), "it is held in the same write");
    stateful_sets.patch("db", &patch, &more_cpu()).await.unwrap();
    daemon_sets.patch("agent", &patch, &more_cpu()).await.unwrap();
    for (app, count) in &counts {
        let after = until_pods(&client, app, *count, "150m").await;
        assert_eq!(uids(&after), before[app], "the pods of {app} are the same");
        let restarts = after
            .iter()
            .flat_map(|pod| pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten()));
        assert!(restarts.map(|status| status.restart_count).all(|count| count == 0));
    }
    // The native controllers have nothing left to do.
    until(&deployments, "web", |web: &Deployment| {
        let (spec, status) = (web.spec.as_ref().unwrap(), web.status.as_ref().unwrap());
        spec.paused != Some(true)
            && status.updated_replicas == Some(3)
            && status.observed_generation == web.metadata.generation
    })
    .await;
    until(&daemon_sets, "agent", |agent: &DaemonSet| {
        let strategy = agent.spec.as_ref().unwrap().update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("RollingUpdate")
    })
    .await;
    for (app, count) in &counts {
        assert_eq!(uids(&until_pods(&client, app, *count, "150m").await), before[app]);
    }
    let replica_sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    until_all(&replica_sets, |sets: &BTreeMap<String, ReplicaSet>| {
        let replicas = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.replicas);
        sets.values().filter(|set| replicas(set) == Some(3)).count() == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_gate_pods_are_recreated_and_nothing_is_registered() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let cluster = Cluster::start_with(&data, &on());
    let client = cluster.client().await;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    until(&webhooks, "plumb-rollout-webhook", |_: &MutatingWebhookConfiguration| true).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments
        .create(&PostParams::default(), &object(workload("web", json!({ "replicas": 2 }))))
        .await
        .unwrap();
    until_pods(&client, "web", 2, "100m").await;
    assert!(cluster.stop().success());

    let cluster = Cluster::start_with(&data, &FLAGS);
    let client = cluster.client().await;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let is_unregistered = |found: &MutatingWebhookConfiguration| found.webhooks.iter().all(Vec::is_empty);
    until(&webhooks, "plumb-rollout-webhook", is_unregistered).await;
    let before = uids(&until_pods(&client, "web", 2, "100m").await);
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    // No node has so much: the Deployment's own controller does not get ahead.
    deployments.patch("web", &PatchParams::default(), &with_cpu("64")).await.unwrap();
    let off = "in-place rollouts are off in this cluster; --feature-gates InPlaceWorkloadVerticalScaling=true turns them on";
    let native =
        format!("deployment/web: no in-place rollout (its own controller replaces pods now): {off}\n");
    assert_eq!(run(&cluster, &["rollout", "status", "deploy/web"]), (Some(1), native));
    let (code, none) = run(&cluster, &["rollout", "status", "deploy/web", "-o", "json"]);
    let none: Value = serde_json::from_str(&none).unwrap();
    let workload = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "phase": null });
    assert_eq!((code, none), (Some(1), workload));
    deployments.patch("web", &PatchParams::default(), &more_cpu()).await.unwrap();
    let after = uids(&until_pods(&client, "web", 2, "150m").await);
    assert!(before.is_disjoint(&after), "the Deployment's own controller has recreated them");
    let done = (Some(0), format!("deployment/web: no in-place rollout: {off}\n"));
    eventually(async || run(&cluster, &["status", "deploy/web"]) == done).await;
}

/// A cluster that is stopped while a rollout holds a Deployment, and started with these flags, which release it.
async fn restarted_with(data: &Path, flags: &[&str]) -> Cluster {
    let cluster = Cluster::start_with(data, &on());
    let client = cluster.client().await;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    until(&webhooks, "plumb-rollout-webhook", |_: &MutatingWebhookConfiguration| true).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let web = object(workload("web", json!({ "replicas": 2 })));
    deployments.create(&PostParams::default(), &web).await.unwrap();
    let before = uids(&until_pods(&client, "web", 2, "100m").await);
    create_policy(&client, json!({ "paused": true })).await;
    let held = deployments.patch("web", &PatchParams::default(), &more_cpu()).await.unwrap();
    assert_eq!(held.spec.unwrap().paused, Some(true));
    assert!(cluster.stop().success());

    let cluster = Cluster::start_with(data, flags);
    let client = cluster.client().await;
    let after = uids(&until_pods(&client, "web", 2, "150m").await);
    assert!(before.is_disjoint(&after), "the Deployment's own controller has recreated them");
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let web = deployments.get("web").await.unwrap();
    assert_eq!(web.spec.unwrap().paused, None);
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_released_if_the_gate_is_turned_off_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = restarted_with(&folder.path().join("data"), &FLAGS).await;
    let done =
        "deployment/web: no in-place rollout: the last change was rolled out by the Deployment controller\n";
    let done = (Some(0), done.to_owned());
    eventually(async || run(&cluster, &["rollout", "status", "deploy/web"]) == done).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_released_if_its_component_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [&["--components", "apiserver,controllers,scheduler,node"], &FLAGS[2..]].concat();
    restarted_with(&folder.path().join("data"), &flags).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clone_sets_run_without_the_gate() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for name in ["clonesets.apps.kruise.io", "rolloutpolicies.plumb.dev"] {
        until(&definitions, name, |crd: &CustomResourceDefinition| {
            let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions
                .into_iter()
                .any(|condition| condition.type_ == "Established" && condition.status == "True")
        })
        .await;
    }
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("apps.kruise.io", "v1alpha1", "CloneSet"),
        "clonesets",
    );
    let sets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let mut set = workload("web", json!({ "replicas": 2 }));
    set["apiVersion"] = json!("apps.kruise.io/v1alpha1");
    set["kind"] = json!("CloneSet");
    sets.create(&PostParams::default(), &object(set)).await.unwrap();
    until_pods(&client, "web", 2, "100m").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_follow_pause_resume_and_undo_a_rollout() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &on());
    let client = cluster.client().await;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    until(&webhooks, "plumb-rollout-webhook", |_: &MutatingWebhookConfiguration| true).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let web = object(workload("web", json!({ "replicas": 3 })));
    deployments.create(&PostParams::default(), &web).await.unwrap();
    let before = uids(&until_pods(&client, "web", 3, "100m").await);

    let none = run(&cluster, &["rollout", "status", "deploy/web"]);
    let mut api = workload("api", json!({ "replicas": 1 }));
    api["metadata"]["annotations"] = json!({});
    deployments.create(&PostParams::default(), &object(api)).await.unwrap();
    until_pods(&client, "api", 1, "100m").await;
    let (_, without) = run(&cluster, &["rollout", "status", "deploy/api"]);
    assert!(without.contains("it does not opt in; kubectl annotate it with"), "{without}");
    let unchanged =
        "deployment/web: no in-place rollout: the cpu and memory in its template have not changed\n";
    assert_eq!(none, (Some(0), unchanged.to_owned()));
    for (command, expected) in [
        (["rollout", "pause", "deploy/web"], "deployment/web: no in-place rollout is under way"),
        (["rollout", "undo", "deploy/web"], "deployment/web: there is no in-place rollout to undo"),
        (["rollout", "resume", "deploy/other"], "deployments.apps \"other\" not found"),
        (["rollout", "status", "deploy/other"], "deployments.apps \"other\" not found"),
        (["rollout", "status", "web"], "write deploy/NAME, sts/NAME, ds/NAME or cloneset/NAME"),
        (["rollout", "status", "cloneset/web"], "clonesets.apps.kruise.io \"web\" not found"),
    ] {
        let (code, printed) = run(&cluster, &command);
        assert!(code != Some(0) && printed.contains(expected), "{command:?}: {code:?} {printed}");
    }

    // A policy that pauses leaves time for commands.
    let policies = create_policy(&client, json!({ "canary": [{ "pods": 1 }] })).await;
    deployments.patch("web", &PatchParams::default(), &more_cpu()).await.unwrap();
    eventually(async || run(&cluster, &["status", "deploy/web"]).1.contains("Paused, 1 of 3 pods done"))
        .await;
    let paused = run(&cluster, &["rollout", "pause", "deploy/web"]);
    assert_eq!(paused, (Some(0), "deployment/web paused\n".to_owned()));
    let resumed = run(&cluster, &["rollout", "resume", "deploy/web"]);
    assert_eq!(resumed, (Some(0), "deployment/web resumed\n".to_owned()));
    let (code, followed) = run(&cluster, &["rollout", "status", "deploy/web"]);
    assert!(code == Some(0) && followed.ends_with("Complete, 3 of 3 pods done\n"), "{code:?} {followed}");
    until_pods(&client, "web", 3, "150m").await;

    policies.delete("web", &kube::api::DeleteParams::default()).await.unwrap();
    let undone = run(&cluster, &["rollout", "undo", "deploy/web"]);
    assert_eq!(undone, (Some(0), "deployment/web is being rolled back\n".to_owned()));
    let after = until_pods(&client, "web", 3, "100m").await;
    assert_eq!(uids(&after), before, "no pod was recreated");
    let (code, json) = run(&cluster, &["rollout", "status", "deploy/web", "-o", "json"]);
    let status: Value =
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {code:?} {json}"));
    assert_eq!((&status["phase"], &status["pods"]["done"]), (&json!("Complete"), &json!(3)));
    assert_eq!((&status["kind"], &status["name"]), (&json!("Deployment"), &json!("web")));

    // One that is under way is undone, too, and that is what was asked for.
    create_policy(&client, json!({ "canary": [{ "pods": 1 }] })).await;
    deployments.patch("web", &PatchParams::default(), &more_cpu()).await.unwrap();
    eventually(async || run(&cluster, &["status", "deploy/web"]).1.contains("Paused, 1 of 3 pods done"))
        .await;
    assert_eq!(run(&cluster, &["rollout", "undo", "deploy/web"]).0, Some(0));
    let (code, followed) = run(&cluster, &["rollout", "status", "deploy/web"]);
    assert!(code == Some(0) && followed.contains("RolledBack"), "{code:?} {followed}");
    until_pods(&client, "web", 3, "100m").await;

    // What another controller rolls out afterwards is not reported as an in-place rollout.
    let container = json!({ "name": "main", "env": [{ "name": "GREETING", "value": "hello" }] });
    let other =
        Patch::Strategic(json!({ "spec": { "template": { "spec": { "containers": [container] } } } }));
    let web = deployments.get("web").await.unwrap();
    assert_ne!(web.spec.unwrap().paused, Some(true), "it is released when its rollback has ended");
    deployments.patch("web", &PatchParams::default(), &other).await.unwrap();
    let mut native = (None, String::new());
    eventually(async || {
        native = run(&cluster, &["rollout", "status", "deploy/web"]);
        // Until its own controller is done.
        native.0 == Some(0)
    })
    .await;
    let expected =
        "deployment/web: no in-place rollout: the last change was rolled out by the Deployment controller\n";
    assert_eq!(native.1, expected);
}
