//! Several processes that share VPAs, in virtual time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, PostParams};
use plumb_recommender::shards::{Elections, REPLICAS_LABEL, ShardConfig, assign, shard_of};
use plumb_recommender::{Options, VpaKey};
use plumb_testkit::{eventually, object, until, until_all, virtual_clock};
use plumb_vpa_api::{VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint};
use proptest::prelude::*;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::bed::{Bed, Setup, targets};

/// Who reads and writes leases: the one that has a role for it.
const ACCOUNT: &str = "system:serviceaccount:kube-system:vpa-recommender";
const SHARDS: u32 = 4;
const VPAS: usize = 12;
/// A lease and the longest time between two attempts, and then a run.
const TAKE_OVER: Duration = Duration::from_secs(15);

/// Which process wrote the status of which VPA, and when.
type Log = Arc<Mutex<Vec<(&'static str, String, Instant)>>>;

struct Process {
    stop: oneshot::Sender<()>,
    elections: tokio::task::JoinHandle<()>,
    /// While it is set, it does not reach the leases.
    cut_off: Arc<AtomicBool>,
    running: JoinSet<()>,
}

impl Process {
    fn start(bed: &Bed, identity: &'static str, shards: u32, log: &Log) -> Self {
        let cut_off: Arc<AtomicBool> = Arc::default();
        let (log, cut) = (log.clone(), cut_off.clone());
        let intercept = move |uri: &mut http::Uri| {
            if let Some(path) = uri.path().strip_suffix("/status")
                && path.contains("/verticalpodautoscalers/")
            {
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                log.lock().unwrap().push((identity, name, Instant::now()));
            }
            if cut.load(Ordering::SeqCst) && uri.path().contains("/leases") {
                *uri = "/api/v1/namespaces/default/pods/x/binding".parse().unwrap();
            }
        };
        let cut = cut_off.clone();
        let client = bed.cluster.intercepted(ACCOUNT, ["system:serviceaccounts"], move |uri| {
            if cut.load(Ordering::SeqCst) {
                *uri = "/api/v1/namespaces/default/pods/x/binding".parse().unwrap();
            }
        });
        let config = ShardConfig::sharded(shards, "kube-system", identity);
        let elections = Elections::new(&client, &config).unwrap();
        let clock = virtual_clock("2026-01-01T00:00:00Z".parse().unwrap());
        let setup = Setup {
            options: Options {
                interval: Duration::from_secs(1),
                checkpoints_gc_interval: Duration::from_secs(10),
                ..Options::default()
            },
            intercept: Arc::new(intercept),
            ownership: elections.ownership(),
            clock: Some(clock),
            history: None,
            usage: None,
        };
        let (recommender, _, mut running) = bed.prepare(setup);
        running.spawn(recommender.run());
        let (stop, stopped) = oneshot::channel();
        let elections = tokio::spawn(elections.run(stopped.map(drop).boxed()));
        Self { stop, elections, cut_off, running }
    }

    /// It ends without a word.
    fn crash(self) {
        self.elections.abort();
    }

    /// It ends as asked, and releases its leases.
    async fn shut_down(self) {
        let Self { stop, elections, running, .. } = self;
        drop(running);
        stop.send(()).unwrap();
        elections.await.unwrap();
    }
}

/// Lets the account do with leases what its role says.
async fn allow_leases(bed: &Bed) {
    let rules: Vec<_> = plumb_roles::RECOMMENDER
        .election
        .iter()
        .map(|of| json!({ "apiGroups": of.groups, "resources": of.resources, "verbs": of.verbs }))
        .collect();
    let role: Role = object(json!({ "metadata": { "name": "leases" }, "rules": rules }));
    let binding: RoleBinding = object(json!({
        "metadata": { "name": "leases" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leases" },
        "subjects": [{ "kind": "ServiceAccount", "namespace": "kube-system", "name": "vpa-recommender" }],
    }));
    let roles: kube::Api<Role> = kube::Api::namespaced(bed.client.clone(), "kube-system");
    roles.create(&PostParams::default(), &role).await.unwrap();
    let bindings: kube::Api<RoleBinding> = kube::Api::namespaced(bed.client.clone(), "kube-system");
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

async fn bed() -> Bed {
    let bed = Bed::new().await;
    allow_leases(&bed).await;
    for index in 0..VPAS {
        let name = format!("web-{index}");
        bed.deployment(&name).await;
        bed.pod(&format!("{name}-1"), &name).await;
        bed.vpa(&name, json!({})).await;
    }
    bed
}

/// Has all pods use so much, and waits until all VPAs say so.
async fn all_follow(bed: &Bed, milli: i64) {
    for index in 0..VPAS {
        bed.uses(&format!("web-{index}-1"), "app", milli, 100_000_000);
    }
    let target = |vpa: &VerticalPodAutoscaler| {
        let cpu = targets(vpa).get("app").and_then(|target| target.split('/').next()?.parse().ok());
        cpu.map_or(0, plumb_resize::Quantity::saturating_milli)
    };
    let follows =
        |vpas: &BTreeMap<String, VerticalPodAutoscaler>| vpas.values().all(|vpa| target(vpa) > milli);
    until_all(&bed.vpas(), follows).await;
}

/// The processes that wrote each VPA, in order, each once in a row.
fn writers(log: &Log) -> BTreeMap<String, Vec<&'static str>> {
    let mut writers: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for (process, vpa, _) in &*log.lock().unwrap() {
        writers.entry(vpa.clone()).or_default().push(process);
    }
    writers.values_mut().for_each(Vec::dedup);
    writers
}

#[tokio::test(start_paused = true)]
async fn the_shards_of_a_process_that_crashes_are_taken_over_within_15_seconds() {
    let (bed, log) = (bed().await, Log::default());
    let a = Process::start(&bed, "a", SHARDS, &log);
    let b = Process::start(&bed, "b", SHARDS, &log);
    all_follow(&bed, 100).await;
    let shared = writers(&log);
    assert!(shared.values().all(|of| of.len() == 1), "{shared:?}");
    assert!(["a", "b"].iter().all(|process| shared.values().any(|of| of == &[*process])), "{shared:?}");
    a.crash();
    let crashed = Instant::now();
    all_follow(&bed, 5_000).await;
    assert!(crashed.elapsed() <= TAKE_OVER, "{:?}", crashed.elapsed());
    let moved = writers(&log);
    for (vpa, before) in shared {
        let expected: &[&str] = if before == ["a"] { &["a", "b"] } else { &["b"] };
        assert_eq!(moved[&vpa], expected, "{vpa}");
    }
    // A process that ends as it is asked to does not keep the others waiting.
    let c = Process::start(&bed, "c", SHARDS, &log);
    tokio::time::sleep(Duration::from_secs(30)).await;
    b.shut_down().await;
    let stopped = Instant::now();
    all_follow(&bed, 50_000).await;
    assert!(stopped.elapsed() < Duration::from_secs(8), "{:?}", stopped.elapsed());
    drop(c);
}

#[tokio::test(start_paused = true)]
async fn every_process_writes_the_checkpoints_of_its_vpas_again_that_were_deleted() {
    let (bed, log) = (bed().await, Log::default());
    // A checkpoint of another version cannot be read, and is not overwritten as long as it exists.
    for index in 0..VPAS {
        let checkpoint: VerticalPodAutoscalerCheckpoint = object(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscalerCheckpoint",
            "metadata": { "name": format!("web-{index}-app") },
            "spec": { "vpaObjectName": format!("web-{index}"), "containerName": "app" },
            "status": { "version": "v4" },
        }));
        bed.checkpoints().create(&PostParams::default(), &checkpoint).await.unwrap();
    }
    let a = Process::start(&bed, "a", SHARDS, &log);
    let b = Process::start(&bed, "b", SHARDS, &log);
    all_follow(&bed, 100).await;
    let shared = writers(&log);
    assert!(["a", "b"].iter().all(|process| shared.values().any(|of| of == &[*process])), "{shared:?}");
    let names = bed.checkpoint_names().await;
    for name in &names {
        bed.checkpoints().delete(name, &DeleteParams::default()).await.unwrap();
    }
    eventually(async || bed.checkpoint_names().await == names).await;
    drop((a, b));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_renew_stops_writing_before_another_begins() {
    let (bed, log) = (bed().await, Log::default());
    let a = Process::start(&bed, "a", 1, &log);
    all_follow(&bed, 100).await;
    let b = Process::start(&bed, "b", 1, &log);
    tokio::time::sleep(Duration::from_secs(5)).await;
    // It reads and writes everything but leases.
    a.cut_off.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(30)).await;
    a.cut_off.store(false, Ordering::SeqCst);
    b.cut_off.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(30)).await;
    for (vpa, of) in writers(&log) {
        assert_eq!(of, ["a", "b", "a"], "{vpa}");
    }
    let log = log.lock().unwrap();
    let last = |process| log.iter().rev().find(|(by, ..)| *by == process).unwrap().2;
    let first = |process| log.iter().find(|(by, ..)| *by == process).unwrap().2;
    assert!(first("b") < last("a"));
}

#[tokio::test(start_paused = true)]
async fn a_vpa_that_comes_back_to_a_process_has_what_the_other_counted() {
    let (bed, log) = (bed().await, Log::default());
    let a = Process::start(&bed, "a", 1, &log);
    all_follow(&bed, 100).await;
    let b = Process::start(&bed, "b", 1, &log);
    tokio::time::sleep(Duration::from_secs(5)).await;
    a.cut_off.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let samples = async || {
        let checkpoint = bed.checkpoints().get("web-0-app").await.unwrap();
        checkpoint.status.unwrap().total_samples_count
    };
    let counted = samples().await;
    a.cut_off.store(false, Ordering::SeqCst);
    b.crash();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let after = samples().await;
    // Each counts one a second: the sum has neither gaps of a minute nor anything twice.
    assert!(after > counted && after <= counted + 31, "{counted} then {after}");
    drop(a);
}

/// How many shards each process holds.
async fn shares(bed: &Bed) -> BTreeMap<String, usize> {
    let leases: kube::Api<Lease> = kube::Api::namespaced(bed.client.clone(), "kube-system");
    let mut shares = BTreeMap::new();
    for lease in leases.list(&ListParams::default()).await.unwrap() {
        let is_replica = lease.metadata.labels.is_some_and(|labels| labels.contains_key(REPLICAS_LABEL));
        if let Some(holder) = lease.spec.and_then(|spec| spec.holder_identity).filter(|_| !is_replica) {
            *shares.entry(holder).or_default() += 1;
        }
    }
    shares
}

/// Waits until each of these processes holds so many shards, and no other any.
async fn until_shares(bed: &Bed, expected: &[(&str, usize)]) {
    let expected: BTreeMap<String, usize> =
        expected.iter().map(|(process, count)| ((*process).to_owned(), *count)).collect();
    let since = Instant::now();
    while shares(bed).await != expected {
        assert!(since.elapsed() < TAKE_OVER, "{:?}", shares(bed).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn shards_are_divided_anew_when_processes_come_and_go() {
    let (bed, log) = (bed().await, Log::default());
    let a = Process::start(&bed, "a", SHARDS, &log);
    until_shares(&bed, &[("a", 4)]).await;
    all_follow(&bed, 100).await;
    let b = Process::start(&bed, "b", SHARDS, &log);
    until_shares(&bed, &[("a", 2), ("b", 2)]).await;
    all_follow(&bed, 1_000).await;
    let c = Process::start(&bed, "c", SHARDS, &log);
    let since = Instant::now();
    while shares(&bed).await.get("c") != Some(&1) {
        assert!(since.elapsed() < TAKE_OVER);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    all_follow(&bed, 5_000).await;
    // A VPA that changed hands did so once at a time, and no process came back to it.
    for (vpa, of) in writers(&log) {
        let mut once = of.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), of.len(), "{vpa}: {of:?}");
    }
    c.crash();
    until_shares(&bed, &[("a", 2), ("b", 2)]).await;
    b.shut_down().await;
    until_shares(&bed, &[("a", 4)]).await;
    // The lease of a process that ended as asked is gone.
    let leases: kube::Api<Lease> = kube::Api::namespaced(bed.client.clone(), "kube-system");
    let replicas = leases.list(&ListParams::default().labels(REPLICAS_LABEL)).await.unwrap();
    assert_eq!(replicas.items.len(), 2, "a's, and c's, which crashed");
    all_follow(&bed, 50_000).await;
    drop(a);
}

#[tokio::test(start_paused = true)]
async fn a_kill_that_is_in_no_checkpoint_yet_counts_after_a_take_over() {
    let (bed, log) = (Bed::with_web().await, Log::default());
    allow_leases(&bed).await;
    let a = Process::start(&bed, "a", 2, &log);
    until_shares(&bed, &[("a", 2)]).await;
    let clock = virtual_clock("2026-01-01T00:00:00Z".parse().unwrap());
    let at = clock.now();
    let killed = json!({ "phase": "Running", "containerStatuses": [{
        "name": "app", "ready": true, "image": "plumb/load", "imageID": "", "restartCount": 1,
        "state": { "running": { "startedAt": at } },
        "lastState": { "terminated": {
            "exitCode": 137, "reason": "OOMKilled", "finishedAt": at, "startedAt": at,
        } },
    }] });
    bed.pod_status("default", "web-1", killed).await;
    let raised = |vpa: &VerticalPodAutoscaler| {
        targets(vpa).get("app").is_some_and(|target| target.ends_with("/628694953"))
    };
    until(&bed.vpas(), "web", raised).await;
    let b = Process::start(&bed, "b", 2, &log);
    until_shares(&bed, &[("a", 1), ("b", 1)]).await;
    a.crash();
    until_shares(&bed, &[("b", 2)]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(raised(&bed.get("web").await), "{:?}", bed.targets("web").await);
    drop(b);
}

proptest! {
    #[test]
    fn shards_are_assigned_evenly_and_stay_where_they_are_if_they_can(
        replicas in prop::collection::btree_set("[a-f]{1,2}", 0..8),
        holders in prop::collection::vec(prop::option::of("[a-f]{1,2}"), 0..20),
    ) {
        let replicas: Vec<&str> = replicas.iter().map(String::as_str).collect();
        let holders: Vec<Option<&str>> = holders.iter().map(Option::as_deref).collect();
        let assigned = assign(&replicas, &holders);
        prop_assert_eq!(assigned.len(), holders.len());
        let backwards: Vec<&str> = replicas.iter().rev().copied().collect();
        prop_assert_eq!(&assigned, &assign(&backwards, &holders));
        if replicas.is_empty() {
            prop_assert!(assigned.iter().all(Option::is_none));
            return Ok(());
        }
        prop_assert!(assigned.iter().all(|to| to.is_some_and(|to| replicas.contains(&to))));
        let count = |of: &[Option<&str>], replica: &str| of.iter().filter(|to| **to == Some(replica)).count();
        let (each, more) = (holders.len() / replicas.len(), holders.len() % replicas.len());
        for replica in &replicas {
            let (before, after) = (count(&holders, replica), count(&assigned, replica));
            prop_assert!(after == each || (more > 0 && after == each + 1));
            let stays = holders.iter().zip(&assigned).filter(|(from, to)| from == to && **to == Some(replica));
            prop_assert!(stays.count() >= before.min(each));
        }
        // Once it is so, it stays so.
        prop_assert_eq!(&assigned, &assign(&replicas, &assigned));
    }

    #[test]
    fn every_vpa_is_in_exactly_one_shard_in_every_process(
        namespace in "[a-z]{1,8}", name in "[a-z0-9-]{1,20}", shards in 1..64_u32,
    ) {
        let key = VpaKey::new(&namespace, &name);
        let shard = shard_of(&key, shards);
        prop_assert!(shard < shards);
        prop_assert_eq!(shard, shard_of(&key.clone(), shards));
    }
}

#[test]
fn vpas_are_spread_over_the_shards() {
    let mut counts = [0; 8];
    for index in 0..8_000 {
        counts[shard_of(&VpaKey::new("team", &format!("web-{index}")), 8) as usize] += 1;
    }
    assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    // Another version must not divide them otherwise.
    assert_eq!(shard_of(&VpaKey::new("default", "web"), 8), 3);
}
