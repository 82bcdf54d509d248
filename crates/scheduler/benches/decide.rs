//! The cost of a decision by the size of the cluster.
//!
//! Each figure is for a thousand pods that are created, assumed and observed on their nodes. Nodes have pods before, so that
//! scores differ.

#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up has failed")]

use divan::Bencher;
use divan::counter::ItemsCount;
use k8s_openapi::api::core::v1::{Node, Pod};
use plumb_controller_runtime::WatchEvent;
use plumb_resize::rules::Rules;
use plumb_scheduler::{Decision, Planner, Settings};
use serde_json::{Value, json};

const SIZES: [usize; 3] = [100, 1_000, 5_000];
const PODS: usize = 1_000;

fn main() {
    divan::main();
}

fn node(i: usize) -> Node {
    let name = format!("n{i}");
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("z{}", i % 3),
        } },
        "status": { "allocatable": { "cpu": "64", "memory": "256Gi", "pods": "1000" } },
    }))
    .unwrap()
}

fn pod(i: usize, spec: &Value) -> Pod {
    let mut pod = json!({
        "metadata": { "name": format!("p{i}"), "namespace": "default", "uid": format!("u{i}"), "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } } }] },
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

/// Schedules every pod, and observes it on its node.
fn schedule(planner: &mut Planner, pods: Vec<Pod>) {
    let now = tokio::time::Instant::now();
    for mut pod in pods {
        planner.handle_pods(WatchEvent::Applied(Box::new(pod.clone())), now);
        if let Some(Decision::Bind { node, .. }) = planner.next(now) {
            pod.spec.as_mut().unwrap().node_name = Some(node);
            planner.handle_pods(WatchEvent::Applied(Box::new(pod)), now);
        }
    }
}

fn measure(bencher: Bencher<'_, '_>, nodes: usize, spec: Value) {
    let cluster = || {
        let mut planner = Planner::new(Settings::new(Rules::kep()));
        planner.handle_nodes(WatchEvent::Restarted((0..nodes).map(node).collect()));
        schedule(&mut planner, (0..2 * nodes).map(|i| pod(PODS + i, &spec)).collect());
        (planner, (0..PODS).map(|i| pod(i, &spec)).collect::<Vec<Pod>>())
    };
    bencher.with_inputs(cluster).input_counter(|_| ItemsCount::new(PODS)).bench_values(
        |(mut planner, pods)| {
            schedule(&mut planner, pods);
            planner
        },
    );
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn pods_that_ask_for_cpu_and_memory(bencher: Bencher<'_, '_>, nodes: usize) {
    measure(bencher, nodes, json!({}));
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn pods_that_are_spread_over_zones(bencher: Bencher<'_, '_>, nodes: usize) {
    let spread = json!({ "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } },
    }] });
    measure(bencher, nodes, spread);
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn pods_that_like_to_be_apart(bencher: Bencher<'_, '_>, nodes: usize) {
    let apart = json!({ "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 1, "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } },
        },
    }] } } });
    measure(bencher, nodes, apart);
}
