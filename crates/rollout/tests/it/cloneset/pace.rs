//! How many pods a rollout makes unavailable, and what it never deletes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use plumb_client::Api;
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::api::cloneset::{CloneSet, CloneSetStatus};
use plumb_rollout::cloneset::cloneset_command;
use plumb_rollout::cloneset::keys;
use plumb_rollout::cloneset::status::rollout;
use plumb_rollout::commands::{Command, CommandError};
use plumb_rollout::workloads::CONDITION;
use serde_json::{Value, json};

use super::cluster::{Answer, Cluster, change, cpu, in_place, is_normal, label, spec, template, uids};

async fn policy(cluster: &Cluster, fields: Value) {
    let mut spec =
        json!({ "targetRef": { "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web" } });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let api: Api<RolloutPolicy> = Api::default_namespaced(cluster.admin.clone());
    cluster.create_object(api, json!({ "metadata": { "name": "web" }, "spec": spec })).await;
}

fn reason(status: &CloneSetStatus, type_: &str) -> String {
    status.condition(type_).and_then(|condition| condition.reason.clone()).unwrap_or_default()
}

fn message(set: &CloneSet, type_: &str) -> String {
    let status = set.status.as_ref().unwrap();
    status.condition(type_).and_then(|condition| condition.message.clone()).unwrap_or_default()
}

fn with_cpu(pods: &BTreeMap<String, Pod>, size: &str) -> usize {
    pods.values().filter(|pod| cpu(pod) == size).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_the_api_server_refuses_deletes_no_pod() {
    let cluster = Cluster::start().await;
    let strategy = json!({ "type": "ReCreate", "maxUnavailable": "100%" });
    let before = cluster.settled(3, spec(3, "one", "100m", strategy)).await;
    let with = |pointer: &str, value: Value| {
        let mut template = template("two", "100m");
        let resources = template.pointer_mut("/spec/containers/0").unwrap();
        resources[pointer] = value;
        json!({ "spec": { "template": template } })
    };
    let typos = [
        with("resources", json!({ "requests": { "cpu": "abc" } })),
        with("resources", json!({ "requests": { "cpu": "-1" } })),
        with("resources", json!({ "requests": { "memory": "64mb" } })),
        with("resources", json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } })),
        with("ports", json!([{ "containerPort": 99999 }])),
    ];
    for typo in typos {
        cluster.merge(typo.clone()).await;
        let set = cluster.until_set(|status| reason(status, "FailedUpdate") == "InvalidTemplate").await;
        let why = message(&set, "FailedUpdate");
        assert!(why.contains("spec.containers[0]") || why.contains("quantities must match"), "{typo}: {why}");
        let pods = cluster.until_pods(|_| true).await;
        assert_eq!(uids(&pods), uids(&before), "{typo}");
        assert!(pods.values().all(|pod| pod.metadata.deletion_timestamp.is_none()), "{typo}");
    }
    // Pods are replaced and added with the template that all pods have.
    cluster.merge(json!({ "spec": { "replicas": 4 } })).await;
    let pods = cluster.until_pods(|pods| pods.len() == 4).await;
    assert_eq!(with_cpu(&pods, "100m"), 4);
    cluster.merge(change("two", "150m")).await;
    cluster.until_settled(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_a_resize_makes_unready_stop_the_next_ones() {
    let cluster = Cluster::start().await;
    cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    policy(&cluster, json!({ "maxConcurrent": 3 })).await;
    cluster.answer("*", Answer::Unready).await;
    cluster.merge(change("one", "200m")).await;
    let pods = cluster.until_pods(|pods| with_cpu(pods, "200m") == 1).await;
    let broken = pods.iter().find(|(_, pod)| cpu(pod) == "200m").unwrap().0;
    cluster.until_set(|status| status.available_replicas == 2).await;
    cluster.clock.advance(Duration::from_secs(301));
    cluster.merge_pod(broken, json!({ "metadata": { "annotations": { "test/touched": "yes" } } })).await;
    let set = cluster.until_set(|status| reason(status, "FailedUpdate") == "PodsStuck").await;
    assert!(message(&set, "FailedUpdate").contains("NotReady"), "{}", message(&set, "FailedUpdate"));
    assert_eq!(with_cpu(&cluster.until_pods(|_| true).await, "200m"), 1);
    cluster.merge(change("one", "100m")).await;
    cluster.until_settled(3).await;
}

/// The states of pods other than `Normal` while each of them is drained by a hook, updated and taken into service again.
async fn drain_one_after_the_other(cluster: &Cluster, count: usize) {
    let updated = |pod: &Pod| pod.metadata.annotations.iter().flatten().any(|(key, _)| key == "done");
    for _ in 0..count {
        let at_most_one = |pods: &BTreeMap<String, Pod>| {
            let drained = pods.values().filter(|pod| !is_normal(pod));
            let states: Vec<&str> = drained.map(|pod| label(pod, keys::STATE)).collect();
            assert!(states.len() <= 1, "{states:?}");
        };
        let pods = cluster
            .until_pods(|pods| {
                at_most_one(pods);
                pods.values().any(|pod| label(pod, keys::STATE) == "PreparingUpdate")
            })
            .await;
        let held = pods.iter().find(|(_, pod)| label(pod, keys::STATE) == "PreparingUpdate");
        let name = held.unwrap().0;
        assert!(!updated(&pods[name]), "it is drained again");
        let off = json!({ "metadata": { "labels": { "hook": null }, "annotations": { "done": "yes" } } });
        cluster.merge_pod(name, off).await;
        cluster
            .until_pods(|pods| {
                at_most_one(pods);
                label(&pods[name], keys::STATE) == "Updated"
            })
            .await;
        cluster.merge_pod(name, json!({ "metadata": { "labels": { "hook": "on" } } })).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_drains_no_more_pods_at_a_time_than_may_be_unavailable() {
    for marks in [false, true] {
        let cluster = Cluster::start().await;
        let mut spec = spec(3, "one", "100m", in_place());
        spec["lifecycle"] =
            json!({ "inPlaceUpdate": { "labelsHandler": { "hook": "on" }, "markPodNotReady": marks } });
        spec["template"]["metadata"]["labels"]["hook"] = json!("on");
        cluster.settled(3, spec.clone()).await;
        policy(&cluster, json!({ "maxConcurrent": 3 })).await;
        // A resize, and then a change of labels.
        let mut changed = template("one", "150m");
        changed["metadata"]["labels"]["hook"] = json!("on");
        cluster.merge(json!({ "spec": { "template": changed } })).await;
        drain_one_after_the_other(&cluster, 3).await;
        cluster.until_settled(3).await;
        let pods = cluster.until_pods(|pods| pods.values().all(is_normal)).await;
        for name in pods.keys() {
            cluster.merge_pod(name, json!({ "metadata": { "annotations": { "done": null } } })).await;
        }
        changed["metadata"]["labels"]["tier"] = json!("front");
        cluster.merge(json!({ "spec": { "template": changed } })).await;
        drain_one_after_the_other(&cluster, 3).await;
        cluster.until_settled(3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_template_takes_a_canary_back() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    policy(&cluster, json!({ "canary": [{ "pods": 1 }] })).await;
    cluster.merge(change("one", "200m")).await;
    let set = cluster.until_set(|status| reason(status, CONDITION) == "Paused").await;
    let why = message(&set, CONDITION);
    assert!(why.contains("step 1 of the canary is done; waits to be resumed"), "{why}");
    plumb_testkit::event(&cluster.admin, "web", "InPlaceRolloutPaused", 1).await;
    assert_eq!(with_cpu(&cluster.until_pods(|_| true).await, "200m"), 1);
    cluster.merge(change("one", "100m")).await;
    cluster.until_settled(3).await;
    cluster.until_set(|status| reason(status, CONDITION) == "Complete").await;
    let after = cluster.until_pods(|pods| with_cpu(pods, "100m") == 3).await;
    assert_eq!(uids(&before), uids(&after));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_is_resumed_paused_and_undone_by_commands() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    policy(&cluster, json!({ "canary": [{ "pods": 1 }, { "pods": 2 }] })).await;
    let send = async |command: Command| cloneset_command(&cluster.admin, "default", "web", command).await;
    assert!(matches!(send(Command::Resume).await, Err(CommandError::NotRolling)));
    assert!(matches!(send(Command::Undo).await, Err(CommandError::NothingToUndo)));
    cluster.merge(change("one", "200m")).await;
    let paused = |step: usize| {
        let text = format!("step {step} of the canary is done; waits to be resumed");
        move |status: &CloneSetStatus| {
            let rollout = rollout(status);
            rollout.is_some_and(|rollout| rollout.message == text && rollout.pods.done == step)
        }
    };
    cluster.until_set(paused(1)).await;
    send(Command::Resume).await.unwrap();
    cluster.until_set(paused(2)).await;
    send(Command::Pause).await.unwrap();
    let by_user = |status: &CloneSetStatus| {
        rollout(status).is_some_and(|rollout| rollout.message == "paused by a user")
    };
    cluster.until_set(by_user).await;
    assert_eq!(with_cpu(&cluster.until_pods(|_| true).await, "200m"), 2);
    send(Command::Resume).await.unwrap();
    cluster.until_settled(3).await;
    cluster.until_pods(|pods| with_cpu(pods, "200m") == 3).await;
    // Of a rollout that is complete, and of one that is under way.
    send(Command::Undo).await.unwrap();
    cluster.until_set(paused(1)).await;
    send(Command::Undo).await.unwrap();
    cluster.until_settled(3).await;
    let after = cluster.until_pods(|pods| with_cpu(pods, "200m") == 3).await;
    assert_eq!(uids(&before), uids(&after));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_were_resized_back_have_their_former_revision_and_the_update_has_failed() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    let former = label(before.values().next().unwrap(), keys::REVISION).to_owned();
    cluster.answer("*", Answer::Infeasible).await;
    policy(&cluster, json!({ "onFailure": "RollbackPod" })).await;
    let mut changed = template("one", "200m");
    changed["metadata"]["labels"]["tier"] = json!("front");
    cluster.merge(json!({ "spec": { "template": changed } })).await;
    let set = cluster
        .until_set(|status| {
            let rollout = rollout(status);
            rollout.is_some_and(|rollout| rollout.pods.rolled_back == 3) && status.updated_replicas == 0
        })
        .await;
    assert_eq!(reason(set.status.as_ref().unwrap(), "FailedUpdate"), "RolledBack");
    assert_eq!(reason(set.status.as_ref().unwrap(), CONDITION), "RolledBack");
    let pods = cluster.until_pods(|pods| pods.values().all(is_normal)).await;
    for pod in pods.values() {
        let found = (cpu(pod), label(pod, keys::REVISION), label(pod, "tier"));
        assert_eq!(found, ("100m".to_owned(), former.as_str(), ""));
    }
    // They are not tried again before the template changes.
    cluster.answer("*", Answer::Apply).await;
    cluster.merge(change("one", "150m")).await;
    cluster.until_settled(3).await;
    assert_eq!(with_cpu(&cluster.until_pods(|_| true).await, "150m"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_pod_is_named_before_its_deadline() {
    let cluster = Cluster::start().await;
    let before = cluster.settled(3, spec(3, "one", "100m", in_place())).await;
    let deferred = before.keys().next().unwrap();
    cluster.answer(deferred, Answer::Defer).await;
    cluster.merge(change("one", "200m")).await;
    let set = cluster
        .until_set(|status| {
            status.updated_available_replicas == 2
                && status
                    .condition(CONDITION)
                    .is_some_and(|one| one.message.iter().any(|m| m.contains("Deferred")))
        })
        .await;
    let why = message(&set, CONDITION);
    assert!(why.contains(deferred.as_str()), "{why}");
    assert_eq!(reason(set.status.as_ref().unwrap(), "FailedUpdate"), "");
}
