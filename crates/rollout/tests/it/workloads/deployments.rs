use std::cell::RefCell;
use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::commands::{Command, command};
use plumb_rollout::engine::Phase;
use plumb_rollout::workloads::{CONDITION, IN_PLACE_ANNOTATION, RECORD_ANNOTATION, WorkloadKind};
use serde_json::{Value, json};

use super::cluster::{Answer, Cluster, actual_cpu, cpu, rolled_out, status};

pub(super) fn deployment(replicas: i32, cpu: &str) -> Value {
    json!({
        "metadata": { "name": "web", "annotations": { "rollout.plumb.dev/in-place": "true" } },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "app", "image": "app:1", "resources": { "requests": { "cpu": cpu } } }] },
            },
        },
    })
}

pub(super) fn sized(cpu: &str) -> Value {
    let containers =
        json!([{ "name": "app", "image": "app:1", "resources": { "requests": { "cpu": cpu } } }]);
    json!({ "spec": { "template": { "spec": { "containers": containers } } } })
}

pub(super) fn policy(fields: Value) -> Value {
    let mut spec = json!({ "targetRef": { "kind": "Deployment", "name": "web" } });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({ "apiVersion": "plumb.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": { "name": "web" }, "spec": spec })
}

/// Whether a rollout has ended and the Deployment is released.
pub(super) fn is(phase: Phase) -> impl Fn(&Deployment) -> bool {
    move |web| {
        let released = web.spec.as_ref().unwrap().paused != Some(true);
        let open = matches!(phase, Phase::Held | Phase::Paused | Phase::Partitioned);
        status(web).is_some_and(|status| status.phase == phase) && (open || released && rolled_out(web))
    }
}

/// The status and the reason of our condition.
pub(super) fn condition(web: &Deployment) -> Option<(String, String)> {
    let conditions = web.status.as_ref()?.conditions.iter().flatten();
    let condition = conditions.into_iter().find(|one| one.type_ == CONDITION)?;
    Some((condition.status.clone(), condition.reason.clone().unwrap_or_default()))
}

pub(super) async fn running(replicas: i32, nodes: usize) -> (Cluster, Vec<String>) {
    let cluster = Cluster::start(nodes).await;
    cluster.create::<Deployment>(deployment(replicas, "100m")).await;
    cluster.until("web", rolled_out).await;
    let pods = cluster.pods().await.into_keys().collect();
    (cluster, pods)
}

pub(super) fn sets(sets: &BTreeMap<String, ReplicaSet>) -> Vec<(String, i32, String)> {
    let mut sets: Vec<_> = sets
        .values()
        .map(|set| {
            let spec = set.spec.as_ref().unwrap();
            let template = spec.template.as_ref().unwrap().spec.as_ref().unwrap();
            let cpu = template.containers[0].resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"]
                .0
                .clone();
            let revision = &set.metadata.annotations.as_ref().unwrap()["deployment.kubernetes.io/revision"];
            (revision.clone(), spec.replicas.unwrap(), cpu)
        })
        .collect();
    sets.sort();
    sets
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_resources_resizes_all_pods_and_recreates_none() {
    let (mut cluster, before) = running(5, 3).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let complete = Some(("False".to_owned(), "Complete".to_owned()));
    let web = cluster.until("web", |web| is(Phase::Complete)(web) && condition(web) == complete).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    assert!(pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("200m")));
    let conditions = web.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().any(|one| one.type_ == "Available"), "those of its controller stay");
    // The old template stays for an undo.
    let all = cluster.until_all::<ReplicaSet>(|all| all.len() == 2).await;
    assert_eq!(sets(&all), [("1".into(), 0, "100m".into()), ("2".into(), 5, "200m".into())]);
    assert!(cluster.is_running());

    undo(&cluster, &all, "1").await;
    cluster
        .until_all::<Pod>(|pods| pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("100m")))
        .await;
    cluster.until("web", is(Phase::Complete)).await;
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
    let all =
        cluster.until_all::<ReplicaSet>(|all| sets(all).iter().any(|(revision, ..)| revision == "3")).await;
    assert_eq!(sets(&all), [("2".into(), 0, "200m".into()), ("3".into(), 5, "100m".into())]);
}

/// Waits until the first rollout of a Deployment has ended with an outcome, which must not be reported before the release.
async fn ends_with(cluster: &Cluster, outcome: Phase) {
    let early = RefCell::new(Vec::new());
    let has_ended = |web: &Deployment| {
        let reported = status(web).filter(|status| status.phase.is_outcome()).map(|status| status.phase);
        let condition = condition(web).filter(|(status, _)| status == "False");
        if web.spec.as_ref().unwrap().paused == Some(true) && (reported.is_some() || condition.is_some()) {
            early.borrow_mut().push((reported, condition.clone()));
        }
        is(outcome)(web) && condition.is_some_and(|(_, reason)| reason == outcome.name())
    };
    cluster.until("web", has_ended).await;
    assert_eq!(early.into_inner(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_is_reported_with_the_release_and_not_before() {
    let (mut cluster, _) = running(2, 2).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    ends_with(&cluster, Phase::Complete).await;

    let (mut cluster, _) = running(2, 2).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "canary": [{ "pods": 1 }] }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    command(&cluster.client, WorkloadKind::Deployment, "default", "web", Command::Undo).await.unwrap();
    ends_with(&cluster, Phase::RolledBack).await;
}

/// Whether the ReplicaSet of a revision has the annotations that the Deployment's controller copies, our record among them.
fn copied(sets: &BTreeMap<String, ReplicaSet>, revision: &str) -> bool {
    sets.values().any(|set| {
        let annotations = set.metadata.annotations.as_ref();
        annotations.is_some_and(|all| {
            all.get("deployment.kubernetes.io/revision").is_some_and(|own| own == revision)
                && all.contains_key(RECORD_ANNOTATION)
        })
    })
}

fn has_template(web: &Deployment, cpu: &str) -> bool {
    let template = web.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    json!(template.containers[0].resources) == json!({ "requests": { "cpu": cpu } })
}

/// What `kubectl rollout undo` does: the template and the annotations of an old ReplicaSet replace those of the Deployment.
async fn undo(cluster: &Cluster, sets: &BTreeMap<String, ReplicaSet>, revision: &str) {
    const REVISION: &str = "deployment.kubernetes.io/revision";
    // Those of its controller, and `kubectl apply`'s, stay.
    let stays = |key: &str| {
        key.starts_with("deployment.kubernetes.io/")
            || key == "kubectl.kubernetes.io/last-applied-configuration"
            || key == "deprecated.deployment.rollback.to"
    };
    let annotations = |metadata: &ObjectMeta| metadata.annotations.clone().unwrap_or_default();
    let history = sets.values().find(|set| annotations(&set.metadata)[REVISION] == revision).unwrap();
    let mut template = history.spec.as_ref().unwrap().template.clone().unwrap();
    template.metadata.as_mut().unwrap().labels.as_mut().unwrap().remove("pod-template-hash");
    let web = cluster.api::<Deployment>().get("web").await.unwrap();
    // The patch is merged: what is to be removed is null.
    let before = annotations(&web.metadata).into_keys().filter(|key| !stays(key));
    let mut replaced: BTreeMap<String, Value> = before.map(|key| (key, Value::Null)).collect();
    let copied = annotations(&history.metadata).into_iter().filter(|(key, _)| !stays(key));
    replaced.extend(copied.map(|(key, value)| (key, json!(value))));
    let patch = json!({ "metadata": { "annotations": replaced }, "spec": { "template": template } });
    cluster.edit::<Deployment>("web", patch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_of_the_second_rollout_resizes_pods_back_to_the_first() {
    let mut cluster = Cluster::start(3).await;
    let mut web = deployment(3, "100m");
    web["metadata"]["annotations"] = json!({});
    cluster.create::<Deployment>(web).await;
    cluster.until("web", rolled_out).await;
    let before: Vec<String> = cluster.pods().await.into_keys().collect();
    cluster.roll_out(true);
    // It opts in by the write that changes its resources.
    let mut first = sized("200m");
    first["metadata"] = json!({ "annotations": { IN_PLACE_ANNOTATION: "true" } });
    cluster.edit::<Deployment>("web", first).await;
    cluster.until("web", is(Phase::Complete)).await;
    cluster.until_all::<ReplicaSet>(|all| copied(all, "2")).await;
    cluster.edit::<Deployment>("web", sized("300m")).await;
    cluster.until("web", |web| is(Phase::Complete)(web) && has_template(web, "300m")).await;
    for (undone, back, cpu) in [("3", "2", "200m"), ("4", "1", "100m")] {
        let all = cluster.until_all::<ReplicaSet>(|all| copied(all, undone)).await;
        undo(&cluster, &all, back).await;
        cluster.until("web", |web| is(Phase::Complete)(web) && has_template(web, cpu)).await;
        let web = cluster.api::<Deployment>().get("web").await.unwrap();
        let annotations = web.metadata.annotations.unwrap();
        assert_eq!(annotations.get(IN_PLACE_ANNOTATION).map(String::as_str), Some("true"));
        let pods = cluster.pods().await;
        assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
        assert!(pods.values().all(|pod| actual_cpu(pod).as_deref() == Some(cpu)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_did_not_opt_in_is_recreated_as_ever() {
    let cluster = Cluster::start(2).await;
    let mut web = deployment(2, "100m");
    web["metadata"]["annotations"] = json!({});
    cluster.create::<Deployment>(web).await;
    cluster.until("web", rolled_out).await;
    let before = cluster.pods().await;
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster
        .until_all::<Pod>(|pods| pods.len() == 2 && pods.keys().all(|name| !before.contains_key(name)))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_pods_come_up_with_the_new_size_and_kubectl_waits_for_the_rest() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "paused": true }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    cluster.merge::<Deployment>("web", json!({ "spec": { "replicas": 5 } })).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 5).await;
    for (name, pod) in &pods {
        let expected = if before.contains(name) { "100m" } else { "200m" };
        assert_eq!(cpu(pod), expected, "{name}");
    }
    // Not done, as far as clients can see.
    let web = cluster.api::<Deployment>().get("web").await.unwrap();
    assert!(!rolled_out(&web));
    cluster.merge::<RolloutPolicy>("web", json!({ "spec": { "paused": false } })).await;
    cluster.until("web", is(Phase::Complete)).await;
    let pods = cluster.pods().await;
    assert!(pods.values().all(|pod| cpu(pod) == "200m") && before.iter().all(|name| pods.contains_key(name)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_pod_is_reported_and_a_revert_completes() {
    let (mut cluster, before) = running(4, 4).await;
    cluster.answer(&before[1], "200m", Answer::Infeasible);
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let web = cluster.until("web", is(Phase::Held)).await;
    let held = status(&web).unwrap();
    assert_eq!((held.pods.done, held.pods.stuck), (3, 1));
    assert_eq!((held.stuck[0].pod.as_str(), held.stuck[0].reason.name()), (before[1].as_str(), "Infeasible"));
    plumb_testkit::event(&cluster.client, "web", "InPlaceRolloutHeld", 1).await;
    cluster.edit::<Deployment>("web", sized("100m")).await;
    cluster.until("web", is(Phase::Complete)).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    assert!(pods.values().all(|pod| cpu(pod) == "100m"));
    let all = cluster.until_all::<ReplicaSet>(|all| all.len() == 1).await;
    assert_eq!(sets(&all), [("1".into(), 4, "100m".into())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_all_takes_pods_and_template_back() {
    let (mut cluster, before) = running(4, 4).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "onFailure": "RollbackAll" }))).await;
    cluster.answer(&before[3], "200m", Answer::Infeasible);
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let web = cluster.until("web", is(Phase::RolledBack)).await;
    let template = web.spec.unwrap().template.spec.unwrap();
    assert_eq!(json!(template.containers[0].resources), json!({ "requests": { "cpu": "100m" } }));
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    assert!(pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("100m") && cpu(pod) == "100m"));
}

#[tokio::test(flavor = "multi_thread")]
async fn recreate_pod_replaces_the_stuck_pod_alone() {
    let (mut cluster, before) = running(4, 4).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "onFailure": "RecreatePod" }))).await;
    cluster.answer(&before[2], "200m", Answer::Infeasible);
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Complete)).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 4).await;
    assert!(pods.values().all(|pod| cpu(pod) == "200m"));
    assert_eq!(before.iter().filter(|name| pods.contains_key(*name)).count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_is_turned_off_releases_held_workloads() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "paused": true }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    cluster.roll_out(false);
    let released = |web: &Deployment| web.spec.as_ref().unwrap().paused != Some(true);
    let web = cluster.until("web", released).await;
    assert_eq!(condition(&web), Some(("False".to_owned(), "Recreating".to_owned())), "from the release on");
    // The Deployment's controller has replaced them, and no rollout is left to report.
    cluster.until("web", |web| rolled_out(web) && status(web).is_none()).await;
    cluster
        .until("web", |web| condition(web).is_some_and(|(is, reason)| is == "False" && reason == "Recreated"))
        .await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 3).await;
    assert!(pods.iter().all(|(name, pod)| cpu(pod) == "200m" && !before.contains(name)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_controller_continues_the_rollout() {
    let (mut cluster, before) = running(6, 2).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "maxConcurrent": 1 }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    for done in 1..4 {
        cluster.until_all::<Pod>(|pods| pods.values().filter(|pod| cpu(pod) == "200m").count() >= done).await;
        cluster.crash();
        cluster.roll_out(true);
    }
    cluster.until("web", is(Phase::Complete)).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    assert!(pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("200m")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_during_a_rollout_is_what_pods_end_up_with() {
    let (mut cluster, before) = running(6, 6).await;
    cluster.answer(&before[0], "200m", Answer::Deferred);
    cluster.create::<RolloutPolicy>(policy(json!({ "maxConcurrent": 3 }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until_all::<Pod>(|pods| pods.values().filter(|pod| cpu(pod) == "200m").count() >= 2).await;
    cluster.edit::<Deployment>("web", sized("150m")).await;
    cluster.until("web", is(Phase::Complete)).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    assert!(pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("150m")));
    let all = cluster.until_all::<ReplicaSet>(|all| all.len() == 2).await;
    assert_eq!(sets(&all), [("1".into(), 0, "100m".into()), ("2".into(), 6, "150m".into())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_template_takes_a_canary_back() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "canary": [{ "pods": 1 }] }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    cluster.edit::<Deployment>("web", sized("100m")).await;
    let web = cluster.until("web", is(Phase::Complete)).await;
    assert_eq!(status(&web).unwrap().pods.done, 3);
    let pods = cluster.pods().await;
    assert!(pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("100m")));
    assert_eq!(pods.into_keys().collect::<Vec<_>>(), before);
    // The canary counts for the next template.
    cluster.edit::<Deployment>("web", sized("300m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.values().filter(|pod| cpu(pod) == "300m").count(), 1);
}
