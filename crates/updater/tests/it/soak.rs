//! Up to 200 pods of the mode `InPlace` on virtual nodes: random recommendations, random pressure, and an updater that is killed at
//! random. No pod is evicted, no container restarts, and what is recommended in the end is applied.
//!
//! Chance comes from a seed, `PLUMB_SOAK_SEED`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use plumb_client::Api;
use plumb_resize::rules::Rules;
use plumb_resize::status::Stage;
use plumb_runtime::{Virtual, VirtualConfig};
use plumb_store::Store;
use plumb_testkit::{TestNode, object};
use plumb_updater::state::PodState;
use serde_json::json;

use super::make::amounts;
use super::make::list;
use super::world::{World, options};

pub(crate) const NODES: u64 = 4;
const PODS_EACH: u64 = 10;
/// The largest feasible recommendation, in millicores. All pods of a node can have it while nothing presses: a pod whose resize
/// is deferred waits even if less is recommended since, so that pods could otherwise wait for each other.
const LARGEST: u64 = 300;
/// How long everything has to settle in the end.
const TO_REST: Duration = Duration::from_mins(10);

/// Numbers without an order, the same for the same seed: xorshift.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Starts [`NODES`] virtual nodes of 16 CPUs, `node-0` and so on. They run as long as they are held.
pub(crate) async fn start_nodes(world: &World, rules: &Rules) -> Vec<TestNode> {
    let journal = Store::in_memory(&plumb_store::Options::default());
    let mut nodes = Vec::new();
    for index in 0..NODES {
        let network = Ipv4Addr::new(10, u8::try_from(index).unwrap(), 0, 0);
        let runtime = Virtual::new(VirtualConfig { now: world.clock.now(), pod_network: network });
        let mut node = TestNode::new(format!("node-{index}"), Arc::new(runtime), journal.clone());
        let user = format!("system:node:{}", node.name());
        let mut config = node.config(world.cluster.client_as(&user, ["system:nodes"]), rules.clone());
        for (resource, amount) in [("cpu", "16"), ("memory", "16Gi"), ("pods", "1000")] {
            config.setup.capacity.insert(resource.to_owned(), Quantity(amount.to_owned()));
        }
        let clock = world.clock.clone();
        config.clock = Arc::new(move || clock.now());
        node.start_agent(config).await;
        nodes.push(node);
    }
    nodes
}

struct Soak {
    world: World,
    /// They run as long as they are held.
    _nodes: Vec<TestNode>,
    dice: Dice,
    /// The pods that press on nodes.
    hogs: Vec<String>,
    recommended: BTreeMap<String, String>,
    workloads: u64,
    pods: u64,
    kills: u32,
}

impl Soak {
    async fn start(seed: u64, workloads: u64, rules: Rules) -> Self {
        let world = World::new(rules.clone()).await;
        let nodes = start_nodes(&world, &rules).await;
        let mut soak = Self {
            world,
            _nodes: nodes,
            dice: Dice(seed.max(1)),
            hogs: Vec::new(),
            recommended: BTreeMap::new(),
            workloads,
            pods: 0,
            kills: 0,
        };
        for workload in 0..workloads {
            soak.workload(&format!("w{workload}")).await;
        }
        soak.world.start_updater(options());
        soak.world.pass(Duration::from_secs(10)).await;
        soak
    }

    async fn workload(&mut self, name: &str) {
        self.world.workload(name, i32::try_from(PODS_EACH).unwrap()).await;
        let sets: Api<ReplicaSet> = Api::default_namespaced(self.world.admin.clone());
        let uid = sets.get(name).await.unwrap().uid();
        let vpa = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": name },
            "spec": {
                "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
                "updatePolicy": { "updateMode": "InPlace" },
            },
        });
        self.world.vpas().create(&PostParams::default(), &object(vpa)).await.unwrap();
        for number in 0..PODS_EACH {
            let owner = json!([{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid, "controller": true,
            }]);
            let metadata = json!({ "name": format!("{name}-{number}"), "labels": { "app": name }, "ownerReferences": owner });
            self.pod(metadata, "100m/64Mi").await;
        }
    }

    async fn pod(&mut self, metadata: serde_json::Value, requests: &str) {
        self.pods += 1;
        let node = format!("node-{}", self.pods % NODES);
        let container = json!({ "name": "app", "image": "plumb/load", "resources": { "requests": list(amounts(requests)) } });
        let pod = json!({
            "metadata": metadata,
            "spec": { "nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1 },
        });
        self.world.pods().create(&PostParams::default(), &object(pod)).await.unwrap();
    }

    /// Something happens.
    async fn edit(&mut self) {
        match self.dice.below(10) {
            0 => {
                // 4 to 12 of 16 CPUs of a node.
                let name =
                    format!("hog-{}", self.hogs.len() + usize::try_from(self.dice.below(1 << 40)).unwrap());
                let cpu = 4 + self.dice.below(9);
                self.pod(json!({ "name": name }), &format!("{cpu}/64Mi")).await;
                self.hogs.push(name);
            }
            1 | 2 => self.remove_hog().await,
            3 if self.dice.below(3) == 0 => {
                self.kills += 1;
                self.world.kill_updater().await;
                let pause = Duration::from_millis(self.dice.below(5_000));
                self.world.pass(pause).await;
                self.world.start_updater(options());
            }
            _ => {
                let workload = format!("w{}", self.dice.below(self.workloads));
                // One of ten is more than any node has.
                let infeasible = self.dice.below(10) == 0;
                let cpu = if infeasible { 20_000 } else { 50 + self.dice.below(LARGEST - 49) };
                let memory = 64 + 16 * self.dice.below(16);
                self.recommend(&workload, &format!("{cpu}m/{memory}Mi")).await;
            }
        }
    }

    async fn recommend(&mut self, workload: &str, target: &str) {
        self.world.recommend_for(workload, target).await;
        self.recommended.insert(workload.to_owned(), target.to_owned());
    }

    async fn remove_hog(&mut self) {
        if let Some(hog) = self.hogs.pop() {
            self.world.pods().delete(&hog, &DeleteParams::default()).await.unwrap();
        }
    }

    async fn workload_pods(&self) -> Vec<Pod> {
        let pods = self.world.pods().list(&ListParams::default()).await.unwrap();
        pods.items.into_iter().filter(|pod| pod.name_any().starts_with('w')).collect()
    }

    /// The first pod that does not have what is recommended.
    async fn unrest(&self) -> Option<String> {
        self.workload_pods().await.iter().find_map(|pod| {
            let state = PodState::of(pod).unwrap();
            let wanted = amounts(self.recommended.get(&pod.labels()["app"])?);
            let has = state.containers[0].desired.requests;
            (state.stage != Stage::Applied || has != wanted)
                .then(|| format!("{}: {has:?}, {wanted:?} is recommended, {}", pod.name_any(), state.stage))
        })
    }
}

async fn soak(seed: u64, workloads: u64, lasts: Duration, rules: Rules) {
    let mut soak = Soak::start(seed, workloads, rules).await;
    let before: BTreeMap<String, Option<String>> =
        soak.workload_pods().await.into_iter().map(|pod| (pod.name_any(), pod.uid())).collect();
    assert_eq!(before.len() as u64, workloads * PODS_EACH);
    let end = tokio::time::Instant::now() + lasts;
    while tokio::time::Instant::now() < end {
        soak.edit().await;
        let pause = Duration::from_millis(soak.dice.below(2_000));
        soak.world.pass(pause).await;
    }
    // It comes to rest: no pressure, and what is recommended fits.
    while !soak.hogs.is_empty() {
        soak.remove_hog().await;
    }
    for workload in 0..workloads {
        let target = format!("{}m/{}Mi", 60 + workload, 70 + workload);
        soak.recommend(&format!("w{workload}"), &target).await;
    }
    let deadline = tokio::time::Instant::now() + TO_REST;
    while let Some(unrest) = soak.unrest().await {
        assert!(tokio::time::Instant::now() < deadline, "seed {seed}: {unrest}");
        soak.world.pass(Duration::from_secs(5)).await;
    }
    let after = soak.workload_pods().await;
    let restarts: i32 = after
        .iter()
        .flat_map(|pod| pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten()))
        .map(|status| status.restart_count)
        .sum();
    assert_eq!(restarts, 0, "seed {seed}: no container restarts");
    let after: BTreeMap<String, Option<String>> =
        after.into_iter().map(|pod| (pod.name_any(), pod.uid())).collect();
    assert_eq!(after, before, "seed {seed}: no pod is replaced");
    assert_eq!(soak.world.count("/eviction"), 0, "seed {seed}: no eviction");
    assert!(soak.kills > 0 && soak.world.count("/resize") > before.len());
    println!("seed {seed}: {} resizes, {} kills", soak.world.count("/resize"), soak.kills);
    soak.world.kill_updater().await;
}

pub(crate) fn seed() -> u64 {
    std::env::var("PLUMB_SOAK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(7)
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_evicted_or_restarted_in_three_minutes() {
    soak(seed(), 6, Duration::from_mins(3), Rules::kep()).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes; docs/proof.md says how to run it"]
async fn no_pod_of_two_hundred_is_evicted_or_restarted_in_ten_minutes() {
    soak(seed(), 20, Duration::from_mins(10), Rules::kep()).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes; docs/proof.md says how to run it"]
async fn the_same_holds_where_the_api_server_rejects_what_is_infeasible() {
    soak(seed(), 20, Duration::from_mins(10), Rules::v1_36()).await;
}
