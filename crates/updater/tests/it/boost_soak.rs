//! Pods with CPU start-up boosts on virtual nodes, while the webhook and the updater are killed at random, VPAs come and go, and
//! some pods are never ready. In the end no pod is boosted, none was evicted, and each has what it should have.
//!
//! The webhook is called in this process and not over TLS: sockets do not go with virtual time. Chance comes from a seed,
//! `PLUMB_SOAK_SEED`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_resize::rules::Rules;
use plumb_resize::status::Stage;
use plumb_testkit::{TestNode, object};
use plumb_updater::Options;
use plumb_updater::state::PodState;
use plumb_vpa::boost::annotation::is_boosted;
use plumb_vpa::target::TargetConfig;
use plumb_webhook::Reviewer as _;
use serde_json::{Value, json};

use super::make::amounts;
use super::soak::{Dice, NODES, seed, start_nodes};
use super::world::{World, options};
use crate::in_process_webhook::InProcessWebhook;

const WORKLOADS: u64 = 6;
/// How many pods there are at most.
const MOST: usize = 40;
/// For how long a pod that is not ready stays boosted.
const DEADLINE: Duration = Duration::from_mins(2);
/// How long everything has to settle in the end.
const TO_REST: Duration = Duration::from_mins(10);

struct Soak {
    world: World,
    _nodes: Vec<TestNode>,
    webhook: Option<InProcessWebhook>,
    dice: Dice,
    made: u64,
    boosted: u64,
    kills: (u32, u32),
}

/// Applies an operation of a JSON patch: those that the webhook has add and remove members of objects.
fn apply(object: &mut Value, operation: &Value) {
    let (parent, member) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
    let member = member.replace("~1", "/").replace("~0", "~");
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match operation["op"].as_str().unwrap() {
        "add" => drop(parent.insert(member, operation["value"].clone())),
        "remove" => drop(parent.remove(&member)),
        other => panic!("{other}"),
    }
}

fn updater_options() -> Options {
    Options { startup_boost_deadline: Some(DEADLINE), ..options() }
}

impl Soak {
    async fn start(seed: u64) -> Self {
        let rules = Rules::v1_36();
        let world = World::new(rules.clone()).await;
        let nodes = start_nodes(&world, &rules).await;
        let mut soak = Self {
            world,
            _nodes: nodes,
            webhook: None,
            dice: Dice(seed.max(1)),
            made: 0,
            boosted: 0,
            kills: (0, 0),
        };
        for workload in 0..WORKLOADS {
            soak.world.workload(&format!("w{workload}"), 3).await;
            soak.create_vpa(workload).await;
        }
        soak.start_webhook().await;
        soak.world.start_updater(updater_options());
        soak.world.pass(Duration::from_secs(10)).await;
        soak
    }

    async fn start_webhook(&mut self) {
        let config = TargetConfig { clock: self.world.clock.clone(), jitter: 0.0, ..TargetConfig::default() };
        self.webhook = Some(InProcessWebhook::start(&self.world.admin, config).await);
    }

    fn mode(workload: u64) -> &'static str {
        ["Off", "InPlace", "Initial"][usize::try_from(workload % 3).unwrap()]
    }

    async fn create_vpa(&mut self, workload: u64) {
        let name = format!("w{workload}");
        let seconds = self.dice.below(20);
        let boost = if workload.is_multiple_of(2) {
            json!({ "type": "Factor", "factor": 3, "durationSeconds": seconds })
        } else {
            json!({ "type": "Quantity", "quantity": "300m", "durationSeconds": seconds })
        };
        let vpa = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": name },
            "spec": {
                "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
                "updatePolicy": { "updateMode": Self::mode(workload) },
                "startupBoost": { "cpu": boost },
            },
        });
        // It may exist.
        drop(self.world.vpas().create(&PostParams::default(), &object(vpa)).await);
    }

    /// A pod as its controller would create it, through the webhook if that runs.
    async fn create_pod(&mut self) {
        if self.pods().await.len() >= MOST {
            return;
        }
        self.made += 1;
        let workload = format!("w{}", self.dice.below(WORKLOADS));
        let sets: Api<ReplicaSet> = Api::default_namespaced(self.world.admin.clone());
        let uid = sets.get(&workload).await.unwrap().uid();
        // One of eight is never ready.
        let startup = if self.dice.below(8) == 0 { 100_000 } else { self.dice.below(30) };
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("{workload}-{}", self.made), "labels": { "app": workload }, "namespace": "default",
                "annotations": { "virtual.plumb.dev/model": format!("cpu=10m startup={startup}s") },
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "uid": uid, "controller": true,
                }],
            },
            "spec": {
                "nodeName": format!("node-{}", self.made % NODES), "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "app", "image": "plumb/load",
                    "readinessProbe": { "exec": { "command": ["true"] }, "periodSeconds": 1 },
                    "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } },
                }],
            },
        });
        if let Some(running) = &self.webhook {
            let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": "u", "resource": { "group": "", "version": "v1", "resource": "pods" }, "operation": "CREATE",
                "namespace": "default", "name": "", "object": pod,
            } });
            let body = serde_json::to_vec(&review).unwrap();
            let answer = running.webhook.review(&body).await.unwrap();
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            if let Some(patch) = answer["response"]["patch"].as_str() {
                let patch: Vec<Value> = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
                for operation in &patch {
                    apply(&mut pod, operation);
                }
            }
        }
        let pod: Pod = object(pod);
        self.boosted += u64::from(is_boosted(&pod));
        self.world.pods().create(&PostParams::default(), &pod).await.unwrap();
    }

    async fn pods(&self) -> Vec<Pod> {
        let pods = self.world.pods().list(&ListParams::default()).await.unwrap();
        pods.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    /// Something happens.
    async fn edit(&mut self) {
        let workload = self.dice.below(WORKLOADS);
        let name = format!("w{workload}");
        match self.dice.below(16) {
            0 => {
                self.kills.0 += 1;
                self.webhook = None;
            }
            1 | 2 if self.webhook.is_none() => self.start_webhook().await,
            3 => {
                self.kills.1 += 1;
                self.world.kill_updater().await;
                let pause = Duration::from_millis(self.dice.below(20_000));
                self.world.pass(pause).await;
                self.world.start_updater(updater_options());
            }
            4 => drop(self.world.vpas().delete(&name, &DeleteParams::default()).await),
            5 | 6 => self.create_vpa(workload).await,
            7 => {
                let patch = json!({ "spec": { "startupBoost": null } });
                drop(self.world.vpas().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await);
            }
            8 => {
                let cpu = 50 + self.dice.below(200);
                let amounts = json!({ "cpu": format!("{cpu}m"), "memory": "64Mi" });
                let recommended = json!([{ "containerName": "app", "target": amounts, "lowerBound": amounts, "upperBound": amounts }]);
                let status =
                    json!({ "status": { "recommendation": { "containerRecommendations": recommended } } });
                drop(
                    self.world
                        .vpas()
                        .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
                        .await,
                );
            }
            9 => {
                let pods = self.pods().await;
                if let Some(pod) = pods.get(usize::try_from(self.dice.below(MOST as u64)).unwrap()) {
                    drop(self.world.pods().delete(&pod.name_any(), &DeleteParams::default()).await);
                }
            }
            _ => self.create_pod().await,
        }
    }

    /// The first pod that is boosted, or does not have what it should have.
    async fn unrest(&self) -> Option<String> {
        let vpas = self.world.vpas().list(&ListParams::default()).await.unwrap().items;
        self.pods().await.iter().find_map(|pod| {
            let state = PodState::of(pod).unwrap();
            let has = state.containers[0].desired.requests;
            let vpa = vpas.iter().find(|vpa| vpa.name_any() == pod.labels()["app"]);
            let mode = vpa.map(|vpa| vpa.spec.update_mode().as_str().to_owned());
            // Pods of the other modes may have been created or unboosted with what was recommended then.
            let should = mode.as_deref().is_none_or(|mode| mode == "Off").then(|| amounts("100m/64Mi"));
            let is_wrong = should.is_some_and(|should| has != should) && mode.is_some();
            let wrong = is_boosted(pod) || state.stage != Stage::Applied || is_wrong;
            wrong.then(|| format!("{} ({mode:?}): {has:?}, {}", pod.name_any(), state.stage))
        })
    }
}

async fn soak(seed: u64, lasts: Duration) {
    let mut soak = Soak::start(seed).await;
    let end = tokio::time::Instant::now() + lasts;
    while tokio::time::Instant::now() < end {
        soak.edit().await;
        let pause = Duration::from_millis(soak.dice.below(2_000));
        soak.world.pass(pause).await;
    }
    let deadline = tokio::time::Instant::now() + TO_REST;
    while let Some(unrest) = soak.unrest().await {
        assert!(tokio::time::Instant::now() < deadline, "seed {seed}: {unrest}");
        soak.world.pass(Duration::from_secs(5)).await;
    }
    assert_eq!(soak.world.count("/eviction"), 0, "seed {seed}: no eviction");
    let (made, boosted, kills) = (soak.made, soak.boosted, soak.kills);
    assert!(boosted > 0 && boosted < made && kills.0 > 0 && kills.1 > 0, "{made} {boosted} {kills:?}");
    println!(
        "seed {seed}: {boosted} of {made} pods were boosted, {kills:?} kills of the webhook and the updater"
    );
    soak.world.kill_updater().await;
}

#[tokio::test(start_paused = true)]
async fn no_pod_stays_boosted_while_webhook_and_updater_are_killed() {
    soak(seed(), Duration::from_mins(3)).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "takes minutes; docs/proof.md says how to run it"]
async fn no_pod_stays_boosted_in_an_hour_of_kills() {
    soak(seed(), Duration::from_hours(1)).await;
}
