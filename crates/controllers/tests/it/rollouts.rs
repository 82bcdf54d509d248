//! Deployments, through the API.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::EvictParams;
use serde_json::{Value, json};

use crate::workloads::{Cluster, name, spec, template};

fn deployment(replicas: i32) -> Value {
    let mut spec = spec("web", replicas);
    spec["strategy"] = json!({ "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 1 } });
    json!({ "metadata": { "name": "web" }, "spec": spec })
}

fn status(deployment: &Deployment) -> DeploymentStatus {
    deployment.status.clone().unwrap_or_default()
}

/// Whether a rollout is over, as `kubectl rollout status` has it.
fn done(deployment: &Deployment) -> bool {
    let said = status(deployment);
    let wanted = deployment.spec.as_ref().unwrap().replicas;
    said.observed_generation >= deployment.metadata.generation
        && said.updated_replicas == wanted
        && said.replicas == wanted
        && said.available_replicas == wanted
}

fn progress(deployment: &Deployment) -> Option<String> {
    let conditions = status(deployment).conditions.unwrap_or_default();
    conditions.into_iter().find(|one| one.type_ == "Progressing").and_then(|one| one.reason)
}

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

fn revision(set: &ReplicaSet) -> &str {
    &set.metadata.annotations.as_ref().unwrap()["deployment.kubernetes.io/revision"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_template_replaces_all_pods_and_the_old_set_stays_for_an_undo() {
    let cluster = Cluster::start();
    cluster.create::<Deployment>(deployment(4)).await;
    cluster.until::<Deployment>("web", done).await;
    let change = json!({ "spec": { "template": template("web", "two") } });
    cluster.merge::<Deployment>("web", change).await;
    let rolled = cluster
        .until::<Deployment>("web", |web| {
            done(web) && progress(web).as_deref() == Some("NewReplicaSetAvailable")
        })
        .await;
    assert_eq!(rolled.metadata.annotations.unwrap()["deployment.kubernetes.io/revision"], "2");
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 4).await;
    assert!(pods.values().all(|pod| image(pod) == "two"));
    let sets = cluster.until_all::<ReplicaSet>(|sets| sets.len() == 2).await;
    let sizes: Vec<_> =
        sets.values().map(|set| (revision(set), set.spec.as_ref().unwrap().replicas)).collect();
    assert!(sizes.contains(&("1", Some(0))) && sizes.contains(&("2", Some(4))), "{sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_without_progress_exceeds_its_deadline_and_can_be_undone() {
    let cluster = Cluster::start();
    cluster.create::<Deployment>(deployment(4)).await;
    cluster.until::<Deployment>("web", done).await;
    let change = json!({ "spec": { "template": template("web", "broken"), "progressDeadlineSeconds": 1 } });
    cluster.merge::<Deployment>("web", change).await;
    let stuck = |web: &Deployment| progress(web).as_deref() == Some("ProgressDeadlineExceeded");
    let web = cluster.until::<Deployment>("web", stuck).await;
    assert!(status(&web).available_replicas >= Some(3), "no more than one may be missing");
    let change = json!({ "spec": { "template": template("web", "x") } });
    cluster.merge::<Deployment>("web", change).await;
    cluster.until::<Deployment>("web", done).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 4).await;
    assert!(pods.values().all(|pod| image(pod) == "x"));
}

#[tokio::test(flavor = "multi_thread")]
async fn recreate_never_runs_pods_of_two_templates() {
    let cluster = Cluster::start();
    let mut web = deployment(3);
    web["spec"]["strategy"] = json!({ "type": "Recreate" });
    cluster.create::<Deployment>(web).await;
    cluster.until::<Deployment>("web", done).await;
    let watching = cluster.until_all::<Pod>(|pods| {
        let two = pods.values().filter(|pod| image(pod) == "two").count();
        assert!(two == 0 || two == pods.len(), "pods of two templates");
        two == 3
    });
    let change =
        cluster.merge::<Deployment>("web", json!({ "spec": { "template": template("web", "two") } }));
    tokio::join!(watching, change);
    cluster.until::<Deployment>("web", done).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_deployment_rolls_when_it_is_resumed() {
    let cluster = Cluster::start();
    cluster.create::<Deployment>(deployment(2)).await;
    cluster.until::<Deployment>("web", done).await;
    let change = json!({ "spec": { "paused": true, "replicas": 3, "template": template("web", "two") } });
    cluster.merge::<Deployment>("web", change).await;
    cluster
        .until::<Deployment>("web", |web| {
            progress(web).as_deref() == Some("DeploymentPaused") && status(web).replicas == Some(3)
        })
        .await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 3).await;
    assert!(pods.values().all(|pod| image(pod) == "x"));
    cluster.merge::<Deployment>("web", json!({ "spec": { "paused": false } })).await;
    cluster.until::<Deployment>("web", done).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_counts_the_pods_of_a_deployment_and_what_may_be_missing() {
    let cluster = Cluster::start();
    cluster.create::<Deployment>(deployment(4)).await;
    let selector = json!({ "matchLabels": { "app": "web" } });
    let budget =
        json!({ "metadata": { "name": "web" }, "spec": { "maxUnavailable": "25%", "selector": selector } });
    cluster.create::<PodDisruptionBudget>(budget).await;
    let allowed = |count: i32| {
        move |budget: &PodDisruptionBudget| {
            let status = budget.status.clone().unwrap_or_default();
            status.expected_pods == Some(4) && status.disruptions_allowed == Some(count)
        }
    };
    cluster.until::<PodDisruptionBudget>("web", allowed(1)).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 4).await;
    let first = name(pods.values().next().unwrap());
    let down = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let params = kube::api::PatchParams::default();
    cluster.api::<Pod>().patch_status(&first, &params, &kube::api::Patch::Merge(down)).await.unwrap();
    cluster.until::<PodDisruptionBudget>("web", allowed(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_is_refused_until_the_budget_allows_it() {
    let cluster = Cluster::start();
    cluster.create::<Deployment>(deployment(3)).await;
    cluster.until::<Deployment>("web", done).await;
    let selector = json!({ "matchLabels": { "app": "web" } });
    let budget =
        json!({ "metadata": { "name": "web" }, "spec": { "minAvailable": 3, "selector": selector } });
    cluster.create::<PodDisruptionBudget>(budget).await;
    let allowed = |count: i32| {
        move |budget: &PodDisruptionBudget| {
            let status = budget.status.clone().unwrap_or_default();
            status.current_healthy == Some(3)
                && status.disruptions_allowed == Some(count)
                && status.observed_generation == budget.metadata.generation
        }
    };
    cluster.until("web", allowed(0)).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 3).await;
    let first = name(pods.values().next().unwrap());
    let refused = cluster.api::<Pod>().evict(&first, &EvictParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!(status.code, 429);
    cluster.merge::<PodDisruptionBudget>("web", json!({ "spec": { "minAvailable": 2 } })).await;
    cluster.until("web", allowed(1)).await;
    cluster.api::<Pod>().evict(&first, &EvictParams::default()).await.unwrap();
    cluster.until_all::<Pod>(|pods| !pods.contains_key(&first)).await;
}
