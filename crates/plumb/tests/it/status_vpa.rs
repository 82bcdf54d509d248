//! `plumb status vpa`, as a person or a script uses it, on a cluster where any recommender may have written.

use std::process::{Command, Output, Stdio};

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_vpa_api::{VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::processes::{Lines, kill};

fn plumb(cluster: &Cluster, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.args(args).arg("--kubeconfig").arg(cluster.kubeconfig()).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn create_vpa(client: &Client, name: &str, spec: Value, status: Value) {
    let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(client.clone(), "default");
    let vpa = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap();
    vpas.create(&PostParams::default(), &vpa).await.unwrap();
    let status = json!({ "status": status });
    vpas.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

async fn create_checkpoint(client: &Client, name: &str, vpa: &str, container: &str, status: Value) {
    let checkpoints: Api<VerticalPodAutoscalerCheckpoint> = Api::namespaced(client.clone(), "default");
    let checkpoint = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "vpaObjectName": vpa, "containerName": container },
        "status": status,
    }))
    .unwrap();
    checkpoints.create(&PostParams::default(), &checkpoint).await.unwrap();
}

/// One sample of 100m and 1e8 bytes, as upstream's recommender writes it.
fn one_sample() -> Value {
    let histogram = |reference: &str, total: f64| json!({ "referenceTimestamp": reference, "bucketWeights": { "8": 10000 }, "totalWeight": total });
    json!({
        "version": "v3", "lastUpdateTime": "2026-01-01T00:01:00Z",
        "firstSampleStart": "2026-01-01T00:00:00Z", "lastSampleStart": "2026-01-01T00:00:00Z", "totalSamplesCount": 1,
        "cpuHistogram": histogram("2026-01-01T00:00:00Z", 0.1),
        "memoryHistogram": histogram("2026-01-02T00:00:00Z", 1.0),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn all_containers_of_all_vpas_are_shown_and_each_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_alone(&folder.path().join("data"));
    let client = cluster.client().await;

    let none = plumb(&cluster, &["status", "vpa"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(err(&none).contains("CustomResourceDefinition is not installed"), "{}", err(&none));
    plumb_vpa::install::install(&client).await.unwrap();
    let empty = plumb(&cluster, &["status", "vpa"]);
    assert_eq!((empty.status.code(), err(&empty).as_str()), (Some(0), "no VPAs in namespace \"default\"\n"));

    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let amounts = |cpu: &str, memory: &str| json!({ "cpu": cpu, "memory": memory });
    let recommended = |container: &str| {
        json!({
            "containerName": container, "target": amounts("126m", "262144000"), "lowerBound": amounts("25m", "250Mi"),
            "upperBound": amounts("100G", "97656250000Ki"), "uncappedTarget": amounts("126m", "250Mi"),
        })
    };
    create_vpa(
        &client,
        "web",
        json!({ "targetRef": target, "updatePolicy": { "updateMode": "Off" } }),
        json!({
            "recommendation": { "containerRecommendations": [recommended("log"), recommended("web")] },
            "conditions": [
                { "type": "LowConfidence", "status": "True", "message": "\u{1b}[31mshort\nhistory" },
                { "type": "RecommendationProvided", "status": "True" },
            ],
        }),
    )
    .await;
    let no_pods = json!([{ "type": "NoPodsMatched", "status": "True", "message": "No pods match this VPA object" },
        { "type": "RecommendationProvided", "status": "False", "message": "No usage has been measured yet for: app" }]);
    create_vpa(&client, "idle", json!({ "targetRef": target }), json!({ "conditions": no_pods })).await;
    create_checkpoint(&client, "web-web", "web", "web", one_sample()).await;
    create_checkpoint(&client, "web-log", "web", "log", json!({ "version": "v9\u{7}" })).await;

    let shown = plumb(&cluster, &["status", "vpa"]);
    assert_eq!(shown.status.code(), Some(0), "{}", err(&shown));
    let lines: Vec<String> =
        out(&shown).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            "VPA MODE CONTAINER CPU LOWER UPPER UNCAPPED MEMORY LOWER UPPER UNCAPPED CONDITIONS",
            "idle Recreate - - - - - - - - - NoPodsMatched,RecommendationProvided=False",
            "web Off log 126m 25m unbounded 126m 250Mi 250Mi unbounded 250Mi LowConfidence,RecommendationProvided",
            "web Off web 126m 25m unbounded 126m 250Mi 250Mi unbounded 250Mi LowConfidence,RecommendationProvided",
            "",
            "idle: NoPodsMatched: No pods match this VPA object",
            "idle: RecommendationProvided: No usage has been measured yet for: app",
            "web: LowConfidence: \\u{1b}[31mshort\\u{a}history",
        ]
    );
    let wide = out(&plumb(&cluster, &["status", "vpa", "-A", "-o", "wide"]));
    assert!(wide.contains("97656250000Ki") && wide.contains("Deployment/web"), "{wide}");
    assert!(wide.starts_with("NAMESPACE") && wide.contains("default/web: LowConfidence"), "{wide}");
    let names = out(&plumb(&cluster, &["status", "vpa", "-o", "name"]));
    assert_eq!(
        names,
        "verticalpodautoscaler.autoscaling.k8s.io/idle\nverticalpodautoscaler.autoscaling.k8s.io/web\n"
    );

    let explained = out(&plumb(&cluster, &["status", "vpa/web", "--explain"]));
    for line in [
        "  1 cpu sample from 2026-01-01T00:00:00Z to 2026-01-01T00:00:00Z",
        "    target p90   110m, with margin 126m: 126m",
        "    target p90   105.16Mi, with margin 120.93Mi, at least 125Mi: 125Mi; the status has 250Mi",
        "             95m - 110m 100.0 % ########################################",
        "  its checkpoint cannot be read: unsupported checkpoint version \"v9\\u{7}\", expected \"v3\"",
    ] {
        assert!(explained.lines().any(|found| found == line), "{line:?} is not in\n{explained}");
    }
    let flags =
        ["--recommender-flags", "--recommendation-margin-fraction=0 --pod-recommendation-min-memory-mb=1"];
    let value =
        out(&plumb(&cluster, &[&["status", "vpa/web", "--explain", "-o", "json"][..], &flags[..]].concat()));
    let value: Value = serde_json::from_str(&value).unwrap();
    assert_eq!(value["containers"][1]["upperBound"]["cpu"], "100G");
    assert_eq!(value["target"]["kind"], "Deployment");
    let explanation = &value["explanation"]["containers"];
    assert!(explanation[0]["error"].as_str().unwrap().contains("unsupported checkpoint version"));
    assert_eq!(explanation[1]["cpu"]["bounds"]["target"]["recommended"], "110m");

    let gone = plumb(&cluster, &["status", "vpa/gone", "--explain"]);
    assert_eq!(gone.status.code(), Some(1));
    let missing = "verticalpodautoscalers.autoscaling.k8s.io \"gone\" not found in namespace \"default\"";
    assert_eq!(err(&gone), format!("plumb: {missing}\n"));
    let elsewhere = plumb(&cluster, &["status", "vpa", "-n", "nowhere"]);
    assert_eq!(err(&elsewhere), "plumb: there is no namespace \"nowhere\"; -n names another\n");
    let wrong = plumb(&cluster, &["status", "--explain"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", err(&wrong));
}

#[tokio::test(flavor = "multi_thread")]
async fn vpas_are_watched_as_a_stream_of_objects() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_alone(&folder.path().join("data"));
    let client = cluster.client().await;
    plumb_vpa::install::install(&client).await.unwrap();
    let spec = json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } });
    create_vpa(&client, "web", spec.clone(), json!({})).await;
    let mut watching = Command::new(env!("CARGO_BIN_EXE_plumb"));
    let watching = watching.args(["status", "vpa", "--watch", "-o", "json", "--kubeconfig"]);
    let mut watching = watching.arg(cluster.kubeconfig()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(watching.stdout.take().unwrap());
    let mut objects = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let mut until = |holds: &dyn Fn(&Value) -> bool| objects.by_ref().find(|object| holds(object)).unwrap();
    let first = until(&|_| true);
    assert_eq!((&first["name"], &first["mode"]), (&json!("web"), &json!("Recreate")));

    let target = json!({ "cpu": "126m", "memory": "250Mi" });
    let recommended = json!({ "containerName": "app", "target": target });
    let status = json!({ "status": { "recommendation": { "containerRecommendations": [recommended] } } });
    let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(client.clone(), "default");
    vpas.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    until(&|vpa| vpa["containers"][0]["target"]["cpu"] == "126m");
    create_vpa(&client, "other", spec, json!({})).await;
    until(&|vpa| vpa["name"] == "other");
    vpas.delete("web", &DeleteParams::default()).await.unwrap();
    let last = until(&|vpa| vpa["deleted"] == true);
    assert_eq!(last, json!({ "namespace": "default", "name": "web", "deleted": true }));
    kill(&mut watching);
}
