use std::time::Duration;

use futures_util::future::join;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{LimitRange, Pod, ResourceQuota};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use plumb_controller_runtime::metrics::ReconcileResult;
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::commands::{Command, CommandError, command};
use plumb_rollout::engine::{Phase, PodFailure, PodRecord};
use plumb_rollout::workloads::{HELD_ANNOTATION, WorkloadKind};
use plumb_rollout::{Config, Rollout};
use plumb_testkit::{eventually, object};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cluster::{Answer, Cluster, actual_cpu, cpu, is_resize_pending, rolled_out, status};
use super::deployments::{condition, deployment, is, policy, running, sized};
use super::sets;

#[tokio::test(flavor = "multi_thread")]
async fn rollback_pod_takes_the_stuck_pod_back_alone() {
    let (mut cluster, before) = running(4, 4).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "onFailure": "RollbackPod" }))).await;
    cluster.answer(&before[1], "200m", Answer::Infeasible);
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let web = cluster.until("web", is(Phase::Complete)).await;
    let reported = status(&web).unwrap();
    assert_eq!((reported.pods.done, reported.pods.rolled_back), (3, 1));
    let message = format!("1 pod was resized back: {}: Infeasible: because of Infeasible", before[1]);
    assert_eq!(reported.message, message);
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    for (name, pod) in &pods {
        assert_eq!(cpu(pod), if *name == before[1] { "100m" } else { "200m" }, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recreate_all_leaves_the_pods_to_the_native_controller() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "onFailure": "RecreateAll" }))).await;
    cluster.answer(&before[0], "200m", Answer::Infeasible);
    cluster.roll_out(true);
    let is_left = |web: &Deployment| status(web).is_some_and(|status| status.phase == Phase::Recreating);
    let (left, _) =
        join(cluster.until("web", is_left), cluster.edit::<Deployment>("web", sized("200m"))).await;
    assert_eq!(status(&left).unwrap().pods.total, 3);
    plumb_testkit::event(&cluster.client, "web", "InPlaceRolloutReleased", 1).await;
    cluster.until("web", |web| rolled_out(web) && status(web).is_none()).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 3).await;
    assert!(pods.iter().all(|(name, pod)| cpu(pod) == "200m" && !before.contains(name)));
    // The old ReplicaSet is the history, as if there had been no hold.
    let all = cluster.until_all::<ReplicaSet>(|all| all.len() == 2).await;
    let expected = [("1".into(), 0, "100m".into()), ("2".into(), 3, "200m".into())];
    assert_eq!(super::deployments::sets(&all), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_that_fails_too_is_reported_and_nothing_more_is_tried() {
    let (mut cluster, before) = running(4, 4).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "onFailure": "RollbackAll", "maxConcurrent": 1 }))).await;
    cluster.answer(&before[3], "200m", Answer::Infeasible);
    cluster.answer(&before[0], "100m", Answer::Infeasible);
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let web = cluster.until("web", is(Phase::RollbackFailed)).await;
    let failed = status(&web).unwrap();
    let names: Vec<&str> = failed.stuck.iter().map(|failure| failure.pod.as_str()).collect();
    assert_eq!(names, [before[0].as_str()]);
    plumb_testkit::event(&cluster.client, "web", "RollbackFailed", 1).await;
    let template = web.spec.unwrap().template.spec.unwrap();
    assert_eq!(json!(template.containers[0].resources), json!({ "requests": { "cpu": "100m" } }));
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_that_is_deferred_past_its_deadline_and_then_fits_is_done() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.answer(&before[0], "200m", Answer::Deferred);
    cluster.create::<RolloutPolicy>(policy(json!({ "maxConcurrent": "100%" }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let deferred = |pods: &std::collections::BTreeMap<String, Pod>| {
        pods.values().all(|pod| cpu(pod) == "200m")
            && pods.values().filter(|pod| actual_cpu(pod).as_deref() == Some("200m")).count() == 2
            && is_resize_pending(&pods[&before[0]])
    };
    cluster.until_all::<Pod>(deferred).await;
    // It is named at once, and stuck only after the deadline.
    let named = |web: &Deployment| {
        status(web).is_some_and(|status| (status.pods.deferred, status.pods.done) == (1, 2))
    };
    let web = cluster.until("web", named).await;
    let reported = status(&web).unwrap();
    assert_eq!((reported.phase, reported.pods.resizing, reported.pods.stuck), (Phase::Progressing, 1, 0));
    assert_eq!((&reported.waiting[0].pod, reported.waiting[0].reason.name()), (&before[0], "Deferred"));
    assert_eq!(reported.waiting[0].message, "because of Deferred");
    cluster.clock.advance(Duration::from_secs(301));
    cluster.touch(&before[0]).await;
    let web = cluster.until("web", is(Phase::Held)).await;
    assert_eq!(status(&web).unwrap().stuck[0].reason.name(), "Deferred");
    // Other pods of the node are gone.
    cluster.answers.lock().unwrap().clear();
    cluster.touch(&before[0]).await;
    cluster.until("web", is(Phase::Complete)).await;
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_by_a_limit_range_is_reported_and_tried_again() {
    let (mut cluster, before) = running(2, 2).await;
    let limits = json!([{ "type": "Container", "min": { "cpu": "80m" } }]);
    let range = json!({ "metadata": { "name": "least" }, "spec": { "limits": limits } });
    cluster.create::<LimitRange>(range).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "maxConcurrent": "100%" }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("50m")).await;
    let web = cluster.until("web", is(Phase::Held)).await;
    let held = status(&web).unwrap();
    assert_eq!(held.stuck.len(), 2);
    assert!(held.stuck.iter().all(|failure| failure.reason.name() == "LimitRange"), "{held:?}");
    let ranges = cluster.api::<LimitRange>();
    ranges.delete("least", &DeleteParams::default()).await.unwrap();
    cluster.clock.advance(Duration::from_mins(1));
    for pod in &before {
        cluster.touch(pod).await;
    }
    cluster.until("web", is(Phase::Complete)).await;
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_without_the_resize_subresource_is_reported_as_such() {
    let (mut cluster, before) = running(2, 2).await;
    let mut old = JoinSet::new();
    let config = Config { write: cluster.without_resize(), ..cluster.config(true) };
    old.spawn(Rollout::new(config).run());
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let is_reported = |web: &Deployment| status(web).is_some_and(|status| !status.stuck.is_empty());
    let web = cluster.until("web", is_reported).await;
    let stuck = status(&web).unwrap().stuck.remove(0);
    assert_eq!(stuck.reason.name(), "ResizeNotServed");
    assert!(stuck.message.contains("InPlacePodVerticalScaling"), "{}", stuck.message);
    plumb_testkit::event(&cluster.client, &stuck.pod, "InPlaceRolloutStuck", 1).await;
    // A control plane that was upgraded since.
    old.shutdown().await;
    cluster.roll_out(true);
    cluster.clock.advance(Duration::from_mins(1));
    cluster.until("web", is(Phase::Complete)).await;
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_no_node_has_is_reported_and_a_smaller_one_is_applied() {
    let (mut cluster, before) = running(2, 2).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("100")).await;
    let web = cluster.until("web", is(Phase::Held)).await;
    let held = status(&web).unwrap();
    assert_eq!(held.stuck.len(), 2);
    assert!(held.stuck.iter().all(|failure| failure.reason.name() == "NodeCapacity"), "{held:?}");
    cluster.edit::<Deployment>("web", sized("300m")).await;
    cluster.until("web", is(Phase::Complete)).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    assert!(pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("300m")));
}

/// The status and the reason of the condition that `kubectl rollout status` reads.
fn progress(web: &Deployment) -> Option<(&str, &str)> {
    let conditions = web.status.as_ref()?.conditions.iter().flatten();
    let condition = conditions.into_iter().find(|one| one.type_ == "Progressing")?;
    Some((&condition.status, condition.reason.as_deref().unwrap_or_default()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_is_held_for_longer_than_the_progress_deadline_is_reported_as_kubectl_reads_it() {
    let (mut cluster, before) = running(2, 2).await;
    cluster.create::<RolloutPolicy>(policy(json!({}))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("100")).await;
    let paused = |web: &Deployment| progress(web) == Some(("Unknown", "DeploymentPaused"));
    let is_held = |web: &Deployment| is(Phase::Held)(web) && condition(web).is_some_and(|it| it.1 == "Held");
    cluster.until("web", |web| is_held(web) && paused(web)).await;
    // The deadline of a Deployment that sets none.
    cluster.clock.advance(Duration::from_secs(601));
    cluster.touch(&before[0]).await;
    let exceeded = |web: &Deployment| progress(web) == Some(("False", "ProgressDeadlineExceeded"));
    cluster.until("web", exceeded).await;
    // The Deployment's controller, which is paused, leaves it so.
    let web = cluster.edit::<Deployment>("web", json!({ "spec": { "minReadySeconds": 1 } })).await;
    let observed = |now: &Deployment| {
        now.status.as_ref().and_then(|status| status.observed_generation) == web.metadata.generation
    };
    let web = cluster.until("web", observed).await;
    assert!(exceeded(&web), "{web:?}");
    // A rollout that waits for a user has no deadline.
    cluster.merge::<RolloutPolicy>("web", json!({ "spec": { "paused": true } })).await;
    cluster.until("web", |web| is(Phase::Paused)(web) && paused(web)).await;
    cluster.merge::<RolloutPolicy>("web", json!({ "spec": { "paused": false } })).await;
    cluster.edit::<Deployment>("web", sized("300m")).await;
    let done = |web: &Deployment| progress(web) == Some(("True", "NewReplicaSetAvailable"));
    cluster.until("web", |web| is(Phase::Complete)(web) && done(web)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_during_a_rollout_that_a_user_paused_waits_until_the_deployment_is_resumed() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "canary": [{ "pods": 1 }] }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    command(&cluster.client, WorkloadKind::Deployment, "default", "web", Command::Pause).await.unwrap();
    let mut image = sized("200m");
    image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
    let web = cluster.edit::<Deployment>("web", image).await;
    assert_eq!(web.spec.as_ref().unwrap().paused, Some(true));
    let reported = status(&web).unwrap();
    assert_eq!(reported.phase, Phase::Recreating);
    assert!(reported.message.contains("paused"), "{}", reported.message);
    let observed = |now: &Deployment| {
        now.status.as_ref().and_then(|status| status.observed_generation) == web.metadata.generation
    };
    cluster.until("web", observed).await;
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
    // As `kubectl rollout resume` does.
    cluster.edit::<Deployment>("web", json!({ "spec": { "paused": null } })).await;
    cluster.until("web", |web| rolled_out(web) && status(web).is_none()).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 3).await;
    assert!(pods.iter().all(|(name, pod)| cpu(pod) == "200m" && !before.contains(name)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_during_a_hold_is_rolled_out_by_the_native_controller() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "paused": true }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    let mut image = sized("200m");
    image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
    cluster.edit::<Deployment>("web", image).await;
    cluster
        .until("web", |web: &Deployment| web.spec.as_ref().unwrap().paused != Some(true) && rolled_out(web))
        .await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 3).await;
    assert!(pods.iter().all(|(name, pod)| cpu(pod) == "200m" && !before.contains(name)));
    // Of the hold nothing is left in the history.
    let marked = |set: &ReplicaSet| {
        let template = set.spec.as_ref().unwrap().template.as_ref().unwrap();
        let annotations = template.metadata.as_ref().unwrap().annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.contains_key(HELD_ANNOTATION))
    };
    let all = cluster.until_all::<ReplicaSet>(|all| all.len() == 2 && !all.values().any(marked)).await;
    let expected = [("1".into(), 0, "100m".into()), ("2".into(), 3, "200m".into())];
    assert_eq!(super::deployments::sets(&all), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_by_the_native_controller_outdates_the_status() {
    let (mut cluster, _) = running(2, 2).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Complete)).await;
    // Through the webhook, which does not hold it.
    let mut image = sized("200m");
    image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
    let web = cluster.edit::<Deployment>("web", image.clone()).await;
    assert_eq!(status(&web), None);
    let undone = command(&cluster.client, WorkloadKind::Deployment, "default", "web", Command::Undo).await;
    assert!(matches!(undone, Err(CommandError::NothingToUndo)), "{undone:?}");
    cluster.until("web", rolled_out).await;
    // The next rollout is reported again.
    image["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("300m");
    cluster.edit::<Deployment>("web", image.clone()).await;
    cluster.until("web", is(Phase::Complete)).await;
    // While the webhook does not answer.
    image["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("400m");
    cluster.merge::<Deployment>("web", image).await;
    cluster.until("web", |web: &Deployment| status(web).is_none() && rolled_out(web)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_whose_pods_go_back_recreates_none_of_them() {
    for on_failure in ["RollbackAll", "RollbackPod"] {
        let mut cluster = sets::stateful_set(3).await;
        let before = cluster.pods().await;
        let mut object = policy(json!({ "onFailure": on_failure, "maxConcurrent": 1 }));
        object["spec"]["targetRef"] = json!({ "kind": "StatefulSet", "name": "db" });
        cluster.create::<RolloutPolicy>(object).await;
        // Pods are resized from the highest number on.
        cluster.answer("db-1", "200m", Answer::Infeasible);
        cluster.roll_out(true);
        cluster.edit::<StatefulSet>("db", sets::sized("200m")).await;
        let phase = if on_failure == "RollbackAll" { Phase::RolledBack } else { Phase::Complete };
        let set = cluster
            .until("db", |set: &StatefulSet| {
                let state = set.status.as_ref().unwrap();
                status(set).is_some_and(|status| status.phase == phase)
                    && state.current_revision == state.update_revision
                    && state.observed_generation == set.metadata.generation
            })
            .await;
        let revision = set.status.unwrap().update_revision.unwrap();
        for (name, pod) in &cluster.pods().await {
            assert_eq!(pod.metadata.uid, before[name].metadata.uid, "{on_failure}: {name} was recreated");
            assert_eq!(pod.metadata.labels.as_ref().unwrap()["controller-revision-hash"], revision);
            let back = on_failure == "RollbackAll" || name == "db-1";
            assert_eq!(cpu(pod), if back { "100m" } else { "200m" }, "{on_failure}: {name}");
        }
        let template = set.spec.unwrap().template.spec.unwrap();
        let expected = if on_failure == "RollbackAll" { "100m" } else { "200m" };
        assert_eq!(json!(template.containers[0].resources), json!({ "requests": { "cpu": expected } }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_a_policy_denies_at_the_end_of_a_rollout_is_written_after_a_backoff() {
    let cluster = sets::stateful_set(1).await;
    let mut object = policy(json!({ "onFailure": "RollbackPod" }));
    object["spec"]["targetRef"] = json!({ "kind": "StatefulSet", "name": "db" });
    cluster.create::<RolloutPolicy>(object).await;
    let label = "metadata.labels['controller-revision-hash']";
    deny(&cluster, "no-labels", &format!("object.{label} == oldObject.{label}")).await;
    let (pods, dry_run) = (cluster.api::<Pod>(), PatchParams { dry_run: true, ..PatchParams::default() });
    let relabel = Patch::Merge(json!({ "metadata": { "labels": { "controller-revision-hash": "other" } } }));
    eventually(async || pods.patch("db-0", &dry_run, &relabel).await.is_err()).await;
    cluster.answer("db-0", "200m", Answer::Infeasible);
    let config = cluster.config(true);
    let metrics = config.metrics.clone();
    let mut running = JoinSet::new();
    running.spawn(Rollout::new(config).run());
    cluster.edit::<StatefulSet>("db", sets::sized("200m")).await;
    // The work queue waits longer after each failure.
    let controller = metrics.controller("rollout-controller");
    eventually(async || controller.count(ReconcileResult::Error) >= 3).await;
    let bindings: kube::Api<ValidatingAdmissionPolicyBinding> = kube::Api::all(cluster.client.clone());
    bindings.delete("no-labels", &DeleteParams::default()).await.unwrap();
    eventually(async || pods.patch("db-0", &dry_run, &relabel).await.is_ok()).await;
    cluster.clock.advance(Duration::from_mins(1));
    cluster.touch("db-0").await;
    let ended = |set: &StatefulSet| status(set).is_some_and(|status| status.phase == Phase::RolledBack);
    let set = cluster.until("db", ended).await;
    let pod = pods.get("db-0").await.unwrap();
    let labels = pod.metadata.labels.unwrap();
    assert_eq!(Some(&labels["controller-revision-hash"]), set.status.unwrap().update_revision.as_ref());
}

/// Has a policy deny updates of pods for which an expression is false.
async fn deny(cluster: &Cluster, name: &str, unless: &str) {
    let policies: kube::Api<ValidatingAdmissionPolicy> = kube::Api::all(cluster.client.clone());
    let bindings: kube::Api<ValidatingAdmissionPolicyBinding> = kube::Api::all(cluster.client.clone());
    let metadata = json!({ "name": name });
    let rules = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"] }]);
    let validations = json!([{ "expression": unless, "message": "pods stay as they are" }]);
    let spec = json!({ "matchConstraints": { "resourceRules": rules }, "validations": validations });
    let policy = object(json!({ "metadata": metadata, "spec": spec }));
    policies.create(&PostParams::default(), &policy).await.unwrap();
    let spec = json!({ "policyName": name, "validationActions": ["Deny"] });
    let binding = object(json!({ "metadata": metadata, "spec": spec }));
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_pod_of_a_stateful_set_is_recreated_once_and_has_the_new_size() {
    let mut cluster = sets::stateful_set(3).await;
    let before = cluster.pods().await;
    let mut object = policy(json!({ "onFailure": "RecreatePod" }));
    object["spec"]["targetRef"] = json!({ "kind": "StatefulSet", "name": "db" });
    cluster.create::<RolloutPolicy>(object).await;
    cluster.answer("db-1", "200m", Answer::Infeasible);
    cluster.roll_out(true);
    cluster.edit::<StatefulSet>("db", sets::sized("200m")).await;
    cluster.until("db", sets::is_complete(3)).await;
    for (name, pod) in &cluster.pods().await {
        assert_eq!(pod.metadata.uid != before[name].metadata.uid, name == "db-1", "{name}");
        assert_eq!(actual_cpu(pod).as_deref(), Some("200m"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pod_is_restarted_if_the_deployment_says_that_none_may_be_unavailable() {
    let mut cluster = Cluster::start(2).await;
    let restarts = json!([{ "resourceName": "cpu", "restartPolicy": "RestartContainer" }]);
    let strategy = |unavailable: Value| json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": unavailable, "maxSurge": 1 } });
    let mut web = deployment(2, "100m");
    web["spec"]["strategy"] = strategy(json!(0));
    web["spec"]["template"]["spec"]["containers"][0]["resizePolicy"] = restarts.clone();
    cluster.create::<Deployment>(web).await;
    cluster.until("web", rolled_out).await;
    let before = cluster.pods().await;
    cluster.roll_out(true);
    let edited = |cpu: &str| {
        let mut edited = sized(cpu);
        edited["spec"]["template"]["spec"]["containers"][0]["resizePolicy"] = restarts.clone();
        edited
    };
    // Its own controller surges.
    cluster.edit::<Deployment>("web", edited("200m")).await;
    cluster.until("web", rolled_out).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 2).await;
    assert!(pods.iter().all(|(name, pod)| cpu(pod) == "200m" && !before.contains_key(name)));
    // A policy that says so has the last word.
    cluster.create::<RolloutPolicy>(policy(json!({ "maxUnavailable": 0 }))).await;
    cluster.edit::<Deployment>("web", json!({ "spec": { "strategy": strategy(json!("25%")) } })).await;
    cluster.edit::<Deployment>("web", edited("300m")).await;
    let held = cluster.until("web", is(Phase::Held)).await;
    assert_eq!(status(&held).unwrap().message, "pods have to be restarted, and maxUnavailable is 0");
    assert!(cluster.pods().await.values().all(|pod| cpu(pod) == "200m"));
    // A part of a pod counts as one.
    cluster.merge::<RolloutPolicy>("web", json!({ "spec": { "maxUnavailable": "25%" } })).await;
    cluster.until_all::<Pod>(|pods| pods.values().any(|pod| cpu(pod) == "300m")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_a_quota_refuses_are_reported_and_go_on_once_it_is_raised() {
    let (mut cluster, before) = running(3, 3).await;
    // No controller of quotas runs, so the test writes what is used.
    let hard = |cpu: &str| json!({ "requests.cpu": cpu });
    cluster
        .create::<ResourceQuota>(json!({ "metadata": { "name": "cpus" }, "spec": { "hard": hard("400m") } }))
        .await;
    let quotas = cluster.api::<ResourceQuota>();
    let set = async |cpu: &str, used: &str| {
        let patch = Patch::Merge(json!({ "status": { "hard": hard(cpu), "used": hard(used) } }));
        quotas.patch_status("cpus", &PatchParams::default(), &patch).await.unwrap();
    };
    set("400m", "300m").await;
    cluster.create::<RolloutPolicy>(policy(json!({ "maxConcurrent": "100%" }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let web = cluster.until("web", is(Phase::Held)).await;
    let held = status(&web).unwrap();
    assert_eq!((held.pods.done, held.pods.stuck), (1, 2));
    assert!(held.stuck.iter().all(|failure| failure.reason.name() == "Quota"), "{held:?}");
    // Until the backoff is longer than a test.
    let refused = |pod: &Pod| PodRecord::read(pod)?.failure.map(|failure| failure.count);
    for count in 2..=6 {
        cluster.clock.advance(Duration::from_mins(6));
        for pod in &before {
            cluster.touch(pod).await;
        }
        cluster
            .until_all::<Pod>(|pods| pods.values().filter(|pod| refused(pod) >= Some(count)).count() == 2)
            .await;
    }
    cluster.merge::<ResourceQuota>("cpus", json!({ "spec": { "hard": hard("1") } })).await;
    set("1", "400m").await;
    cluster.until("web", is(Phase::Complete)).await;
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_becomes_unready_while_it_soaks_is_taken_back() {
    let (mut cluster, before) = running(3, 3).await;
    let fields = json!({ "onFailure": "RollbackPod", "soakSeconds": 60, "maxConcurrent": "100%", "maxUnavailable": 3 });
    cluster.create::<RolloutPolicy>(policy(fields)).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let soaking = |web: &Deployment| status(web).is_some_and(|status| status.pods.soaking == 3);
    cluster.until("web", soaking).await;
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    cluster.write_status(&before[0], unready).await;
    cluster.until_all::<Pod>(|pods| cpu(&pods[&before[0]]) == "100m").await;
    cluster.clock.advance(Duration::from_mins(2));
    for pod in &before[1..] {
        cluster.touch(pod).await;
    }
    let web = cluster.until("web", is(Phase::Complete)).await;
    let done = status(&web).unwrap().pods;
    assert_eq!((done.done, done.rolled_back), (2, 1));
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    assert_eq!(before.iter().map(|name| cpu(&pods[name])).collect::<Vec<_>>(), ["100m", "200m", "200m"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_a_policy_keeps_from_being_annotated_are_reported_and_resized_once_it_does_not() {
    let (mut cluster, before) = running(2, 2).await;
    let bindings: kube::Api<ValidatingAdmissionPolicyBinding> = kube::Api::all(cluster.client.clone());
    deny(&cluster, "no-annotations", "!has(object.metadata.annotations)").await;
    let (pods, dry_run) = (cluster.api::<Pod>(), PatchParams { dry_run: true, ..PatchParams::default() });
    let annotation = Patch::Merge(json!({ "metadata": { "annotations": { "test/touched": "yes" } } }));
    eventually(async || pods.patch(&before[0], &dry_run, &annotation).await.is_err()).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let is_reported = |web: &Deployment| {
        status(web).is_some_and(|status| {
            let waits = |failure: &PodFailure| failure.message.contains("pods stay as they are");
            status.phase == Phase::Progressing && status.waiting.iter().any(waits)
        })
    };
    let web = cluster.until("web", is_reported).await;
    assert_eq!(status(&web).unwrap().waiting[0].reason.name(), "Refused");
    bindings.delete("no-annotations", &DeleteParams::default()).await.unwrap();
    cluster.clock.advance(Duration::from_mins(1));
    for pod in &before {
        cluster.touch(pod).await;
    }
    let web = cluster.until("web", is(Phase::Complete)).await;
    assert!(status(&web).unwrap().waiting.is_empty());
}

/// Marks a pod as ready or not, as its node does.
async fn set_ready(cluster: &Cluster, pod: &str, ready: bool) {
    let is = if ready { "True" } else { "False" };
    let since = Timestamp::now().to_string();
    let ready = json!({ "type": "Ready", "status": is, "lastTransitionTime": since });
    cluster.write_status(pod, json!({ "status": { "conditions": [ready] } })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_becomes_unready_stops_the_rollout_until_it_is_ready_again() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "canary": [{ "pods": 1 }] }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    let pods = cluster.pods().await;
    let resized = before.iter().find(|name| cpu(&pods[*name]) == "200m").unwrap();
    set_ready(&cluster, resized, false).await;
    command(&cluster.client, WorkloadKind::Deployment, "default", "web", Command::Resume).await.unwrap();
    let waits = |web: &Deployment| {
        status(web).is_some_and(|status| {
            status.phase == Phase::Progressing
                && status.message.starts_with("waiting for pods to become available: 1 of 3 unavailable")
                && status.message.contains(resized)
        })
    };
    cluster.until("web", waits).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.values().filter(|pod| cpu(pod) == "200m").count(), 1);
    // It is held once the pod has been so for the deadline.
    cluster.clock.advance(Duration::from_secs(301));
    cluster.touch(resized).await;
    cluster.until("web", is(Phase::Held)).await;
    set_ready(&cluster, resized, true).await;
    cluster.until("web", is(Phase::Complete)).await;
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_of_which_every_pod_was_resized_back_has_failed() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.answer("*", "200m", Answer::Infeasible);
    cluster.create::<RolloutPolicy>(policy(json!({ "onFailure": "RollbackPod" }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let web = cluster.until("web", is(Phase::RolledBack)).await;
    let reported = status(&web).unwrap();
    assert_eq!((reported.pods.done, reported.pods.rolled_back), (0, 3));
    assert!(reported.message.starts_with("3 pods were resized back: "), "{}", reported.message);
    let pods = cluster.pods().await;
    assert!(pods.values().all(|pod| cpu(pod) == "100m"));
    assert_eq!(pods.into_keys().collect::<Vec<_>>(), before);
    // The template can be undone.
    command(&cluster.client, WorkloadKind::Deployment, "default", "web", Command::Undo).await.unwrap();
}
