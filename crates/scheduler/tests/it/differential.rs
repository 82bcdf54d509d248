//! kube-scheduler and the planner schedule the same pods on the same random clusters, and report the same messages.
//!
//! Every pod has a required affinity that no pod matches, which the last filter checks. So no pod is bound, each is filtered on
//! the same cluster, and its message says which filter rejects each node first; a node that only the affinity rejects is
//! otherwise feasible. Each pod is compared for the cluster as a whole and for each node alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent};
use plumb_resize::rules::Rules;
use plumb_scheduler::{Decision, Planner, Settings};
use plumb_testbed::{Cluster, Config, Parts};
use serde_json::{Value, json};

/// The number of random clusters, of their nodes, of existing pods, and of pending pods.
const CLUSTERS: u64 = 4;
const NODES: u64 = 7;
const RUNNING: u64 = 24;
const ASKED: u64 = 40;
/// The deadline of all messages of a cluster.
const DEADLINE: Duration = Duration::from_mins(3);

/// Random numbers from a seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[usize::try_from(self.roll(of.len() as u64)).unwrap()]
    }
}

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const APPS: [&str; 3] = ["web", "db", "batch"];
const NAMESPACES: [&str; 2] = ["default", "other"];

fn some_node(dice: &mut Dice, name: &str) -> Node {
    let mut labels = json!({ HOST: name, "size": dice.roll(5).to_string() });
    if !dice.one_in(6) {
        labels[ZONE] = json!(dice.pick(&["a", "b", "c"]));
    }
    if dice.one_in(2) {
        labels["disk"] = json!(dice.pick(&["ssd", "hdd"]));
    }
    let taints: Vec<Value> = (0..dice.roll(3))
        .map(|i| {
            let (value, effect) =
                (dice.pick(&["x", "y"]), dice.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]));
            json!({ "key": format!("t{i}"), "value": value, "effect": effect })
        })
        .collect();
    let taints = if dice.one_in(2) { taints } else { Vec::new() };
    let mut allocatable = json!({
        "cpu": format!("{}m", 500 + 250 * dice.roll(10)),
        "memory": format!("{}Mi", 500 + 250 * dice.roll(10)),
        "ephemeral-storage": "10Gi",
        "pods": (2 + dice.roll(8)).to_string(),
    });
    if dice.one_in(3) {
        allocatable["example.com/gpu"] = json!(dice.roll(3).to_string());
    }
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels },
        "spec": { "taints": taints, "unschedulable": dice.one_in(8) },
        "status": { "allocatable": allocatable, "capacity": allocatable },
    }))
    .unwrap()
}

fn selector(dice: &mut Dice) -> Value {
    match dice.roll(4) {
        0 => json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["web", "db"] }] }),
        1 => {
            json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": [dice.pick(&APPS)] }] })
        }
        2 => json!({}),
        _ => json!({ "matchLabels": { "app": dice.pick(&APPS) } }),
    }
}

fn pod_term(dice: &mut Dice) -> Value {
    let mut term =
        json!({ "topologyKey": dice.pick(&[HOST, ZONE, "disk"]), "labelSelector": selector(dice) });
    match dice.roll(5) {
        0 => term["namespaces"] = json!([dice.pick(&NAMESPACES)]),
        1 => term["namespaceSelector"] = json!({}),
        2 => term["namespaceSelector"] = json!({ "matchLabels": { "team": "x" } }),
        _ => {}
    }
    term
}

fn node_terms(dice: &mut Dice) -> Value {
    let expression = match dice.roll(5) {
        0 => json!({ "key": ZONE, "operator": "In", "values": ["a", "b"] }),
        1 => json!({ "key": "disk", "operator": "Exists" }),
        2 => json!({ "key": "disk", "operator": "DoesNotExist" }),
        3 => json!({ "key": "size", "operator": "Gt", "values": [dice.roll(4).to_string()] }),
        _ => json!({ "key": ZONE, "operator": "NotIn", "values": [dice.pick(&["a", "b", "c"])] }),
    };
    json!({ "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [expression] }],
    } })
}

fn spread(dice: &mut Dice) -> Value {
    let mut constraint = json!({
        "maxSkew": 1 + dice.roll(2),
        "topologyKey": dice.pick(&[HOST, ZONE, "disk"]),
        "whenUnsatisfiable": dice.pick(&["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": selector(dice),
    });
    if constraint["whenUnsatisfiable"] == "DoNotSchedule" && dice.one_in(4) {
        constraint["minDomains"] = json!(1 + dice.roll(4));
    }
    if dice.one_in(4) {
        constraint["nodeTaintsPolicy"] = json!("Honor");
    }
    if dice.one_in(4) {
        constraint["nodeAffinityPolicy"] = json!("Ignore");
    }
    if dice.one_in(4) {
        constraint["matchLabelKeys"] = json!(["tier"]);
    }
    constraint
}

/// A pod; an existing one has terms that do not depend on the order of creation.
fn some_pod(dice: &mut Dice, name: &str, node: Option<&str>) -> Value {
    let mut requests = json!({});
    if !dice.one_in(4) {
        requests["cpu"] = json!(format!("{}m", 50 * dice.roll(16)));
    }
    if !dice.one_in(4) {
        requests["memory"] = json!(format!("{}Mi", 50 * dice.roll(16)));
    }
    if dice.one_in(6) {
        requests["example.com/gpu"] = json!("1");
    }
    let limits = requests.get("example.com/gpu").map(|gpu| json!({ "example.com/gpu": gpu }));
    let mut container =
        json!({ "name": "c", "image": "i", "resources": { "requests": requests, "limits": limits } });
    if dice.one_in(4) {
        container["ports"] = json!([{
            "containerPort": 80, "hostPort": 80 + dice.roll(2), "protocol": dice.pick(&["TCP", "UDP"]),
            "hostIP": dice.pick(&["", "127.0.0.1", "127.0.0.2"]),
        }]);
    }
    let mut spec = json!({ "containers": [container], "automountServiceAccountToken": false });
    if dice.one_in(4) {
        spec["initContainers"] = json!([{
            "name": "init", "image": "i",
            "restartPolicy": dice.one_in(2).then_some("Always"),
            "resources": { "requests": { "cpu": format!("{}m", 100 * dice.roll(10)) } },
        }]);
    }
    if dice.one_in(3) {
        spec["affinity"]["podAntiAffinity"] =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": [pod_term(dice)] });
    }
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    } else {
        if dice.one_in(3) {
            spec["nodeSelector"] = json!({ "disk": dice.pick(&["ssd", "hdd"]) });
        }
        if dice.one_in(3) {
            spec["affinity"]["nodeAffinity"] = node_terms(dice);
        }
        if dice.one_in(2) {
            let all = json!({ "operator": "Exists" });
            let one = json!({ "key": "t0", "operator": "Equal", "value": "x", "effect": "NoSchedule" });
            spec["tolerations"] = if dice.one_in(2) { json!([all]) } else { json!([one]) };
        }
        if dice.one_in(2) {
            spec["topologySpreadConstraints"] = json!([spread(dice)]);
        }
        let mut company = vec![json!({
            "topologyKey": HOST, "labelSelector": { "matchLabels": { "no": "match" } },
        })];
        if dice.one_in(4) {
            company.push(pod_term(dice));
        }
        spec["affinity"]["podAffinity"] =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": company });
    }
    json!({
        "metadata": { "name": name, "namespace": dice.pick(&NAMESPACES), "labels": {
            "app": dice.pick(&APPS), "tier": dice.pick(&["front", "back"]),
        } },
        "spec": spec,
    })
}

/// A copy of the pod that requires one node.
fn only_on(pod: &Value, node: &str, name: &str) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["name"] = json!(name);
    let field = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
    let affinity = &mut pod["spec"]["affinity"]["nodeAffinity"];
    let required = &mut affinity["requiredDuringSchedulingIgnoredDuringExecution"];
    if required.is_null() {
        *required = json!({ "nodeSelectorTerms": [{}] });
    }
    for term in required["nodeSelectorTerms"].as_array_mut().unwrap() {
        term["matchFields"] = json!([field]);
    }
    pod
}

/// kube-scheduler, until it is dropped.
struct Scheduler(Child);

impl Scheduler {
    fn start(program: &Path, kubeconfig: &Path) -> Self {
        let mut command = Command::new(program);
        command.args(["--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0", "--kubeconfig"]);
        Self(command.arg(kubeconfig).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn create_all(client: &Client, pods: &[Value]) {
    let created = stream::iter(pods).map(Ok::<_, kube::Error>).try_for_each_concurrent(8, |pod| {
        let api: Api<Pod> = Api::namespaced(client.clone(), pod["metadata"]["namespace"].as_str().unwrap());
        async move {
            let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
            api.create(&PostParams::default(), &pod).await.map(drop)
        }
    });
    created.await.unwrap();
}

/// The message of an unschedulable pod.
fn message_of(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|one| one.type_ == "PodScheduled")?;
    scheduled.message.clone()
}

/// Waits until every pending pod has a message.
async fn messages_of(client: &Client, count: usize) -> BTreeMap<String, String> {
    let (sender, mut events) = tokio::sync::mpsc::channel(64);
    let following =
        tokio::spawn(Reflector::new(Api::<Pod>::all(client.clone()), WatchConfig::default()).run(sender));
    let mut messages = BTreeMap::new();
    let waiting = async {
        while messages.len() < count {
            let pods = events.recv().await.unwrap().into_objects();
            for pod in pods.iter().filter(|pod| pod.spec.as_ref().unwrap().node_name.is_none()) {
                if let Some(message) = message_of(pod) {
                    messages.insert(pod.metadata.name.clone().unwrap(), message);
                }
            }
        }
    };
    let waited = tokio::time::timeout(DEADLINE, waiting).await;
    following.abort();
    assert!(waited.is_ok(), "only {} of {count} pods have a message", messages.len());
    messages
}

/// The messages of the planner for the objects of the API.
fn planned(nodes: Vec<Node>, namespaces: Vec<Namespace>, pods: &[Pod]) -> BTreeMap<String, String> {
    let now = tokio::time::Instant::now();
    let mut planner = Planner::new(Settings::new(Rules::v1_36()));
    planner.handle_nodes(WatchEvent::Restarted(nodes));
    planner.handle_namespaces(WatchEvent::Restarted(namespaces));
    planner.handle_pods(WatchEvent::Restarted(pods.to_vec()), now);
    let mut messages = BTreeMap::new();
    while let Some(decision) = planner.next(now) {
        match decision {
            Decision::Unschedulable { pod, message, .. } => messages.insert(pod.name, message),
            Decision::Bind { pod, node, .. } => messages.insert(pod.name, format!("bound to {node}")),
            other => panic!("{other:?}"),
        };
    }
    messages
}

/// Creates a random cluster, and compares both messages of its pending pods. `start` starts kube-scheduler once all objects
/// exist.
async fn compare(client: &Client, dice: &mut Dice, round: u64, start: impl FnOnce() -> Scheduler) -> usize {
    let names: Vec<String> = (0..NODES).map(|i| format!("n{round}-{i}")).collect();
    let nodes: Api<Node> = Api::all(client.clone());
    for name in &names {
        let node = some_node(dice, name);
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let status = json!({ "status": node.status });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        // Without the taint of a node that is not ready yet.
        let taints = json!({ "spec": { "taints": node.spec.unwrap().taints } });
        nodes.patch(name, &PatchParams::default(), &Patch::Merge(&taints)).await.unwrap();
    }
    let running: Vec<Value> = (0..RUNNING)
        .map(|i| {
            let node = &names[usize::try_from(dice.roll(NODES)).unwrap()];
            some_pod(dice, &format!("r{round}-{i}"), Some(node))
        })
        .collect();
    create_all(client, &running).await;
    let asked: Vec<Value> = (0..ASKED)
        .flat_map(|i| {
            let pod = some_pod(dice, &format!("p{round}-{i}"), None);
            let alone = |name: &String| only_on(&pod, name, &format!("p{round}-{i}-{name}"));
            let alone: Vec<Value> = names.iter().map(alone).collect();
            std::iter::once(pod).chain(alone)
        })
        .collect();
    let count = asked.len();
    create_all(client, &asked).await;
    let nodes = nodes.list(&ListParams::default()).await.unwrap();
    let pods = Api::<Pod>::all(client.clone());
    let namespaces = Api::<Namespace>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    let ours = planned(nodes.items, namespaces.items, &pods);
    let scheduler = start();
    // The plugin of dynamic resources, which Plumb does not have, adds to every message.
    let theirs = messages_of(client, count).await.into_iter();
    let theirs: BTreeMap<String, String> = theirs
        .map(|(name, message)| (name, message.replace(" no new claims to deallocate, ", " ")))
        .collect();
    drop(scheduler);
    let mut different = 0;
    for (name, theirs) in &theirs {
        if ours.get(name) != Some(theirs) {
            different += 1;
            let pod = asked.iter().find(|pod| pod["metadata"]["name"] == **name).unwrap();
            println!("{name}: {pod}\n  theirs: {theirs}\n  ours:   {:?}", ours.get(name));
        }
    }
    println!("cluster {round}: {count} pods compared, {different} differ");
    different
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs that `testbed obtain` gets; .ci/kubernetes runs it"]
async fn every_node_is_filtered_as_kube_scheduler_filters_it() {
    let seed = std::env::var("PLUMB_DIFFERENTIAL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut different = 0;
    for round in 0..CLUSTERS {
        // Each in a cluster of its own, so that no pod is scheduled twice.
        let reference = Cluster::start(Config::of(Parts::ApiServer)).await.unwrap();
        let client = reference.client().await.unwrap();
        let other = json!({ "metadata": { "name": "other", "labels": { "team": "x" } } });
        let other: Namespace = serde_json::from_value(other).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &other).await.unwrap();
        let program = reference.kubectl().with_file_name("kube-scheduler");
        let start = || Scheduler::start(&program, reference.kubeconfig_path());
        different += compare(&client, &mut Dice(seed + round), round, start).await;
        reference.stop().await.unwrap();
    }
    assert_eq!(different, 0, "see above");
}
