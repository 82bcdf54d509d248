//! Jobs and `CronJob`s, through the API. The test ends a pod as soon as it observes it, in the way that its image
//! says.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, Job, JobCondition};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use plumb_controller_runtime::{Clock, Reflector, WatchConfig};
use plumb_controllers::job::{FINALIZER, is_tracked};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::until_gone;
use crate::workloads::{Cluster, name};

/// Ends pods whose image is `ok` or `bad`, until it is dropped.
fn play(cluster: &Cluster) -> JoinSet<()> {
    let pods: Api<Pod> = cluster.api();
    let mut playing = JoinSet::new();
    playing.spawn(async move {
        let mut events = std::pin::pin!(Reflector::new(pods.clone(), WatchConfig::default()).into_stream());
        while let Some(event) = events.next().await {
            for pod in event.into_objects() {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                let image = pod.spec.as_ref().unwrap().containers[0].image.as_deref();
                let end = match (phase, image) {
                    (Some("Pending"), Some("ok")) => "Succeeded",
                    (Some("Pending"), Some("bad")) => "Failed",
                    _ => continue,
                };
                let status = Patch::Merge(json!({ "status": { "phase": end } }));
                // The pod may have been deleted meanwhile.
                let _ = pods.patch_status(&name(&pod), &PatchParams::default(), &status).await;
            }
        }
    });
    playing
}

fn template(image: &str) -> Value {
    let containers = json!([{ "name": "c", "image": image }]);
    json!({ "spec": { "containers": containers, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0 } })
}

async fn make(cluster: &Cluster, name: &str, image: &str, spec: Value) -> Job {
    let mut whole = json!({ "template": template(image) });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    cluster.create(json!({ "metadata": { "name": name }, "spec": whole })).await
}

fn has(job: &Job, wanted: &str) -> Option<JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == wanted && condition.status == "True").cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_complete_when_enough_of_its_pods_have_succeeded() {
    let cluster = Cluster::without_nodes();
    let _playing = play(&cluster);
    make(&cluster, "sum", "ok", json!({ "completions": 5, "parallelism": 2 })).await;
    let job = cluster.until::<Job>("sum", |job| has(job, "Complete").is_some()).await;
    let status = job.status.clone().unwrap();
    assert_eq!((status.succeeded, status.failed, status.active), (Some(5), None, None));
    assert!(has(&job, "SuccessCriteriaMet").is_some() && status.completion_time.is_some());
    let uncounted = status.uncounted_terminated_pods.unwrap();
    assert_eq!((uncounted.succeeded, uncounted.failed), (None, None));
    let pods = cluster.until_all::<Pod>(|pods| !pods.values().any(is_tracked)).await;
    assert_eq!(pods.len(), 5);
    let said = |event: &Event| event.reason.as_deref() == Some("Completed");
    cluster.until_all::<Event>(|events| events.values().any(said)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_pods_fail_has_failed_with_a_reason() {
    let cluster = Cluster::without_nodes();
    let _playing = play(&cluster);
    make(&cluster, "bad", "bad", json!({ "backoffLimit": 0 })).await;
    let job = cluster.until::<Job>("bad", |job| has(job, "Failed").is_some()).await;
    assert_eq!(has(&job, "Failed").unwrap().reason.as_deref(), Some("BackoffLimitExceeded"));
    assert_eq!(job.status.unwrap().failed, Some(1));
    // Each index fails by itself, and the others complete.
    let each =
        json!({ "completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0 });
    make(&cluster, "each", "bad", each).await;
    let job = cluster.until::<Job>("each", |job| has(job, "Failed").is_some()).await;
    assert_eq!(has(&job, "Failed").unwrap().reason.as_deref(), Some("FailedIndexes"));
    assert_eq!(job.status.unwrap().failed_indexes.as_deref(), Some("0,1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_index_is_done_once() {
    let cluster = Cluster::without_nodes();
    let _playing = play(&cluster);
    let spec = json!({ "completions": 4, "parallelism": 3, "completionMode": "Indexed" });
    make(&cluster, "parts", "ok", spec).await;
    let job = cluster.until::<Job>("parts", |job| has(job, "Complete").is_some()).await;
    assert_eq!(job.status.unwrap().completed_indexes.as_deref(), Some("0-3"));
    let pods = cluster.until_all::<Pod>(|pods| pods.len() == 4).await;
    let starts: Vec<String> = pods.keys().map(|name| name[..8].to_owned()).collect();
    assert_eq!(starts, ["parts-0-", "parts-1-", "parts-2-", "parts-3-"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_job_waits_until_it_may_go_on() {
    let cluster = Cluster::without_nodes();
    make(&cluster, "later", "slow", json!({ "suspend": true, "completions": 1 })).await;
    cluster.until::<Job>("later", |job| has(job, "Suspended").is_some()).await;
    cluster.merge::<Job>("later", json!({ "spec": { "suspend": false } })).await;
    let runs = |job: &Job| job.status.as_ref().is_some_and(|status| status.active == Some(1));
    cluster.until::<Job>("later", runs).await;
    // The Job has not failed because it was suspended again.
    cluster.merge::<Job>("later", json!({ "spec": { "suspend": true } })).await;
    let rests = |job: &Job| {
        let status = job.status.clone().unwrap_or_default();
        has(job, "Suspended").is_some() && status.active.is_none() && status.terminating == Some(0)
    };
    let job = cluster.until::<Job>("later", rests).await;
    assert_eq!(job.status.unwrap().failed, None);
    cluster.until_all::<Pod>(BTreeMap::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_deleted_or_too_old_takes_its_pods_with_it() {
    let cluster = Cluster::without_nodes();
    let _playing = play(&cluster);
    make(&cluster, "slow", "slow", json!({ "parallelism": 2, "completions": 2 })).await;
    cluster.until_all::<Pod>(|pods| pods.len() == 2 && pods.values().all(is_tracked)).await;
    let background =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    cluster.api::<Job>().delete("slow", &background).await.unwrap();
    cluster.until_all::<Pod>(BTreeMap::is_empty).await;
    make(&cluster, "brief", "ok", json!({ "ttlSecondsAfterFinished": 0 })).await;
    until_gone(&cluster.api::<Job>(), "brief").await;
    cluster.until_all::<Pod>(BTreeMap::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_a_job_selects_is_adopted_and_kept() {
    let cluster = Cluster::without_nodes();
    let labels = json!({ "work": "mine" });
    let mut orphan = template("slow");
    orphan["metadata"] = json!({ "name": "orphan", "labels": labels });
    cluster.create::<Pod>(orphan).await;
    let mut chosen = template("slow");
    chosen["metadata"] = json!({ "labels": labels });
    let spec = json!({ "manualSelector": true, "selector": { "matchLabels": labels }, "template": chosen });
    make(&cluster, "finder", "slow", spec).await;
    cluster.until::<Pod>("orphan", |pod| is_tracked(pod) && pod.metadata.owner_references.is_some()).await;
    // The Job counts it, and creates no other pod.
    let counts = |job: &Job| job.status.as_ref().is_some_and(|status| status.active == Some(1));
    cluster.until::<Job>("finder", counts).await;
    assert_eq!(cluster.until_all::<Pod>(|pods| pods.len() == 1).await.len(), 1);
    // A pod that it no longer selects is released, and another one created.
    cluster.merge::<Pod>("orphan", json!({ "metadata": { "labels": { "work": "other" } } })).await;
    cluster.until::<Pod>("orphan", |pod| !is_tracked(pod) && pod.metadata.owner_references.is_none()).await;
    cluster.until_all::<Pod>(|pods| pods.len() == 2).await;
    // A finalizer that no Job needs is removed.
    let mut stray = template("slow");
    stray["metadata"] = json!({ "name": "stray", "finalizers": [FINALIZER] });
    cluster.create::<Pod>(stray).await;
    cluster.until::<Pod>("stray", |pod| !is_tracked(pod)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_makes_up_for_what_was_missed_and_remembers_how_it_went() {
    // The clock of the controllers is an hour later, and stands: no other start time comes during the test.
    let wall = || Timestamp::now() + Duration::from_hours(1);
    let cluster = Cluster::at(Clock::with_wall(wall));
    let spec = json!({
        "schedule": "0 * * * *", "timeZone": "Etc/UTC", "successfulJobsHistoryLimit": 0,
        "jobTemplate": { "metadata": { "labels": { "of": "clock" } }, "spec": { "template": template("ok") } },
    });
    cluster.create::<CronJob>(json!({ "metadata": { "name": "clock" }, "spec": spec })).await;
    let runs = |cron: &CronJob| {
        let status = cron.status.clone().unwrap_or_default();
        status.active.is_some_and(|active| active.len() == 1) && status.last_schedule_time.is_some()
    };
    let cron = cluster.until::<CronJob>("clock", runs).await;
    let status = cron.status.unwrap();
    let minute = status.last_schedule_time.unwrap().0.as_second() / 60;
    let active = status.active.unwrap();
    assert_eq!(active[0].name.as_deref(), Some(&*format!("clock-{minute}")));
    let jobs = cluster.until_all::<Job>(|jobs| jobs.len() == 1).await;
    assert_eq!(jobs.values().next().unwrap().metadata.labels.as_ref().unwrap()["of"], "clock");
    let _playing = play(&cluster);
    let went_well = |cron: &CronJob| {
        let status = cron.status.clone().unwrap_or_default();
        status.active.is_none() && status.last_successful_time.is_some()
    };
    cluster.until::<CronJob>("clock", went_well).await;
    cluster.until_all::<Job>(BTreeMap::is_empty).await;
}
