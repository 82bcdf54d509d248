//! What a rollout costs: what a change of one pod costs the controller, by the number of pods of its workload; what a reconcile of a
//! CloneSet costs for each of its pods; and how long it takes until all pods of a Deployment are resized in place, against an API
//! server in this process.
//!
//! `cargo bench -p plumb-rollout`; `PLUMB_BENCH_PODS` makes the last smaller.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a service")]

#[expect(dead_code, reason = "tests need more of it")]
#[path = "../tests/it/workloads/cluster.rs"]
mod cluster;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use plumb_resize::rules::Rules;
use plumb_rollout::api::cloneset::CloneSet;
use plumb_rollout::api::{RolloutPolicy, Share};
use plumb_rollout::cloneset::{self, Failures};
use plumb_rollout::engine::{
    Desired, Phase, PodPolicy, PodView, Pods, ResizeOnly, RolloutRecord, Settings, State, decide,
};
use plumb_rollout::vpas::Owners;
use plumb_testkit::object;
use serde_json::{Value, json};

use cluster::{Cluster, actual_cpu, status};

/// How many pods a workload has where a change of one is measured.
const SIZES: [usize; 4] = [10, 100, 1_000, 5_000];
const CHANGES: u32 = 2_000;
const NODES: usize = 50;

fn template(cpu: &str) -> Value {
    let resources = json!({ "requests": { "cpu": cpu, "memory": "16Mi" } });
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "app", "image": "app:1", "resources": resources }] },
    })
}

fn pod(number: usize, cpu: &str) -> Pod {
    let resources = json!({ "requests": { "cpu": cpu, "memory": "16Mi" } });
    let mut pod = template(cpu);
    pod["metadata"]["name"] = json!(format!("web-{number}"));
    pod["metadata"]["uid"] = json!(format!("uid-{number}"));
    pod["metadata"]["generation"] = json!(1);
    pod["spec"]["nodeName"] = json!(format!("node-{}", number % NODES));
    pod["status"] = json!({
        "phase": "Running", "observedGeneration": 1, "conditions": [{ "type": "Ready", "status": "True" }],
        "containerStatuses": [{
            "name": "app", "image": "app:1", "imageID": "", "ready": true, "restartCount": 0,
            "state": { "running": {} }, "resources": resources, "allocatedResources": resources["requests"],
        }],
    });
    object(pod)
}

/// One pod changes, and it is decided what comes next.
fn change_of_one_pod(pods_in_all: usize) {
    let (rules, now) = (Rules::v1_36(), "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
    let template: PodTemplateSpec = object(template("200m"));
    let hooks = ResizeOnly {
        revision: "new".to_owned(),
        base: "old".to_owned(),
        desired: Desired::of(&template, &rules).unwrap(),
        back: false,
        revision_label: None,
        rules,
    };
    let policy = PodPolicy::default();
    let view = |pod: &Pod| PodView::of(pod, &hooks, &policy, 0, now);
    let mut pods = Pods::default();
    for number in 0..pods_in_all {
        pods.set(&format!("web-{number}"), view(&pod(number, "100m")));
    }
    let settings = Settings { max_concurrent: Share::Count(50), ..Settings::default() };
    let record = RolloutRecord::new("new".to_owned(), "old".to_owned(), Desired::default(), now);
    let changed = [pod(0, "100m"), pod(0, "200m")];
    let started = Instant::now();
    for round in 0..CHANGES {
        let pod = &changed[usize::from(round % 2 == 0)];
        pods.set("web-0", view(pod));
        black_box(decide(&State {
            pods: &pods,
            settings: &settings,
            record: &record,
            backing_off: &BTreeSet::new(),
            is_ordered: false,
            replicas: pods_in_all,
            max_unavailable: 50,
            others: 0,
            others_unavailable: 0,
            missing_since: None,
            now,
        }));
    }
    let took = started.elapsed() / CHANGES;
    println!("a change of one of {pods_in_all} pods: {:.1} µs", took.as_secs_f64() * 1e6);
}

/// A CloneSet whose template has this cpu.
fn cloneset(replicas: usize, cpu: &str) -> Arc<CloneSet> {
    Arc::new(object(json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "set", "generation": 1 },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template(cpu),
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "podUpdatePolicy": "InPlaceIfPossible" } },
        },
    })))
}

/// Decides about a CloneSet until its revisions are written.
fn settle(state: &mut cloneset::State, context: &cloneset::Context<'_>) -> cloneset::Decision {
    loop {
        let mut decision = cloneset::decide(state, context);
        match decision.actions.pop() {
            Some(cloneset::Action::CreateRevision(revision)) => state.revisions.push(Arc::new(*revision)),
            last => {
                decision.actions.extend(last);
                return decision;
            }
        }
    }
}

/// A CloneSet is reconciled, when all is as it should be and when all pods are to be resized.
fn reconcile_of_a_cloneset(replicas: usize) {
    let (rules, now) = (Rules::v1_36(), "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
    let failures = Failures::default();
    let context = cloneset::Context {
        now,
        seed: 1,
        rules: &rules,
        vertical: true,
        failures: &failures,
        verdict: Some(&cloneset::Verdict::Admitted),
    };
    let mut state = cloneset::State {
        set: cloneset(replicas, "100m"),
        pods: Vec::new(),
        revisions: Vec::new(),
        taken: BTreeSet::new(),
        claims: Vec::new(),
        policy: Settings::default(),
        owners: Owners::default(),
        quotas: Vec::new(),
    };
    let created = settle(&mut state, &context).actions;
    for (number, action) in created.into_iter().enumerate() {
        let cloneset::Action::CreatePod { pod: mut new, .. } = action else { continue };
        let running = pod(number, "100m");
        (new.metadata.uid, new.metadata.generation) = (running.metadata.uid, Some(1));
        new.spec.as_mut().unwrap().node_name = running.spec.unwrap().node_name;
        let mut status = running.status.unwrap();
        let ready = json!({ "type": "InPlaceUpdateReady", "status": "True" });
        status.conditions.as_mut().unwrap().push(object(ready));
        new.status = Some(status);
        let labels = new.metadata.labels.as_mut().unwrap();
        labels.insert("lifecycle.apps.kruise.io/state".to_owned(), "Normal".to_owned());
        state.pods.push(Arc::new(*new));
    }
    assert_eq!(state.pods.len(), replicas);
    let measure = |state: &cloneset::State| {
        let rounds = u32::try_from((20_000 / replicas).clamp(3, 1_000)).unwrap();
        let started = Instant::now();
        for _ in 0..rounds {
            black_box(cloneset::decide(state, &context));
        }
        let took = started.elapsed() / rounds / u32::try_from(replicas).unwrap();
        took.as_secs_f64() * 1e6
    };
    let idle = measure(&state);
    state.set = cloneset(replicas, "200m");
    let begun = settle(&mut state, &context).actions;
    assert!(!begun.is_empty(), "pods are resized");
    let begins = measure(&state);
    println!(
        "a reconcile of a CloneSet of {replicas} pods, for each: {idle:.2} µs, at the start of a rollout {begins:.2} µs"
    );
}

/// All pods of a Deployment are resized in place.
async fn all_pods(replicas: usize) {
    let mut cluster = Cluster::start(NODES).await;
    let deployment = json!({
        "metadata": { "name": "web", "annotations": { "rollout.plumb.dev/in-place": "true" } },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template("100m"),
        },
    });
    cluster.create::<Deployment>(deployment).await;
    let ready = i32::try_from(replicas).unwrap();
    cluster
        .until::<Deployment>("web", |web| web.status.as_ref().and_then(|s| s.ready_replicas) == Some(ready))
        .await;
    let policy = json!({
        "metadata": { "name": "web" },
        "spec": { "targetRef": { "kind": "Deployment", "name": "web" }, "maxConcurrent": 50 },
    });
    cluster.create::<RolloutPolicy>(policy).await;
    cluster.roll_out(true);
    let started = Instant::now();
    cluster.edit::<Deployment>("web", json!({ "spec": { "template": template("200m") } })).await;
    let is_complete = |web: &Deployment| status(web).is_some_and(|status| status.phase == Phase::Complete);
    cluster.until::<Deployment>("web", is_complete).await;
    let took = started.elapsed();
    let pods = cluster.pods().await;
    let resized = pods.values().filter(|pod| actual_cpu(pod).as_deref() == Some("200m")).count();
    assert_eq!(resized, replicas, "all pods are resized");
    println!("{replicas} pods on {NODES} nodes, 50 at a time, resized in place: {:.2} s", took.as_secs_f64());
}

fn main() {
    SIZES.into_iter().for_each(change_of_one_pod);
    SIZES.into_iter().for_each(reconcile_of_a_cloneset);
    let replicas = std::env::var("PLUMB_BENCH_PODS").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    tokio::runtime::Runtime::new().unwrap().block_on(all_pods(replicas));
}
