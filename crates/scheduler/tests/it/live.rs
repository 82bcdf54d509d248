//! The scheduler with the permissions of its role, on an API server in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_kinds::admission_plugins;
use plumb_resize::rules::Rules;
use plumb_scheduler::{Config, Metrics, Settings, USER};
use plumb_supervise::{Exponential, Health, Policy, Supervisor};
use plumb_testkit::{Options, TestCluster, event, eventually, until};
use serde_json::json;
use tokio::task::JoinSet;

use super::cluster::{node, pod};

struct Live {
    pods: Api<Pod>,
    nodes: Api<Node>,
    client: Client,
    metrics: Arc<Metrics>,
    supervisor: Supervisor,
    _running: JoinSet<()>,
}

impl Live {
    fn start() -> Self {
        Self::start_with(|_| {}, Timestamp::now)
    }

    /// Starts a cluster whose scheduler has a wall clock of its own. `fault` gets the URL of each request before it is sent,
    /// and may panic.
    fn start_with(
        fault: impl Fn(&str) + Clone + Send + Sync + 'static,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Self {
        Self::supervised(Supervisor::default(), Settings::new(Rules::kep()), fault, clock)
    }

    /// Starts the scheduler with a supervisor and settings.
    fn supervised(
        supervisor: Supervisor,
        settings: Settings,
        fault: impl Fn(&str) + Clone + Send + Sync + 'static,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Self {
        let plugins = admission_plugins("", "ServiceAccount,TaintNodesByCondition").unwrap();
        let cluster = TestCluster::with(Options { rules: Rules::kep(), plugins, ..Options::default() });
        let metrics: Arc<Metrics> = Arc::default();
        let mut running = JoinSet::new();
        let none: [&str; 0] = [];
        running.spawn(plumb_scheduler::run(Config {
            supervisor: supervisor.clone(),
            client: cluster.intercepted(USER, none, move |uri| fault(uri.path())),
            settings,
            clock: Arc::new(clock),
            metrics: metrics.clone(),
        }));
        let client = cluster.admin();
        Self {
            pods: Api::default_namespaced(client.clone()),
            nodes: Api::all(client.clone()),
            client,
            metrics,
            supervisor,
            _running: running,
        }
    }

    async fn add_node(&self, name: &str, cores: i64) {
        let made = node(name, cores, "a");
        let status = json!({ "status": made.status });
        self.nodes.create(&PostParams::default(), &made).await.unwrap();
        self.nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    async fn create(&self, mut pod: Pod) {
        pod.metadata.uid = None;
        for container in &mut pod.spec.as_mut().unwrap().containers {
            container.image = Some("i".to_owned());
        }
        self.pods.create(&PostParams::default(), &pod).await.unwrap();
    }

    /// Waits until a pod is as it should be.
    async fn until(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        until(&self.pods, name, wanted).await
    }

    /// Waits for an event about a pod, and returns its message.
    async fn event(&self, pod: &str, reason: &str) -> Event {
        event(&self.client, pod, reason, 1).await
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn scheduled(pod: &Pod) -> Option<&k8s_openapi::api::core::v1::PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|one| one.type_ == "PodScheduled")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_node_gets_one_and_clients_can_read_it() {
    let live = Live::start();
    live.add_node("n1", 2).await;
    live.create(pod("p", 1500, json!({}))).await;
    let bound = live.until("p", |pod| node_of(pod).is_some()).await;
    assert_eq!(node_of(&bound), Some("n1"));
    assert_eq!(scheduled(&bound).unwrap().status, "True");
    let event = live.event("p", "Scheduled").await;
    assert_eq!(event.message.as_deref(), Some("Successfully assigned default/p to n1"));
    assert_eq!(event.reporting_component.as_deref(), Some("default-scheduler"));

    live.create(pod("q", 1000, json!({}))).await;
    let refused = live.until("q", |pod| scheduled(pod).is_some()).await;
    let condition = scheduled(&refused).unwrap();
    let why = "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. \
               preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("False", Some("Unschedulable")));
    assert_eq!(condition.message.as_deref(), Some(why));
    assert_eq!(live.event("q", "FailedScheduling").await.message.as_deref(), Some(why));

    live.add_node("n2", 2).await;
    let bound = live.until("q", |pod| node_of(pod).is_some()).await;
    assert_eq!(node_of(&bound), Some("n2"));
    let mut text = plumb_metrics::Text::default();
    live.metrics.render(&mut text);
    let text = text.finish();
    let line = "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"unschedulable\"} ";
    assert!(text.contains(line), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_selector_chooses_the_node() {
    let live = Live::start();
    for name in ["n1", "n2", "n3"] {
        live.add_node(name, 2).await;
    }
    let overrides = json!({ "spec": { "nodeSelector": { "disk": "ssd" } } });
    live.create(pod("p", 100, overrides.clone())).await;
    let refused = live.until("p", |pod| scheduled(pod).is_some()).await;
    assert_eq!(scheduled(&refused).unwrap().reason.as_deref(), Some("Unschedulable"));
    let label = Patch::Merge(json!({ "metadata": { "labels": { "disk": "ssd" } } }));
    live.nodes.patch("n2", &PatchParams::default(), &label).await.unwrap();
    for name in ["p", "q"] {
        if name == "q" {
            live.create(pod(name, 100, overrides.clone())).await;
        }
        let bound = live.until(name, |pod| node_of(pod).is_some()).await;
        assert_eq!(node_of(&bound), Some("n2"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_higher_priority_has_another_evicted() {
    let live = Live::start();
    live.add_node("n1", 2).await;
    live.create(pod("low", 2000, json!({}))).await;
    live.until("low", |pod| node_of(pod).is_some()).await;
    let critical = json!({ "spec": { "priorityClassName": "system-cluster-critical" } });
    live.create(pod("high", 2000, critical)).await;
    let leaving = live.until("low", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    let conditions = leaving.status.unwrap().conditions.unwrap();
    let target = conditions.iter().find(|one| one.type_ == "DisruptionTarget").unwrap();
    assert_eq!(target.reason.as_deref(), Some("PreemptionByScheduler"));
    assert_eq!(
        target.message.as_deref(),
        Some("default-scheduler: preempting to accommodate a higher priority pod")
    );
    let high = live.until("high", |pod| {
        pod.status.as_ref().is_some_and(|status| status.nominated_node_name.as_deref() == Some("n1"))
    });
    let high = high.await;
    let said = live.event("low", "Preempted").await.message.unwrap();
    assert_eq!(said, format!("Preempted by pod {} on node n1", high.metadata.uid.unwrap()));
    // As its node reports once the pod has ended.
    live.pods.delete("low", &DeleteParams::default().grace_period(0)).await.unwrap();
    live.until("high", |pod| node_of(pod).is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_are_bound_and_no_node_gets_more_than_it_has() {
    let live = Live::start();
    for i in 0..5 {
        live.add_node(&format!("n{i}"), 4).await;
    }
    for i in 0..50 {
        live.create(pod(&format!("p{i}"), 500, json!({}))).await;
    }
    // Forty pods fit, and the scheduler reports the others as unschedulable.
    eventually(async || {
        let pods = live.pods.list(&ListParams::default()).await.unwrap().items;
        let (bound, unbound): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| node_of(pod).is_some());
        bound.len() == 40 && unbound.iter().all(|pod| scheduled(pod).is_some())
    })
    .await;
    let pods = live.pods.list(&ListParams::default()).await.unwrap().items;
    for i in 0..5 {
        let name = format!("n{i}");
        assert_eq!(pods.iter().filter(|pod| node_of(pod) == Some(&name)).count(), 8);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_binding_panics_is_bound_in_the_end() {
    let first = Arc::new(AtomicBool::new(true));
    let panics = move |path: &str| {
        assert!(!path.ends_with("/binding") || !first.swap(false, SeqCst), "the first binding panics");
    };
    let live = Live::start_with(panics, Timestamp::now);
    live.add_node("n1", 2).await;
    live.create(pod("p", 1500, json!({}))).await;
    live.until("p", |pod| node_of(pod).is_some()).await;
    assert_eq!((live.supervisor.panics("scheduler"), live.supervisor.restarts("scheduler")), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_backs_off_is_retried_although_the_wall_clock_is_set_back() {
    let first = Arc::new(AtomicBool::new(true));
    let is_back = Arc::new(AtomicBool::new(false));
    let panics = move |path: &str| {
        assert!(!path.ends_with("/binding") || !first.swap(false, SeqCst), "the first binding panics");
    };
    let set_back = is_back.clone();
    let clock = move || {
        let hours = i64::from(set_back.load(SeqCst));
        Timestamp::now() - jiff::SignedDuration::from_hours(hours)
    };
    let live = Live::start_with(panics, clock);
    live.add_node("n1", 2).await;
    live.create(pod("p", 1500, json!({}))).await;
    let failed = "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"error\"} 1";
    eventually(async || {
        let mut text = plumb_metrics::Text::default();
        live.metrics.render(&mut text);
        text.finish().contains(failed)
    })
    .await;
    is_back.store(true, SeqCst);
    live.until("p", |pod| node_of(pod).is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_at_which_the_scheduler_panics_is_set_aside_and_others_are_scheduled() {
    let fault = |pod: &str| assert_ne!(pod, "faulty", "an injected fault");
    let settings = Settings { fault: Some(fault), ..Settings::new(Rules::kep()) };
    let live = Live::supervised(Supervisor::default(), settings, |_| {}, Timestamp::now);
    live.add_node("n1", 4).await;
    live.create(pod("faulty", 1000, json!({}))).await;
    live.create(pod("p", 1000, json!({}))).await;
    live.until("p", |pod| node_of(pod) == Some("n1")).await;
    let event = live.event("faulty", "FailedScheduling").await;
    let message = event.message.unwrap_or_default();
    assert!(message.contains("panicked") && message.contains("after 10 minutes"), "{message}");
    // A change of the pod does not cause the panic again.
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    live.pods.patch("faulty", &PatchParams::default(), &labels).await.unwrap();
    live.create(pod("q", 1000, json!({}))).await;
    live.until("q", |pod| node_of(pod) == Some("n1")).await;
    assert_eq!(live.supervisor.panics("scheduler"), 1);
    let mut text = plumb_metrics::Text::default();
    live.metrics.render(&mut text);
    assert!(text.finish().contains("plumb_scheduler_pods_set_aside_total 1"));
}

/// Each task of the scheduler is killed in turn; pods are scheduled afterwards, and those that were unschedulable meanwhile are
/// not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_whose_tasks_are_aborted_continues() {
    let live = Live::start();
    live.add_node("n0", 2).await;
    live.create(pod("waits", 4000, json!({}))).await;
    live.until("waits", |pod| scheduled(pod).is_some()).await;
    let tasks: Vec<String> = live.supervisor.tasks().into_iter().map(|task| task.name).collect();
    let informers = [
        "csidrivers",
        "csinodes",
        "csistoragecapacities",
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "persistentvolumes",
        "poddisruptionbudgets",
        "pods",
        "storageclasses",
    ];
    let informers = informers.map(|kind| format!("scheduler-informer/{kind}"));
    let wanted =
        ["event-recorder/default-scheduler", "scheduler"].map(str::to_owned).into_iter().chain(informers);
    assert_eq!(tasks, wanted.collect::<Vec<_>>());
    for (number, task) in tasks.iter().enumerate() {
        let before = live.supervisor.restarts(task);
        assert!(live.supervisor.abort(task), "{task}");
        let name = format!("p{number}");
        live.create(pod(&name, 100, json!({}))).await;
        live.until(&name, |pod| node_of(pod).is_some()).await;
        live.event(&name, "Scheduled").await;
        assert!(live.supervisor.restarts(task) > before, "{task}");
    }
    live.add_node("n1", 8).await;
    live.until("waits", |pod| node_of(pod).is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn informers_and_event_recorder_outlive_the_scheduling_loop() {
    // The aborted loop is not restarted before the test ends.
    let never = Exponential::new(Duration::from_hours(1), Duration::from_hours(1));
    let supervisor = Supervisor::new(Policy { delays: never, ..Policy::default() });
    let live = Live::supervised(supervisor, Settings::new(Rules::kep()), |_| {}, Timestamp::now);
    live.add_node("n1", 2).await;
    live.create(pod("p", 1500, json!({}))).await;
    live.until("p", |pod| node_of(pod).is_some()).await;
    let health = |task: &str| {
        let task = live.supervisor.tasks().into_iter().find(|one| one.name == task);
        task.map(|task| task.health)
    };
    assert!(live.supervisor.abort("scheduler"));
    eventually(async || matches!(health("scheduler"), Some(Health::Waiting { .. }))).await;
    for task in [
        "event-recorder/default-scheduler",
        "scheduler-informer/namespaces",
        "scheduler-informer/nodes",
        "scheduler-informer/poddisruptionbudgets",
        "scheduler-informer/pods",
    ] {
        assert_eq!(health(task), Some(Health::Running), "{task}");
        assert_eq!(live.supervisor.restarts(task), 0, "{task}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_scheduling_loop_recovers_what_nodes_have_free() {
    let live = Live::start();
    live.add_node("n1", 2).await;
    live.create(pod("bound", 1500, json!({}))).await;
    live.until("bound", |pod| node_of(pod).is_some()).await;
    assert!(live.supervisor.abort("scheduler"));
    eventually(async || live.supervisor.restarts("scheduler") == 1).await;
    live.create(pod("large", 1500, json!({}))).await;
    live.create(pod("small", 500, json!({}))).await;
    live.until("small", |pod| node_of(pod) == Some("n1")).await;
    let refused = live.until("large", |pod| scheduled(pod).is_some()).await;
    assert_eq!((node_of(&refused), scheduled(&refused).unwrap().status.as_str()), (None, "False"));
}
