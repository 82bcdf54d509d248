//! Electors on an API server in this process, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use http::Uri;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use parking_lot::Mutex;
use plumb_controller_runtime::events::{EventRecorder, RecorderConfig};
use plumb_controller_runtime::leader::{Durations, LeaderConfig, LeaderConfigError, LeaderElector};
use plumb_controller_runtime::metrics::Metrics;
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, event, until};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The observed events, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// Work that logs when it begins and when it is dropped.
struct Working {
    log: Log,
    identity: String,
}

impl Working {
    fn start(log: &Log, identity: &str) -> Self {
        log.lock().push(format!("{identity} begins"));
        Self { log: log.clone(), identity: identity.to_owned() }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.log.lock().push(format!("{} ends", self.identity));
    }
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Option<()>>,
    state: tokio::sync::watch::Receiver<plumb_controller_runtime::leader::LeaderState>,
    metrics: Metrics,
    supervisor: Supervisor,
}

impl Running {
    fn start(client: Client, lease: &str, identity: &str, log: &Log) -> Self {
        Self::start_candidate(client, lease, identity, None, log)
    }

    fn start_candidate(
        client: Client,
        lease: &str,
        identity: &str,
        is_candidate: Option<watch::Receiver<bool>>,
        log: &Log,
    ) -> Self {
        let (metrics, supervisor) = (Metrics::default(), Supervisor::default());
        let config = LeaderConfig {
            metrics: metrics.clone(),
            supervisor: supervisor.clone(),
            is_candidate,
            ..LeaderConfig::new("default", lease, identity)
        };
        let elector = LeaderElector::new(client, config).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (log, identity, state) = (log.clone(), identity.to_owned(), elector.state());
        let task = tokio::spawn(async move {
            let work = || async {
                let _working = Working::start(&log, &identity);
                std::future::pending::<()>().await;
            };
            let stopped = async {
                drop(stopped.await);
            };
            elector.run(stopped, work).await
        });
        Self { stop, task, state, metrics, supervisor }
    }

    async fn until_leads(&mut self, leads: bool) {
        let is_so = self.state.wait_for(|state| state.is_leader() == leads);
        tokio::time::timeout(Duration::from_mins(2), is_so).await.unwrap().unwrap();
        // The work begins or ends with the same change.
        while self.metrics.leader("shard").is_leader() != leads {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        assert_eq!(self.task.await.unwrap(), None);
    }
}

fn leases(cluster: &TestCluster) -> Api<Lease> {
    Api::default_namespaced(cluster.admin())
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

#[tokio::test(start_paused = true)]
async fn one_works_and_the_other_takes_over_as_soon_as_the_lease_is_released() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let mut a = Running::start(cluster.admin(), "shard", "a", &log);
    a.until_leads(true).await;
    let mut b = Running::start(cluster.admin(), "shard", "b", &log);
    let known = b.state.wait_for(|state| state.holder.as_deref() == Some("a")).await.unwrap().clone();
    assert!(!known.is_leader());
    // Long after the lease would have expired.
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(*log.lock(), ["a begins"]);
    assert_eq!((a.metrics.leader("shard").is_leader(), b.metrics.leader("shard").is_leader()), (true, false));
    let first = leases(&cluster).get("shard").await.unwrap().spec.unwrap();
    assert_eq!((first.lease_duration_seconds, first.lease_transitions), (Some(15), Some(0)));
    assert!(first.renew_time > first.acquire_time);

    a.stop().await;
    let released = leases(&cluster).get("shard").await.unwrap();
    let spec = released.spec.as_ref().unwrap();
    assert_eq!((holder(&released), spec.lease_duration_seconds), (None, Some(1)));
    let began = Instant::now();
    b.until_leads(true).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let taken = until(&leases(&cluster), "shard", |lease| holder(lease) == Some("b")).await;
    assert_eq!(taken.spec.unwrap().lease_transitions, Some(1));
    b.stop().await;
    assert_eq!(*log.lock(), ["a begins", "a ends", "b begins", "b ends"]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_another_takes_over_and_may_lead_again() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let cut: Arc<AtomicBool> = Arc::default();
    let cut_off = cut.clone();
    let client = cluster.intercepted("admin", ["system:masters"], move |uri: &mut Uri| {
        if cut_off.load(SeqCst) {
            *uri = Uri::from_static("/nowhere");
        }
    });
    let mut a = Running::start(client, "shard", "a", &log);
    a.until_leads(true).await;
    let mut b = Running::start(cluster.admin(), "shard", "b", &log);
    b.state.wait_for(|state| state.holder.as_deref() == Some("a")).await.unwrap();
    cut.store(true, SeqCst);
    let began = Instant::now();
    a.until_leads(false).await;
    let passed = began.elapsed();
    assert!((8..=10).contains(&passed.as_secs()), "{passed:?}");
    assert_eq!(*log.lock(), ["a begins", "a ends"]);
    b.until_leads(true).await;
    let passed = began.elapsed();
    assert!((13..20).contains(&passed.as_secs()), "{passed:?}");
    cut.store(false, SeqCst);
    a.state.wait_for(|state| state.holder.as_deref() == Some("b")).await.unwrap();
    b.stop().await;
    a.until_leads(true).await;
    a.stop().await;
    let order = ["a begins", "a ends", "b begins", "b ends", "a begins", "a ends"];
    assert_eq!(*log.lock(), order);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_no_longer_a_candidate_ends_its_work_before_it_releases_the_lease() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let (candidacy, is_candidate) = watch::channel(false);
    let mut a = Running::start_candidate(cluster.admin(), "shard", "a", Some(is_candidate), &log);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(leases(&cluster).get_opt("shard").await.unwrap().is_none(), "it is no candidate");
    candidacy.send_replace(true);
    let began = Instant::now();
    a.until_leads(true).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let mut b = Running::start(cluster.admin(), "shard", "b", &log);
    b.state.wait_for(|state| state.holder.as_deref() == Some("a")).await.unwrap();
    candidacy.send_replace(false);
    b.until_leads(true).await;
    assert!(!a.metrics.leader("shard").is_leader());
    // It continues to observe, and acquires a lease at once that has expired when it is a candidate again.
    a.state.wait_for(|state| state.holder.as_deref() == Some("b")).await.unwrap();
    b.task.abort();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(holder(&leases(&cluster).get("shard").await.unwrap()), Some("b"));
    candidacy.send_replace(true);
    let began = Instant::now();
    a.until_leads(true).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    a.stop().await;
    assert_eq!(*log.lock(), ["a begins", "a ends", "b begins", "b ends", "a begins", "a ends"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_released_while_something_only_the_leader_does_is_under_way() {
    let cluster = TestCluster::start();
    let (candidacy, is_candidate) = watch::channel(true);
    let config =
        LeaderConfig { is_candidate: Some(is_candidate), ..LeaderConfig::new("default", "shard", "a") };
    let elector = LeaderElector::new(cluster.admin(), config).unwrap();
    let (mut state, working) = (elector.state(), elector.working());
    let running =
        tokio::spawn(async move { elector.run(std::future::pending(), std::future::pending::<()>).await });
    state.wait_for(plumb_controller_runtime::leader::LeaderState::is_leader).await.unwrap();
    let writing = working.read().await;
    candidacy.send_replace(false);
    state.wait_for(|state| state.leads_until.is_none()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(holder(&leases(&cluster).get("shard").await.unwrap()), Some("a"));
    drop(writing);
    until(&leases(&cluster), "shard", |lease| holder(lease).is_none()).await;
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn each_lease_has_a_leader_of_its_own() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let mut shards = Vec::new();
    for number in 0..3 {
        let lease = format!("shard-{number}");
        let mut first = Running::start(cluster.admin(), &lease, &format!("a{number}"), &log);
        first.state.wait_for(plumb_controller_runtime::leader::LeaderState::is_leader).await.unwrap();
        let second = Running::start(cluster.admin(), &lease, &format!("b{number}"), &log);
        shards.push((first, second));
    }
    let (first, mut second) = shards.remove(1);
    first.stop().await;
    second.state.wait_for(plumb_controller_runtime::leader::LeaderState::is_leader).await.unwrap();
    for (number, wanted) in ["a0", "b1", "a2"].into_iter().enumerate() {
        let lease = leases(&cluster).get(&format!("shard-{number}")).await.unwrap();
        assert_eq!(holder(&lease), Some(wanted));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_task_is_killed_stays_the_leader() {
    let (cluster, log) = (TestCluster::start(), Log::default());
    let mut a = Running::start(cluster.admin(), "shard", "a", &log);
    a.until_leads(true).await;
    let before = leases(&cluster).get("shard").await.unwrap().spec.unwrap();
    assert!(a.supervisor.abort("leader-election/shard"));
    let renewed = until(&leases(&cluster), "shard", |lease| {
        lease.spec.as_ref().unwrap().renew_time > before.renew_time
    })
    .await;
    let after = renewed.spec.unwrap();
    assert_eq!((&after.acquire_time, after.lease_transitions), (&before.acquire_time, Some(0)));
    a.stop().await;
    assert_eq!(*log.lock(), ["a begins", "a ends"]);
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_by_itself_ends_the_election_and_the_lease_names_the_last_leader() {
    let cluster = TestCluster::start();
    let recorder =
        EventRecorder::start(RecorderConfig::new(cluster.admin(), "updater", &Supervisor::default()));
    let config = LeaderConfig { recorder: Some(recorder), ..LeaderConfig::new("default", "once", "a") };
    let elector = LeaderElector::new(cluster.admin(), config).unwrap();
    assert_eq!(elector.run(std::future::pending(), || async { 7 }).await, Some(7));
    assert!(!elector.state().borrow().is_leader());
    assert_eq!(holder(&leases(&cluster).get("once").await.unwrap()), None);
    let said = event(&cluster.admin(), "once", "LeaderElection", 1).await;
    assert!(["a became leader", "a stopped leading"].contains(&said.message.as_deref().unwrap()), "{said:?}");
}

#[test]
fn durations_that_would_allow_two_leaders_are_refused() {
    let second = Duration::from_secs;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    let cluster = TestCluster::start();
    for (lease, renew_deadline, retry_period, is_fine) in [
        (second(15), second(10), second(2), true),
        (second(10), second(10), second(2), false),
        (Duration::from_millis(10_500), Duration::from_millis(10_200), second(2), false),
        (second(15), second(10), Duration::from_millis(8_400), false),
        (second(15), second(10), Duration::ZERO, false),
    ] {
        let durations = Durations { lease, renew_deadline, retry_period };
        let config = LeaderConfig { durations, ..LeaderConfig::new("default", "l", "me") };
        assert_eq!(LeaderElector::new(cluster.admin(), config).is_ok(), is_fine, "{durations:?}");
    }
    let nameless = LeaderElector::new(cluster.admin(), LeaderConfig::new("default", "l", ""));
    assert_eq!(nameless.unwrap_err(), LeaderConfigError::NoIdentity);
}
