//! The CPU start-up boost in a cluster that `plumb up` runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use futures_util::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use plumb_testkit::{eventually, in_time, object, until, until_all, until_gone};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::processes::Lines;

const FLAGS: [&str; 8] =
    ["--components", "all", "--runtime", "virtual", "--node-cpu", "8", "--max-allowed-cpu-boost", "3"];

async fn create(client: &Client, name: &str, spec: &Value, template: &Value) {
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let mut spec = spec.clone();
    spec["targetRef"] = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": name });
    let vpa: VerticalPodAutoscaler = object(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": name }, "spec": spec,
    }));
    vpas.create(&PostParams::default(), &vpa).await.unwrap();
    let labels = json!({ "app": name });
    let deployment: Deployment = object(json!({
        "metadata": { "name": name },
        "spec": { "replicas": 0, "selector": { "matchLabels": labels },
                  "template": { "metadata": { "labels": labels }, "spec": { "containers": template } } },
    }));
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    if spec.get("startupBoost").is_some() {
        until_boosting(client, name, template).await;
    }
    let two = json!({ "spec": { "replicas": 2 } });
    deployments.patch(name, &PatchParams::default(), &Patch::Merge(&two)).await.unwrap();
}

/// Waits until the webhook knows of the VPA of a workload, which it does by a watch: it boosts a pod that is created in a
/// dry run.
async fn until_boosting(client: &Client, name: &str, template: &Value) {
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    let of_workload = |set: &ReplicaSet| set.labels().get("app").is_some_and(|app| app == name);
    let sets = until_all(&sets, |all| all.values().any(of_workload)).await;
    let set = sets.into_values().find(of_workload).unwrap();
    let owner = plumb_controller_runtime::controller_reference(&set);
    let pod: Pod = object(json!({
        "metadata": { "generateName": format!("{name}-"), "labels": { "app": name }, "ownerReferences": [owner] },
        "spec": { "containers": template },
    }));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let is_boosted = async || {
        let created = pods.create(&dry_run, &pod).await.unwrap();
        annotation(&created, "vpaCpuStartupBoost/load").is_some()
    };
    eventually(is_boosted).await;
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a String> {
    pod.metadata.annotations.as_ref()?.get(name)
}

/// Since when a pod is ready, if it is.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready =
        conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

fn cpu_request(pod: &Pod) -> Option<String> {
    let resources = pod.spec.as_ref()?.containers.first()?.resources.as_ref()?;
    Some(resources.requests.as_ref()?.get("cpu")?.0.clone())
}

fn plumb(cluster: &Cluster, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    let output = command.args(args).arg("--kubeconfig").arg(cluster.kubeconfig()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The lines of `plumb status --watch`.
struct Watching {
    command: Child,
    lines: Lines,
}

fn watch(cluster: &Cluster) -> Watching {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(["status", "--watch", "--kubeconfig"]).arg(cluster.kubeconfig()).stdout(Stdio::piped());
    let mut command = command.spawn().unwrap();
    let lines = Lines::of(command.stdout.take().unwrap());
    Watching { command, lines }
}

impl Iterator for Watching {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.lines.next()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_of_the_documentation_boosts_one_container() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/startup-boost.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, manifest) = page.split_once("```yaml\n").unwrap();
    let (manifest, _) = manifest.split_once("```").unwrap();
    let [vpa, deployment]: [Value; 2] =
        serde_saphyr::from_multiple::<Value>(manifest).unwrap().try_into().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    until(&configurations, "vpa-webhook-config", |_: &MutatingWebhookConfiguration| true).await;
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    vpas.create(&PostParams::default(), &object(vpa)).await.unwrap();
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &object(deployment)).await.unwrap();
    let event = plumb_testkit::event(&client, "web", "StartupBoosted", 1).await;
    let message = event.message.unwrap_or_default();
    let expected = "container app: request 100m, limit 200m to request 300m, limit 600m,";
    assert!(message.contains(expected), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boost_lasts_until_durationseconds_after_ready_and_no_shorter() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    until(&configurations, "vpa-webhook-config", |_: &MutatingWebhookConfiguration| true).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut changes = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let boost = json!({ "updatePolicy": { "updateMode": "Off" },
        "startupBoost": { "cpu": { "type": "Factor", "factor": 3, "durationSeconds": 2 } } });
    let template = json!([{ "name": "load", "image": "plumb/load", "args": ["--cpu", "10m"],
        "resources": { "requests": { "cpu": "100m" }, "limits": { "cpu": "200m" } } }]);
    create(&client, "web", &boost, &template).await;

    // Every version of every pod, in order: boosted when it is created, and unboosted two seconds after it was ready.
    let mut unboosted: BTreeMap<String, Timestamp> = BTreeMap::new();
    let mut created = BTreeMap::new();
    while unboosted.len() < 2 {
        let pod = match in_time(changes.next()).await.unwrap().unwrap() {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => pod,
            // Marks the end of the initial events.
            WatchEvent::Bookmark(_) => continue,
            other => panic!("{other:?}"),
        };
        let name = pod.name_any();
        created.entry(name.clone()).or_insert_with(|| cpu_request(&pod));
        match cpu_request(&pod).as_deref() {
            Some("300m") => assert!(!unboosted.contains_key(&name), "{name} is boosted again"),
            Some("100m") => {
                let ready = ready_since(&pod).expect("a pod that is not ready keeps its boost");
                let lasted = Timestamp::now().duration_since(ready);
                assert!(lasted >= SignedDuration::from_secs(2), "{name} was boosted for {lasted}");
                unboosted.entry(name).or_insert(ready);
            }
            other => panic!("{name} has {other:?}"),
        }
    }
    assert!(created.values().all(|cpu| cpu.as_deref() == Some("300m")), "{created:?}");
    let ended =
        until_all(&pods, |all| all.values().all(|pod| annotation(pod, "vpaCpuStartupBoost/load").is_none()));
    assert_eq!(ended.await.len(), 2);
    plumb_testkit::event(&client, "web", "StartupBoosted", 1).await;
    plumb_testkit::event(&client, "web", "StartupBoostEnded", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_deployment_start_with_more_cpu_and_get_back_once_they_are_ready() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    until(&configurations, "vpa-webhook-config", |_: &MutatingWebhookConfiguration| true).await;
    let boost = json!({ "updatePolicy": { "updateMode": "Off" },
        "startupBoost": { "cpu": { "type": "Factor", "factor": 20, "durationSeconds": 3600 } } });
    let template = json!([{ "name": "load", "image": "plumb/load", "args": ["--cpu", "10m"],
        "resources": { "requests": { "cpu": "100m" }, "limits": { "cpu": "200m" } } }]);
    create(&client, "web", &boost, &template).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pods = until_all(&pods, |all| all.len() == 2).await;
    for pod in pods.values() {
        let requests = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap().requests.unwrap();
        assert_eq!(requests["cpu"].0, "2");
        let original = r#"{"requests":{"cpu":"100m"},"limits":{"cpu":"200m"}}"#;
        assert_eq!(annotation(pod, "vpaCpuStartupBoost/load").map(String::as_str), Some(original));
    }
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let counted = until(&vpas, "web", |vpa: &VerticalPodAutoscaler| {
        let mut conditions = vpa.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.message.as_deref() == Some("boosted: 2"))
    });
    counted.await;
    let all: Api<Pod> = Api::default_namespaced(client.clone());
    let ready = until_all(&all, |all| all.values().all(|pod| ready_since(pod).is_some())).await;
    for (name, pod) in &ready {
        let until = ready_since(pod).unwrap() + SignedDuration::from_hours(1);
        let line =
            format!("{name}: CPU start-up boost of container load: 2/4 instead of 100m/200m until {until}");
        for args in [vec!["status", name.as_str()], vec!["status"], vec!["status", "vpa/web"]] {
            let shown = plumb(&cluster, &args);
            assert!(shown.lines().any(|found| found == line), "{line:?} is not in\n{shown}");
        }
        let row: Vec<String> = plumb(&cluster, &["status", "vpa/web"])
            .lines()
            .map(|line| line.split_whitespace().take(8).collect::<Vec<_>>().join(" "))
            .filter(|line| line.contains(name))
            .collect();
        assert!(row.contains(&format!("web {name} load 2 → 100m - Boosted")), "{row:?}");
        let value: Value = serde_json::from_str(&plumb(&cluster, &["status", name, "-o", "json"])).unwrap();
        let expected = json!([{ "container": "load", "boosted": { "request": "2", "limit": "4" },
            "unboosted": { "request": "100m", "limit": "200m" }, "until": until.to_string(), "durationSeconds": 3600 }]);
        assert_eq!(value["boosts"], expected);
    }
    let counted = plumb(&cluster, &["status", "vpa"]);
    let counted: Vec<Vec<&str>> = counted.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(counted.contains(&vec!["web", "2", "2", "Boosted"]), "{counted:?}");
    let mut watching = watch(&cluster);
    for (name, pod) in &ready {
        let until = ready_since(pod).unwrap() + SignedDuration::from_hours(1);
        let line =
            format!("{name}: CPU start-up boost of container load: 2/4 instead of 100m/200m until {until}");
        // The boosts are in the order of the pods.
        watching.by_ref().find(|found| *found == line).expect("--watch shows the boost");
    }
    let edited = json!({ "spec": { "startupBoost": { "cpu": { "type": "Factor", "factor": 20, "durationSeconds": 0 } } } });
    vpas.patch("web", &PatchParams::default(), &Patch::Merge(&edited)).await.unwrap();
    let after =
        until_all(&all, |all| all.values().all(|pod| annotation(pod, "vpaCpuStartupBoost/load").is_none()))
            .await;
    for (name, pod) in &after {
        let resources = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap();
        assert_eq!(resources.requests.unwrap()["cpu"].0, "100m");
        assert_eq!(resources.limits.unwrap()["cpu"].0, "200m");
        assert!(pods.contains_key(name), "the same pods");
    }
    // A pod whose boost has ended is printed without it.
    let mut last = BTreeMap::new();
    while last.len() < 2 || last.values().any(|cpu| cpu != "100m/200m") {
        let line = watching.next().expect("--watch goes on");
        // The time comes first.
        let mut cells = line.split_whitespace().skip(1);
        if let (Some(pod), Some("load"), Some(cpu)) = (cells.next(), cells.next(), cells.next()) {
            last.insert(pod.to_owned(), cpu.to_owned());
        }
    }
    drop(watching);
    let refused = json!({ "startupBoost": { "cpu": { "type": "Quantity", "quantity": "100u" } } });
    let mut vpa = object::<VerticalPodAutoscaler>(json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "bad" },
        "spec": { "targetRef": { "kind": "Deployment", "name": "web" } },
    }));
    vpa.spec.startup_boost = serde_json::from_value(refused["startupBoost"].clone()).unwrap();
    let error = vpas.create(&PostParams::default(), &vpa).await.unwrap_err().to_string();
    assert!(error.contains("must be a whole number of milli CPUs"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhooks_of_components_that_are_left_out_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let flags = [&FLAGS[..], &["--feature-gates", "InPlaceWorkloadVerticalScaling=true"]].concat();
    let cluster = Cluster::start_with(&data, &flags);
    let names = ["vpa-webhook-config", "plumb-rollout-webhook"];
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.client().await);
    for name in names {
        until(&configurations, name, |_: &MutatingWebhookConfiguration| true).await;
    }
    assert!(cluster.stop().success());
    let cluster = Cluster::start_with(&data, &["--components", "apiserver,controllers"]);
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.client().await);
    for name in names {
        until_gone(&configurations, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_during_a_boost_leaves_the_boost_and_changes_what_comes_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [&FLAGS[..], &["--feature-gates", "InPlaceWorkloadVerticalScaling=true"]].concat();
    let cluster = Cluster::start_with(&folder.path().join("data"), &flags);
    let client = cluster.client().await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    for name in ["vpa-webhook-config", "plumb-rollout-webhook"] {
        until(&configurations, name, |_: &MutatingWebhookConfiguration| true).await;
    }
    let boost = json!({ "updatePolicy": { "updateMode": "Off" },
        "startupBoost": { "cpu": { "type": "Factor", "factor": 3, "durationSeconds": 3600 } } });
    let template = json!([{ "name": "load", "image": "plumb/load", "args": ["--cpu", "10m"],
        "resources": { "requests": { "cpu": "100m", "memory": "32Mi" } } }]);
    create(&client, "web", &boost, &template).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let is_ready =
        |all: &BTreeMap<String, Pod>| all.len() == 2 && all.values().all(|pod| ready_since(pod).is_some());
    let before = until_all(&pods, is_ready).await;

    let container =
        json!({ "name": "load", "resources": { "requests": { "cpu": "150m", "memory": "64Mi" } } });
    let edit = json!({
        "metadata": { "annotations": { "rollout.plumb.dev/in-place": "true" } },
        "spec": { "template": { "spec": { "containers": [container] } } },
    });
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    // The annotation and the edit in one write: the webhook holds what opts in.
    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(&edit)).await.unwrap();
    let complete = |deployment: &Deployment| {
        let status = deployment.annotations().get("rollout.plumb.dev/status");
        status.is_some_and(|status| status.contains(r#""phase":"Complete""#))
    };
    until(&deployments, "web", complete).await;
    let memory = |pod: &Pod| {
        let resources = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap();
        resources.requests.unwrap()["memory"].0.clone()
    };
    for (name, pod) in until_all(&pods, |all| all.values().all(|pod| memory(pod) == "64Mi")).await {
        assert!(before.contains_key(&name), "the pods are resized");
        assert_eq!(cpu_request(&pod).as_deref(), Some("300m"), "{name} keeps its boost");
        let line = format!("{name}: CPU start-up boost of container load: 300m/- instead of 150m/-");
        let shown = plumb(&cluster, &["status", &name]);
        assert!(shown.contains(&line), "{line:?} is not in\n{shown}");
    }
    let edited = json!({ "spec": { "startupBoost": { "cpu": { "durationSeconds": 0 } } } });
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    vpas.patch("web", &PatchParams::default(), &Patch::Merge(&edited)).await.unwrap();
    let is_unboosted = |pod: &Pod| annotation(pod, "vpaCpuStartupBoost/load").is_none();
    let after = until_all(&pods, |all| all.values().all(is_unboosted)).await;
    for (name, pod) in &after {
        assert!(before.contains_key(name), "the same pods");
        assert_eq!(cpu_request(pod).as_deref(), Some("150m"), "{name} has what the rollout gave it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_starter_is_ready_much_earlier_with_a_boost() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_with(&folder.path().join("data"), &FLAGS);
    let client = cluster.client().await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    until(&configurations, "vpa-webhook-config", |_: &MutatingWebhookConfiguration| true).await;
    let boost = json!({ "updatePolicy": { "updateMode": "Off" },
        "startupBoost": { "cpu": { "type": "Factor", "factor": 20 } } });
    // Twelve seconds of CPU: two minutes with 100m, and six seconds with the boost.
    let template = json!([{ "name": "load", "image": "plumb/load",
        "args": ["--cpu", "10m", "--startup-work", "12s", "--startup-cpu", "2"],
        "readinessProbe": { "exec": { "command": ["/plumb", "load", "--started"] }, "periodSeconds": 1 },
        "resources": { "requests": { "cpu": "100m" }, "limits": { "cpu": "100m" } } }]);
    create(&client, "plain", &json!({ "updatePolicy": { "updateMode": "Off" } }), &template).await;
    create(&client, "boosted", &boost, &template).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let of = |all: &BTreeMap<String, Pod>, workload: &str| -> Vec<Pod> {
        all.iter().filter(|(name, _)| name.starts_with(workload)).map(|(_, pod)| pod.clone()).collect()
    };
    let all = until_all(&pods, |all: &BTreeMap<String, Pod>| {
        let boosted = of(all, "boosted");
        boosted.len() == 2 && boosted.iter().all(|pod| ready_since(pod).is_some())
    });
    let plain = of(&all.await, "plain");
    assert_eq!(plain.len(), 2);
    assert!(plain.iter().all(|pod| ready_since(pod).is_none()), "older, and not ready yet");
    let ended = until_all(&pods, |all: &BTreeMap<String, Pod>| {
        of(all, "boosted").iter().all(|pod| cpu_request(pod).as_deref() == Some("100m"))
    });
    ended.await;
}
