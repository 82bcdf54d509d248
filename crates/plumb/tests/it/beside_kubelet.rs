//! The same pods under our agent and under the real kubelet, each on a containerd of the same program and configuration:
//! what both leave in cgroups, conditions, container statuses and events, step by step. A kubelet removes the pods of its
//! containerd that are not its own, so the two cannot share one process of it. `.ci/kubernetes` runs this.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_conformance::{Figure, Group};
use plumb_testbed::BUSYBOX;
use plumb_testkit::{TIMEOUT, until, until_gone};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::containerd::Site;

/// The pod that takes of the node what a scenario says.
const OTHER: &str = "other";
/// Reasons of the events that only Plumb emits (docs/node.md).
const ADDITIONS: [&str; 1] = ["ResizeWaits"];
/// How often both sides are looked at until they are the same.
const POLL: Duration = Duration::from_millis(100);

/// A pod and what is asked of it, one resize after the other.
#[derive(Default)]
struct Scenario {
    name: &'static str,
    /// The CPU request of another pod that is on the node meanwhile.
    beside: Option<&'static str>,
    containers: Value,
    steps: Vec<Step>,
}

/// A resize, by container, and what it comes to.
struct Step {
    to: Vec<(&'static str, Value)>,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Applied,
    /// `PodResizePending` with this reason.
    Pending(&'static str),
}

fn resources(requests: [&str; 2], limits: [&str; 2]) -> Value {
    let list = |[cpu, memory]: [&str; 2]| {
        let named = [("cpu", cpu), ("memory", memory)].into_iter().filter(|(_, amount)| !amount.is_empty());
        named.map(|(name, amount)| (name.to_owned(), json!(amount))).collect::<serde_json::Map<_, _>>()
    };
    let mut all = serde_json::Map::new();
    for (name, list) in [("requests", list(requests)), ("limits", list(limits))] {
        if !list.is_empty() {
            all.insert(name.to_owned(), list.into());
        }
    }
    all.into()
}

fn equal(cpu: &str, memory: &str) -> Value {
    resources([cpu, memory], [cpu, memory])
}

fn container(name: &str, resources: &Value) -> Value {
    json!({
        "name": name, "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": ["sleep", "infinity"],
        "resources": resources,
    })
}

fn applied(to: &[(&'static str, Value)]) -> Step {
    Step { to: to.to_vec(), outcome: Outcome::Applied }
}

fn scenarios() -> Vec<Scenario> {
    let restarts = |resource: &str, name: &str, resources: &Value| {
        let mut made = container(name, resources);
        made["resizePolicy"] = json!([{ "resourceName": resource, "restartPolicy": "RestartContainer" }]);
        made
    };
    vec![
        Scenario {
            name: "guaranteed",
            containers: json!([container("main", &equal("100m", "64Mi"))]),
            steps: vec![
                applied(&[("main", equal("300m", "128Mi"))]),
                applied(&[("main", equal("200m", "96Mi"))]),
                applied(&[("main", equal("100m", "128Mi"))]),
            ],
            ..Scenario::default()
        },
        Scenario {
            name: "burstable",
            containers: json!([container("main", &resources(["100m", "32Mi"], ["200m", "64Mi"]))]),
            steps: vec![
                applied(&[("main", resources(["150m", "32Mi"], ["300m", "64Mi"]))]),
                applied(&[("main", resources(["50m", "16Mi"], ["100m", "128Mi"]))]),
                applied(&[("main", resources(["2m", "16Mi"], ["10m", "64Mi"]))]),
            ],
            ..Scenario::default()
        },
        Scenario {
            name: "requests-only",
            containers: json!([container("main", &resources(["100m", ""], ["", ""]))]),
            steps: vec![applied(&[("main", resources(["250m", "16Mi"], ["", ""]))])],
            ..Scenario::default()
        },
        Scenario {
            name: "best-effort",
            containers: json!([container("main", &json!({}))]),
            steps: Vec::new(),
            ..Scenario::default()
        },
        Scenario {
            name: "three-containers",
            containers: json!([
                container("a", &equal("100m", "64Mi")),
                container("b", &equal("100m", "64Mi")),
                container("c", &resources(["50m", "32Mi"], ["", ""])),
            ]),
            steps: vec![
                applied(&[("a", equal("200m", "32Mi")), ("b", equal("50m", "128Mi"))]),
                applied(&[("c", resources(["150m", "48Mi"], ["", ""]))]),
            ],
            ..Scenario::default()
        },
        Scenario {
            name: "restarts-on-memory",
            containers: json!([
                restarts("memory", "main", &equal("100m", "64Mi")),
                container("other", &equal("100m", "64Mi")),
            ]),
            steps: vec![
                applied(&[("main", equal("150m", "64Mi"))]),
                applied(&[("main", equal("150m", "128Mi"))]),
            ],
            ..Scenario::default()
        },
        Scenario {
            name: "deferred",
            beside: Some("1"),
            containers: json!([container("main", &resources(["100m", ""], ["", ""]))]),
            steps: vec![
                Step {
                    to: vec![("main", resources(["1500m", ""], ["", ""]))],
                    outcome: Outcome::Pending("Deferred"),
                },
                applied(&[("main", resources(["200m", ""], ["", ""]))]),
            ],
        },
    ]
}

/// A cluster of the two.
struct Side {
    name: &'static str,
    node: String,
    pods: Api<Pod>,
    events: Api<Event>,
}

impl Side {
    fn new(name: &'static str, node: &str, client: &Client) -> Self {
        Self {
            name,
            node: node.to_owned(),
            pods: Api::default_namespaced(client.clone()),
            events: Api::default_namespaced(client.clone()),
        }
    }

    async fn create(&self, scenario: &Scenario) {
        if let Some(cpu) = scenario.beside {
            let large = resources([cpu, ""], ["", ""]);
            self.run(OTHER, &json!([container("main", &large)])).await;
        }
        self.run(scenario.name, &scenario.containers).await;
    }

    async fn run(&self, name: &str, containers: &Value) {
        let pod = json!({
            "metadata": { "name": name },
            "spec": {
                "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "dnsPolicy": "Default",
                "tolerations": [{ "operator": "Exists", "effect": "NoSchedule" }],
                "containers": containers,
            },
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.pods.create(&PostParams::default(), &pod).await.unwrap();
        self.settled(name, Outcome::Applied).await;
    }

    async fn resize(&self, pod: &str, step: &Step) {
        let containers: Vec<Value> =
            step.to.iter().map(|(name, to)| json!({ "name": name, "resources": to })).collect();
        let patch = json!({ "spec": { "containers": containers } });
        self.pods.patch_resize(pod, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
        self.settled(pod, step.outcome).await;
    }

    /// Waits until the node has done with a pod what it will.
    async fn settled(&self, name: &str, outcome: Outcome) {
        until(self.pods.clone(), name, |pod: &Pod| is_settled(pod, outcome)).await;
    }

    async fn delete(&self, scenario: &Scenario) {
        for pod in [Some(scenario.name), scenario.beside.map(|_| OTHER)].into_iter().flatten() {
            self.pods.delete(pod, &DeleteParams::default()).await.unwrap();
            until_gone::<Pod>(self.pods.clone(), pod).await;
        }
    }

    /// What the node has left of a pod so far, a line for each fact.
    async fn facts(&self, name: &str) -> Vec<String> {
        let pod = self.pods.get(name).await.unwrap();
        let mut facts = cgroups(&pod);
        facts.extend(statuses(&pod));
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let mut events = self.events.list(&about).await.unwrap().items;
        events.retain(|event| !event.reason.as_deref().is_some_and(|reason| ADDITIONS.contains(&reason)));
        events.sort_by_key(|event| event.metadata.resource_version.as_ref().map(|at| (at.len(), at.clone())));
        let last: BTreeMap<&str, usize> =
            events.iter().enumerate().filter_map(|(at, event)| Some((completed(event)?, at))).collect();
        let is_last = |(at, event): &(usize, &Event)| completed(event).is_none_or(|of| last[of] == *at);
        facts.extend(events.iter().enumerate().filter(is_last).map(|(_, event)| self.event(event)));
        facts.sort();
        facts
    }

    fn event(&self, event: &Event) -> String {
        let message = event.message.as_deref().unwrap_or_default().replace(&self.node, "NODE");
        // The kubelet checks whether the pod's credentials may pull an image that is there (KEP-2535). Plumb does not, and does
        // not say so.
        let message = message.trim_end_matches(" and can be accessed by the pod");
        format!(
            "event {} {} x{}: {message}",
            event.type_.as_deref().unwrap_or_default(),
            event.reason.as_deref().unwrap_or_default(),
            event.count.unwrap_or(1)
        )
    }
}

/// Of which generation an event says that its resize is completed. The kubelet may say so twice: when it syncs a pod before
/// it has allocated what is new, it emits the event with the resources of before.
fn completed(event: &Event) -> Option<&str> {
    let message = event.message.as_deref().filter(|_| event.reason.as_deref() == Some("ResizeCompleted"))?;
    message.rsplit_once("\"generation\":").map(|(_, generation)| generation)
}

fn is_settled(pod: &Pod, outcome: Outcome) -> bool {
    let Some(status) = &pod.status else { return false };
    let conditions = status.conditions.iter().flatten();
    let resizing: Vec<&str> = conditions
        .filter(|condition| condition.type_.starts_with("PodResize"))
        .map(|condition| condition.reason.as_deref().unwrap_or_default())
        .collect();
    let runs = status.container_statuses.as_ref().is_some_and(|all| all.iter().all(|one| one.ready));
    let is_current = status.observed_generation == pod.metadata.generation;
    let desired: BTreeMap<&str, Value> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| (container.name.as_str(), json!(container.resources)))
        .collect();
    let has_desired = status.container_statuses.iter().flatten().all(|status| {
        // A container without resources has none, or an empty object of them.
        let actual = json!(status.resources);
        let wanted = desired.get(status.name.as_str()).cloned().unwrap_or_default();
        actual == wanted || (is_empty(&actual) && is_empty(&wanted))
    });
    match outcome {
        Outcome::Applied => runs && is_current && resizing.is_empty() && has_desired,
        Outcome::Pending(reason) => runs && is_current && resizing == [reason],
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// The values of the cgroups of a pod and of its containers.
fn cgroups(pod: &Pod) -> Vec<String> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let Some(of_pod) = Group::find(&format!("pod{uid}")) else { return vec!["cgroup pod: none".to_owned()] };
    let values = |what: &str, group: &Group| {
        let mut line = format!("cgroup {what}:");
        for figure in [Figure::CpuWeight, Figure::CpuQuota, Figure::MemoryLimit] {
            let _ = write!(line, " {figure:?} {:?}", group.number(figure));
        }
        line
    };
    let mut lines = vec![values("pod", &of_pod)];
    for status in pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten()) {
        let id = status.container_id.as_deref().and_then(|id| id.split_once("://"));
        lines.push(values(&status.name, &of_pod.child(id.map_or("", |(_, id)| id))));
    }
    lines
}

/// What the status says, without times, addresses and ids.
fn statuses(pod: &Pod) -> Vec<String> {
    let Some(status) = &pod.status else { return Vec::new() };
    let mut lines = vec![format!("phase {:?} qosClass {:?}", status.phase, status.qos_class)];
    for condition in status.conditions.iter().flatten() {
        lines.push(format!(
            "condition {} {} {:?} {:?} of generation {:?}",
            condition.type_,
            condition.status,
            condition.reason,
            condition.message,
            condition.observed_generation
        ));
    }
    for container in status.container_statuses.iter().flatten() {
        let terminated = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
            let ended = state.as_ref().and_then(|state| state.terminated.as_ref());
            ended.map(|ended| (ended.exit_code, ended.reason.clone()))
        };
        lines.push(format!(
            "container {}: ready {} started {:?} restarts {} ended {:?} resources {} allocated {}",
            container.name,
            container.ready,
            container.started,
            container.restart_count,
            terminated(&container.last_state),
            json!(container.resources),
            json!(container.allocated_resources),
        ));
    }
    lines
}

/// Compares what both sides have left of a pod, once both have. Events come after the status that they are about.
async fn compare(ours: &Side, theirs: &Side, pod: &str, when: &str) -> Option<String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let (left, right) = (ours.facts(pod).await, theirs.facts(pod).await);
        if left == right {
            println!("same  {when}: {} facts", left.len());
            return None;
        }
        if Instant::now() > deadline {
            let mut text = format!("{when}:");
            for (side, only, other) in [(ours, &left, &right), (theirs, &right, &left)] {
                for fact in only.iter().filter(|fact| !other.contains(fact)) {
                    let _ = write!(text, "\n  only {}: {fact}", side.name);
                }
            }
            println!("OTHER {text}");
            return Some(text);
        }
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn the_agent_and_the_kubelet_leave_the_same_of_the_same_pods() {
    let kubernetes = plumb_testbed::Cluster::start(plumb_testbed::Config::default()).await.unwrap();
    let site = Site::start().await;
    let cluster =
        site.up(&["--components", "apiserver,controllers,scheduler,node", "--resize-dialect", "v1.36"]);
    let ours = Side::new("Plumb", "plumb", &cluster.client().await);
    let node = kubernetes.endpoints().node.clone().unwrap();
    let theirs = Side::new("the kubelet", &node, &kubernetes.client().await.unwrap());
    let mut others = Vec::new();
    for scenario in scenarios() {
        let name = scenario.name;
        tokio::join!(ours.create(&scenario), theirs.create(&scenario));
        others.extend(compare(&ours, &theirs, name, &format!("{name}, created")).await);
        for (nth, step) in scenario.steps.iter().enumerate() {
            tokio::join!(ours.resize(name, step), theirs.resize(name, step));
            others.extend(compare(&ours, &theirs, name, &format!("{name}, step {}", nth + 1)).await);
        }
        tokio::join!(ours.delete(&scenario), theirs.delete(&scenario));
    }
    let said = cluster.said();
    drop(cluster);
    site.clear().await;
    kubernetes.stop().await.unwrap();
    assert!(others.is_empty(), "{}\n{said}", others.join("\n"));
}
