use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use plumb_rollout::engine::Phase;
use serde_json::{Value, json};

use super::cluster::{Cluster, actual_cpu, status};

fn spec(cpu: &str) -> Value {
    json!({
        "selector": { "matchLabels": { "app": "db" } },
        "template": {
            "metadata": { "labels": { "app": "db" } },
            "spec": { "containers": [{ "name": "app", "image": "app:1", "resources": { "requests": { "cpu": cpu } } }] },
        },
    })
}

fn sized(cpu: &str) -> Value {
    json!({ "spec": { "template": spec(cpu)["template"] } })
}

fn metadata() -> Value {
    json!({ "name": "db", "annotations": { "rollout.plumb.dev/in-place": "true" } })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_stateful_set_are_resized_and_its_partition_is_restored() {
    let mut cluster = Cluster::start(3).await;
    let mut set = json!({ "metadata": metadata(), "spec": spec("100m") });
    set["spec"]["replicas"] = json!(3);
    set["spec"]["serviceName"] = json!("db");
    cluster.create::<StatefulSet>(set).await;
    let ready = |set: &StatefulSet| {
        set.status
            .as_ref()
            .is_some_and(|status| status.ready_replicas == Some(3) && status.updated_replicas == Some(3))
    };
    cluster.until("db", ready).await;
    let before = cluster.pods().await;
    cluster.roll_out(true);
    for cpu in ["200m", "100m"] {
        cluster.edit::<StatefulSet>("db", sized(cpu)).await;
        let set = cluster
            .until("db", |set: &StatefulSet| {
                let strategy = set.spec.as_ref().unwrap().update_strategy.as_ref().unwrap();
                let released =
                    strategy.rolling_update.as_ref().and_then(|rolling| rolling.partition) == Some(0);
                let state = set.status.as_ref().unwrap();
                released
                    && status(set).is_some_and(|status| status.phase == Phase::Complete)
                    && state.current_revision == state.update_revision
                    && ready(set)
                    && state.observed_generation == set.metadata.generation
            })
            .await;
        let revision = set.status.unwrap().update_revision.unwrap();
        let pods = cluster.pods().await;
        for (name, pod) in &pods {
            assert_eq!(pod.metadata.uid, before[name].metadata.uid, "{name} was recreated");
            assert_eq!(pod.metadata.labels.as_ref().unwrap()["controller-revision-hash"], revision);
            assert_eq!(actual_cpu(pod).as_deref(), Some(cpu));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_daemon_set_are_resized_at_a_pace_and_its_strategy_is_restored() {
    let mut cluster = Cluster::start(4).await;
    cluster.create::<DaemonSet>(json!({ "metadata": metadata(), "spec": spec("100m") })).await;
    let ready = |set: &DaemonSet| {
        let status = set.status.clone().unwrap_or_default();
        status.number_ready == 4
            && status.updated_number_scheduled == Some(4)
            && status.observed_generation == set.metadata.generation
    };
    cluster.until("db", ready).await;
    let before = cluster.pods().await;
    cluster.roll_out(true);
    for cpu in ["200m", "100m"] {
        cluster.edit::<DaemonSet>("db", sized(cpu)).await;
        cluster
            .until("db", |set: &DaemonSet| {
                let strategy = set.spec.as_ref().unwrap().update_strategy.as_ref().unwrap();
                strategy.type_.as_deref() == Some("RollingUpdate")
                    && status(set).is_some_and(|status| status.phase == Phase::Complete)
                    && ready(set)
            })
            .await;
        for (name, pod) in &cluster.pods().await {
            assert_eq!(pod.metadata.uid, before[name].metadata.uid, "{name} was recreated");
            assert_eq!(actual_cpu(pod).as_deref(), Some(cpu));
        }
    }
}
