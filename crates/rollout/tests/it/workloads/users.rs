//! What users, policies and other controllers do during a rollout.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use plumb_client::Api;
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::commands::{Command, CommandError, command};
use plumb_rollout::engine::{Heading, Phase};
use plumb_rollout::workloads::WorkloadKind;
use plumb_vpa_api::{VerticalPodAutoscaler, crds};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::cluster::{Cluster, actual_cpu, cpu, rolled_out, status};
use super::deployments::{deployment, is, policy, running, sized};
use super::sets;

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_crashes_after_each_single_write_completes_the_rollout() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let (left, spent) = (Arc::new(AtomicI64::new(0)), Arc::new(Notify::new()));
    let (counter, notify) = (left.clone(), spent.clone());
    cluster.intercept = Arc::new(move |uri: &mut http::Uri| {
        // Events are written by a task of their own.
        if uri.path().contains("/events") || counter.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Ok(());
        }
        notify.notify_one();
        Err(io::Error::other("the controller has crashed"))
    });
    let mut lives = 0;
    loop {
        lives += 1;
        assert!(lives < 200, "each life gets ahead");
        left.store(1, Ordering::SeqCst);
        cluster.roll_out(true);
        let done = tokio::select! {
            () = spent.notified() => false,
            _ = cluster.until("web", is(Phase::Complete)) => true,
        };
        cluster.crash();
        if done {
            break;
        }
    }
    assert!(lives > 10, "{lives} lives");
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    assert!(pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("200m")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_is_deleted_leaves_the_rollout_to_the_defaults() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "paused": true }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    cluster.api::<RolloutPolicy>().delete("web", &DeleteParams::default()).await.unwrap();
    cluster.until("web", is(Phase::Complete)).await;
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_deleted_and_created_again_starts_anew() {
    let (mut cluster, _) = running(2, 2).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "paused": true }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    // No garbage collector runs.
    cluster.api::<Deployment>().delete("web", &DeleteParams::background()).await.unwrap();
    let sets = cluster.api::<ReplicaSet>();
    plumb_testkit::eventually(async || {
        // A controller that has not seen a deletion yet creates what is missing once more.
        let left = sets.list(&ListParams::default()).await.unwrap().items;
        for set in &left {
            let _ = sets.delete(set.metadata.name.as_deref().unwrap(), &DeleteParams::background()).await;
        }
        let pods = cluster.pods().await;
        for pod in pods.keys() {
            let _ = cluster.api::<Pod>().delete(pod, &DeleteParams::default()).await;
        }
        left.is_empty() && pods.is_empty()
    })
    .await;
    cluster.create::<Deployment>(deployment(2, "100m")).await;
    cluster.until("web", rolled_out).await;
    cluster.api::<RolloutPolicy>().delete("web", &DeleteParams::default()).await.unwrap();
    cluster.edit::<Deployment>("web", sized("300m")).await;
    cluster.until("web", is(Phase::Complete)).await;
    assert!(cluster.pods().await.values().all(|pod| actual_cpu(pod).as_deref() == Some("300m")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_held_deployment_is_released_and_gets_its_pods() {
    let (mut cluster, _) = running(2, 2).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "paused": true }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let held = cluster.until("web", is(Phase::Paused)).await;
    // What a backup restores: paused, with the record of the rollout, and without a ReplicaSet.
    let mut copy = serde_json::to_value(held).unwrap();
    copy["metadata"] = json!({ "name": "copy", "annotations": copy["metadata"]["annotations"] });
    copy["spec"]["selector"]["matchLabels"]["app"] = json!("copy");
    copy["spec"]["template"]["metadata"]["labels"]["app"] = json!("copy");
    copy["status"] = Value::Null;
    cluster.create::<Deployment>(copy).await;
    let released = |copy: &Deployment| copy.spec.as_ref().unwrap().paused != Some(true) && rolled_out(copy);
    cluster.until("copy", released).await;
    let event = plumb_testkit::event(&cluster.client, "copy", "InPlaceRolloutReleased", 1).await;
    let message = event.message.unwrap();
    assert!(message.ends_with("it has no ReplicaSet yet"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_by_a_user_during_a_hold_survive_it() {
    let (mut cluster, _) = running(2, 2).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "paused": true }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    // A pipeline applies its manifest again, which says that it is not paused.
    let again = cluster.edit::<Deployment>("web", json!({ "spec": { "paused": false } })).await;
    assert_eq!(again.spec.unwrap().paused, Some(true));
    cluster.merge::<RolloutPolicy>("web", json!({ "spec": { "paused": false } })).await;
    let web = cluster.until("web", is(Phase::Complete)).await;
    assert_ne!(web.spec.unwrap().paused, Some(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uninstallation_releases_every_hold() {
    let mut cluster = Cluster::start(2).await;
    cluster.create::<Deployment>(deployment(2, "100m")).await;
    cluster.create::<StatefulSet>(sets::new_stateful_set(2)).await;
    cluster.create::<DaemonSet>(sets::new_daemon_set("agent")).await;
    cluster.until("web", rolled_out).await;
    cluster.until("db", sets::is_ready(2)).await;
    cluster.until("agent", sets::runs_on(2)).await;
    let everything = json!({ "apiVersion": "plumb.dev/v1alpha1", "kind": "RolloutPolicy",
        "metadata": { "name": "all" }, "spec": { "selector": {}, "paused": true } });
    cluster.create::<RolloutPolicy>(everything).await;
    cluster.roll_out(true);
    let mut agent = sets::sized("200m");
    agent["spec"]["template"]["metadata"]["labels"]["app"] = json!("agent");
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.edit::<StatefulSet>("db", sets::sized("200m")).await;
    cluster.edit::<DaemonSet>("agent", agent).await;
    cluster.until("web", is(Phase::Paused)).await;
    cluster.until("db", |set: &StatefulSet| status(set).is_some()).await;
    cluster.until("agent", |set: &DaemonSet| status(set).is_some()).await;
    cluster.crash();
    let released = plumb_rollout::release_all(cluster.config(true)).await;
    assert_eq!(released, 3);
    let web = cluster.api::<Deployment>().get("web").await.unwrap();
    assert_ne!(web.spec.unwrap().paused, Some(true));
    let db = cluster.api::<StatefulSet>().get("db").await.unwrap();
    let strategy = db.spec.unwrap().update_strategy.unwrap();
    assert_eq!(strategy.rolling_update.unwrap().partition, Some(0));
    let agent = cluster.api::<DaemonSet>().get("agent").await.unwrap();
    assert_eq!(agent.spec.unwrap().update_strategy.unwrap().type_.as_deref(), Some("RollingUpdate"));
    // Their controllers recreate the pods.
    cluster.until_all::<Pod>(|pods| pods.len() == 6 && pods.values().all(|pod| cpu(pod) == "200m")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_policies_the_oldest_binds_and_both_have_a_condition() {
    let (mut cluster, _) = running(1, 1).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "paused": true }))).await;
    let mut second = policy(json!({ "onFailure": "RollbackAll" }));
    second["metadata"]["name"] = json!("younger");
    cluster.create::<RolloutPolicy>(second).await;
    let mut idle = policy(json!({}));
    idle["metadata"]["name"] = json!("idle");
    idle["spec"]["targetRef"]["name"] = json!("none");
    cluster.create::<RolloutPolicy>(idle).await;
    cluster.roll_out(true);
    let condition = |policy: &RolloutPolicy, type_: &str| {
        let conditions = policy.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition.type_ == type_);
        found.map(|found| (found.status, found.reason, found.message))
    };
    let is = |active: &'static str, conflicting: &'static str| {
        move |policy: &RolloutPolicy| {
            condition(policy, "Active").is_some_and(|(_, reason, _)| reason == active)
                && condition(policy, "Conflicting").is_some_and(|(_, reason, _)| reason == conflicting)
        }
    };
    let older = cluster.until("web", is("Bound", "NewerPolicySelects")).await;
    assert_eq!(older.status.as_ref().unwrap().workloads, 1);
    let (_, _, bound) = condition(&older, "Active").unwrap();
    assert_eq!(bound, "the policy binds 1 workload");
    let younger = cluster.until("younger", is("Overruled", "OlderPolicyBinds")).await;
    let (conflicting, _, message) = condition(&younger, "Conflicting").unwrap();
    assert_eq!(
        (conflicting.as_str(), message.as_str()),
        ("True", "Deployment web is bound by policy web, which is older")
    );
    cluster.until("idle", is("NoWorkloads", "NoConflict")).await;
    // The oldest has paused it.
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", super::deployments::is(Phase::Paused)).await;
    cluster.api::<RolloutPolicy>().delete("web", &DeleteParams::default()).await.unwrap();
    cluster.until("younger", is("Bound", "NoConflict")).await;
    cluster.until("web", super::deployments::is(Phase::Complete)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_is_paused_resumed_and_undone_by_command() {
    let (mut cluster, before) = running(3, 3).await;
    let kind = WorkloadKind::Deployment;
    cluster.create::<RolloutPolicy>(policy(json!({ "canary": [{ "pods": 1 }] }))).await;
    cluster.roll_out(true);
    let ask = |what| command(&cluster.client, kind, "default", "web", what);
    assert!(matches!(ask(Command::Undo).await, Err(CommandError::NothingToUndo)));
    assert!(matches!(ask(Command::Pause).await, Err(CommandError::NotRolling)));
    cluster.edit::<Deployment>("web", sized("200m")).await;
    let canary = |web: &Deployment| {
        status(web).is_some_and(|status| status.phase == Phase::Paused && status.message.contains("canary"))
    };
    cluster.until("web", canary).await;
    assert_eq!(cluster.pods().await.values().filter(|pod| cpu(pod) == "200m").count(), 1);
    ask(Command::Pause).await.unwrap();
    cluster
        .until("web", |web: &Deployment| {
            status(web).is_some_and(|status| status.message == "paused by a user")
        })
        .await;
    ask(Command::Undo).await.unwrap();
    let web = cluster.until("web", is(Phase::RolledBack)).await;
    let reported = status(&web).unwrap();
    assert_eq!((reported.heading, reported.message.as_str()), (Heading::Back, "undone by a user"));
    let template = web.spec.unwrap().template.spec.unwrap();
    assert_eq!(json!(template.containers[0].resources), json!({ "requests": { "cpu": "100m" } }));
    cluster.edit::<Deployment>("web", sized("300m")).await;
    cluster.until("web", canary).await;
    ask(Command::Resume).await.unwrap();
    cluster.until("web", is(Phase::Complete)).await;
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    assert!(pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("300m")));
}

fn vpa(resources: Value) -> Value {
    json!({ "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": "web" },
        "spec": { "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "updatePolicy": { "updateMode": "InPlace" },
            "resourcePolicy": { "containerPolicies": [{ "containerName": "*", "controlledResources": resources }] } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_an_autoscaler_are_not_resized_whatever_the_policy_says_about_drift() {
    let (mut cluster, before) = running(2, 2).await;
    Api::all(cluster.client.clone())
        .create(&PostParams::default(), &crds::vertical_pod_autoscaler())
        .await
        .unwrap();
    plumb_testkit::eventually(async || {
        let api = cluster.api::<VerticalPodAutoscaler>();
        api.create(&PostParams::default(), &plumb_testkit::object(vpa(json!(["cpu"])))).await.is_ok()
    })
    .await;
    cluster.create::<RolloutPolicy>(policy(json!({ "drift": "Enforce", "onFailure": "RollbackPod" }))).await;
    cluster.roll_out(true);
    let both = |cpu: &str, memory: &str| {
        let resources = json!({ "requests": { "cpu": cpu, "memory": memory } });
        let containers = json!([{ "name": "app", "image": "app:1", "resources": resources }]);
        json!({ "spec": { "template": { "spec": { "containers": containers } } } })
    };
    let web = cluster.edit::<Deployment>("web", both("200m", "64Mi")).await;
    assert_eq!(web.spec.unwrap().paused, Some(true));
    let web = cluster.until("web", is(Phase::Complete)).await;
    assert_eq!(status(&web).unwrap().autoscaled, ["app: requests.cpu (VerticalPodAutoscaler web)"]);
    let memory = |pod: &Pod| {
        let resources = pod.spec.as_ref().unwrap().containers[0].resources.clone().unwrap();
        resources.requests.unwrap().get("memory").map(|memory| memory.0.clone())
    };
    let pods = cluster.pods().await;
    assert_eq!(pods.keys().cloned().collect::<Vec<_>>(), before);
    for pod in pods.values() {
        assert_eq!((cpu(pod).as_str(), memory(pod).as_deref()), ("100m", Some("64Mi")));
    }
    // The autoscaler resizes what it owns, another client what the template owns.
    for (pod, resources) in before.iter().zip([json!({ "cpu": "150m" }), json!({ "memory": "96Mi" })]) {
        cluster.resize(pod, json!({ "requests": resources })).await;
    }
    let settled = |pods: &std::collections::BTreeMap<String, Pod>| {
        let sizes = before.iter().map(|name| (cpu(&pods[name]), memory(&pods[name]).unwrap()));
        let mut sizes: Vec<_> = sizes.collect();
        sizes.sort();
        sizes == [("100m".into(), "64Mi".into()), ("150m".into(), "64Mi".into())]
    };
    cluster.until_all::<Pod>(settled).await;
    // Once it is gone, the template owns all.
    let vpas = cluster.api::<VerticalPodAutoscaler>();
    vpas.delete("web", &DeleteParams::default()).await.unwrap();
    cluster.until_all::<Pod>(|pods| pods.values().all(|pod| cpu(pod) == "200m")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_enforcement_a_resize_by_another_client_stays() {
    let (mut cluster, before) = running(2, 2).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Complete)).await;
    cluster.resize(&before[0], json!({ "requests": { "cpu": "150m" } })).await;
    cluster.touch(&before[1]).await;
    cluster.until_all::<Pod>(|pods| actual_cpu(&pods[&before[0]]).as_deref() == Some("150m")).await;
    // The next rollout takes it along.
    cluster.edit::<Deployment>("web", sized("300m")).await;
    cluster.until("web", is(Phase::Complete)).await;
    assert!(cluster.pods().await.values().all(|pod| actual_cpu(pod).as_deref() == Some("300m")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_that_is_scaled_during_a_hold_gets_new_pods_of_the_new_size() {
    let mut cluster = sets::stateful_set(2).await;
    let mut object = policy(json!({ "paused": true }));
    object["spec"]["targetRef"] = json!({ "kind": "StatefulSet", "name": "db" });
    cluster.create::<RolloutPolicy>(object).await;
    cluster.roll_out(true);
    cluster.edit::<StatefulSet>("db", sets::sized("200m")).await;
    cluster
        .until("db", |set: &StatefulSet| status(set).is_some_and(|status| status.phase == Phase::Paused))
        .await;
    cluster.merge::<StatefulSet>("db", json!({ "spec": { "replicas": 4 } })).await;
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 4).await;
    let sizes: Vec<String> = pods.values().map(cpu).collect();
    assert_eq!(sizes, ["100m", "100m", "200m", "200m"]);
    cluster.merge::<RolloutPolicy>("web", json!({ "spec": { "paused": false } })).await;
    let uids = |pods: &std::collections::BTreeMap<String, Pod>| {
        pods.values().map(|pod| pod.metadata.uid.clone().unwrap()).collect::<Vec<_>>()
    };
    cluster.until("db", sets::is_complete(4)).await;
    let after = cluster.pods().await;
    assert_eq!(uids(&after), uids(&pods));
    assert!(after.values().all(|pod| actual_cpu(pod).as_deref() == Some("200m")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_in_the_middle_of_a_rollout_of_its_own_is_left_to_its_controller() {
    let mut cluster = sets::stateful_set(2).await;
    // Its controller may update no pod but the last.
    let half = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 1 } });
    let mut image = sets::sized("100m");
    image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
    image["spec"]["updateStrategy"] = half;
    cluster.edit::<StatefulSet>("db", image.clone()).await;
    cluster
        .until("db", |set: &StatefulSet| {
            let status = set.status.as_ref().unwrap();
            status.updated_replicas == Some(1)
                && status.ready_replicas == Some(2)
                && status.observed_generation == set.metadata.generation
        })
        .await;
    cluster.roll_out(true);
    image["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({ "requests": { "cpu": "200m" } });
    cluster.edit::<StatefulSet>("db", image).await;
    let set = cluster
        .until("db", |set: &StatefulSet| status(set).is_some_and(|status| status.phase == Phase::Recreating))
        .await;
    assert!(status(&set).unwrap().message.contains("db-0 is of a revision"), "{:?}", status(&set));
    let strategy = set.spec.unwrap().update_strategy.unwrap();
    assert_eq!(strategy.rolling_update.unwrap().partition, Some(1));
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 2 && cpu(&pods["db-1"]) == "200m").await;
    assert_eq!(pods["db-0"].spec.as_ref().unwrap().containers[0].image.as_deref(), Some("app:1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_a_held_workload_that_the_webhook_missed_is_rolled_out_too() {
    let (mut cluster, before) = running(3, 3).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "paused": true }))).await;
    cluster.roll_out(true);
    cluster.edit::<Deployment>("web", sized("200m")).await;
    cluster.until("web", is(Phase::Paused)).await;
    cluster.merge::<Deployment>("web", sized("300m")).await;
    cluster.merge::<RolloutPolicy>("web", json!({ "spec": { "paused": false } })).await;
    cluster
        .until_all::<Pod>(|pods| pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("300m")))
        .await;
    cluster.until("web", is(Phase::Complete)).await;
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_pods_are_resized_at_a_time_than_the_policy_says() {
    let (mut cluster, before) = running(24, 12).await;
    cluster.create::<RolloutPolicy>(policy(json!({ "maxConcurrent": 4 }))).await;
    cluster.roll_out(true);
    let most = std::cell::Cell::new(0);
    let done = |pods: &std::collections::BTreeMap<String, Pod>| {
        let under_way = pods.values().filter(|pod| actual_cpu(pod).as_deref() != Some(&cpu(pod))).count();
        most.set(most.get().max(under_way));
        pods.values().all(|pod| actual_cpu(pod).as_deref() == Some("200m"))
    };
    // The watch begins before the first pod is resized.
    tokio::join!(cluster.until_all::<Pod>(done), async {
        cluster.edit::<Deployment>("web", sized("200m")).await;
    });
    assert!((1..=4).contains(&most.get()), "{} at a time", most.get());
    cluster.until("web", is(Phase::Complete)).await;
    assert_eq!(cluster.pods().await.into_keys().collect::<Vec<_>>(), before);
}
