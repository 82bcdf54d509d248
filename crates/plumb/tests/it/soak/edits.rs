//! What is done to the workloads of a soak: whatever their class allows, as the dice say.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::super::dice::Dice;
use super::ledger::ByHand;
use super::world::{World, ZONE, ZONES};
use super::zoo::{self, ELASTIC, GUARDED, LEFT, Pods, STEADY, Sort, TIGHT, Workload};

/// Whoever edits.
pub(super) struct Editor {
    client: Client,
    pub(super) dice: Dice,
    pub(super) workloads: Vec<Workload>,
    /// How many namespaces came and went, and whether one is there.
    guests: (u64, bool),
    /// Whom it deletes itself.
    by_hand: ByHand,
    /// How much was done.
    pub(super) done: Done,
}

/// How much was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    edits: u64,
    evicted: u64,
    not_evicted: u64,
    restarts: u64,
}

fn resource(sort: Sort) -> ApiResource {
    let (group, kind) = match sort {
        Sort::Deployment => ("apps", "Deployment"),
        Sort::StatefulSet => ("apps", "StatefulSet"),
        Sort::DaemonSet => ("apps", "DaemonSet"),
        Sort::Job => ("batch", "Job"),
        Sort::CronJob => ("batch", "CronJob"),
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

/// What may become of an edit: what it is about may have gone, or changed meanwhile.
fn may_fail<T>(outcome: kube::Result<T>) -> Option<T> {
    match outcome {
        Ok(done) => Some(done),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 429) => None,
        Err(error) => panic!("an edit was refused: {error}"),
    }
}

impl Editor {
    /// Asks for so many workloads.
    pub(super) async fn begin(client: Client, count: u64, by_hand: ByHand, mut dice: Dice) -> Self {
        let mut editor = Self {
            client,
            dice: Dice::new(0),
            workloads: Vec::new(),
            guests: (0, false),
            by_hand,
            done: Done::default(),
        };
        for namespace in zoo::namespaces() {
            editor.make_namespace(&namespace).await;
        }
        let hard = json!({ "pods": zoo::TIGHT_PODS.to_string(), "requests.cpu": zoo::TIGHT_CPU });
        editor
            .make(&json!({
                "apiVersion": "v1", "kind": "ResourceQuota", "spec": { "hard": hard },
                "metadata": { "name": "room", "namespace": TIGHT },
            }))
            .await;
        for (workload, objects) in zoo::all(count, &mut dice) {
            for object in &objects {
                editor.make(object).await;
            }
            editor.workloads.push(workload);
        }
        editor.dice = dice;
        editor
    }

    /// Does something.
    pub(super) async fn edit(&mut self, world: &mut World) {
        self.done.edits += 1;
        match self.dice.below(100) {
            0..3 => {
                self.done.restarts += 1;
                self.restart_something(world).await;
            }
            3..5 => self.cordon(world).await,
            5..7 => self.guest().await,
            _ => {
                let at = self.dice.below(u64::try_from(self.workloads.len()).unwrap());
                let at = usize::try_from(at).unwrap();
                let mut workload = self.workloads[at].clone();
                self.edit_workload(&mut workload).await;
                self.workloads[at] = workload;
            }
        }
    }

    async fn restart_something(&mut self, world: &mut World) {
        match self.dice.below(4) {
            0 => world.restart_controllers().await,
            1 => world.restart_scheduler().await,
            _ => {
                let nodes = u64::try_from(world.node_count()).unwrap();
                let node = usize::try_from(self.dice.below(nodes)).unwrap();
                world.restart_agent(node).await;
            }
        }
    }

    /// Has a node take no more pods, or some again.
    async fn cordon(&mut self, world: &World) {
        let nodes = u64::try_from(world.node_count()).unwrap();
        let name = format!("node-{}", self.dice.below(nodes));
        let cordoned = self.dice.percent(30);
        self.cordon_node(&name, cordoned).await;
    }

    async fn cordon_node(&self, name: &str, cordoned: bool) {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": cordoned } }));
        may_fail(nodes.patch(name, &PatchParams::default(), &patch).await);
    }

    /// Has a namespace with something of every kind come, or go.
    async fn guest(&mut self) {
        let (number, is_there) = self.guests;
        let name = format!("{}{number}", zoo::GUEST);
        if is_there {
            self.guests = (number + 1, false);
            let spaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
            may_fail(spaces.delete(&name, &DeleteParams::default()).await);
            return;
        }
        self.guests = (number, true);
        self.make_namespace(&name).await;
        for (_, objects) in zoo::all(20, &mut self.dice) {
            for mut object in objects {
                if object["metadata"]["namespace"] != TIGHT && object["kind"] != "DaemonSet" {
                    object["metadata"]["namespace"] = json!(name);
                    // It goes with all its pods, whatever it was.
                    object["metadata"]["labels"][zoo::CLASS] = json!(ELASTIC);
                    self.make(&object).await;
                }
            }
        }
    }

    async fn edit_workload(&mut self, workload: &mut Workload) {
        match (workload.sort, workload.class) {
            (Sort::Deployment, GUARDED) => self.evict(workload).await,
            (_, LEFT) => self.resize(workload).await,
            (Sort::Deployment | Sort::DaemonSet, STEADY) => self.roll_out(workload, 20).await,
            (Sort::Deployment, ELASTIC) => match self.dice.below(8) {
                0..3 => self.scale(workload, 11).await,
                3..5 => self.roll_out(workload, 10).await,
                5 => {
                    let paused = self.dice.percent(50);
                    self.merge(workload, json!({ "spec": { "paused": paused } })).await;
                }
                6 => self.delete_a_pod(workload).await,
                _ => self.make_anew(workload).await,
            },
            (Sort::StatefulSet, _) => match self.dice.below(6) {
                0..3 => self.scale(workload, 6).await,
                3 => self.roll_out(workload, 0).await,
                4 => {
                    let partition = self.dice.below(4);
                    let strategy = json!({ "rollingUpdate": { "partition": partition } });
                    self.merge(workload, json!({ "spec": { "updateStrategy": strategy } })).await;
                }
                _ => self.delete_a_pod(workload).await,
            },
            (Sort::DaemonSet, _) => match self.dice.below(3) {
                0 => {
                    let selector = json!({ ZONE: self.dice.pick(&ZONES).unwrap() });
                    let template = json!({ "spec": { "nodeSelector": selector } });
                    self.merge(workload, json!({ "spec": { "template": template } })).await;
                }
                1 => self.roll_out(workload, 20).await,
                _ => self.delete_a_pod(workload).await,
            },
            (Sort::Job, _) => match self.dice.below(8) {
                0..2 => {
                    let parallelism = self.dice.below(5);
                    self.merge(workload, json!({ "spec": { "parallelism": parallelism } })).await;
                }
                2 => self.merge(workload, json!({ "spec": { "suspend": true } })).await,
                3 => self.merge(workload, json!({ "spec": { "suspend": false } })).await,
                4 => self.delete_a_pod(workload).await,
                _ => self.make_anew(workload).await,
            },
            (Sort::CronJob, _) => {
                let suspend = self.dice.percent(20);
                self.merge(workload, json!({ "spec": { "suspend": suspend } })).await;
            }
            (Sort::Deployment, other) => panic!("a deployment of the class {other}"),
        }
    }

    /// Puts everything into a state that can be reached, and leaves it there.
    pub(super) async fn come_to_rest(&mut self, world: &World) {
        for node in 0..world.node_count() {
            self.cordon_node(&format!("node-{node}"), false).await;
        }
        if self.guests.1 {
            self.guest().await;
        }
        let mut workloads = std::mem::take(&mut self.workloads);
        for workload in &mut workloads {
            match (workload.sort, workload.class) {
                (Sort::Deployment, LEFT | GUARDED) | (Sort::StatefulSet, LEFT) => {}
                (Sort::Deployment, _) => {
                    self.roll_out(workload, 0).await;
                    let replicas = if workload.namespace == TIGHT { json!(1) } else { Value::Null };
                    let mut spec = json!({ "paused": false });
                    if !replicas.is_null() {
                        spec["replicas"] = replicas;
                    }
                    self.merge(workload, json!({ "spec": spec })).await;
                }
                (Sort::StatefulSet, _) => {
                    let strategy = json!({ "rollingUpdate": { "partition": 0 } });
                    self.merge(workload, json!({ "spec": { "updateStrategy": strategy } })).await;
                }
                (Sort::DaemonSet, _) => self.roll_out(workload, 0).await,
                (Sort::Job, _) => {
                    self.merge(workload, json!({ "spec": { "suspend": false, "parallelism": 3 } })).await;
                }
                (Sort::CronJob, _) => self.merge(workload, json!({ "spec": { "suspend": true } })).await,
            }
        }
        self.workloads = workloads;
    }

    fn api(&self, sort: Sort, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource(sort))
    }

    fn name_of(workload: &Workload) -> String {
        if workload.sort == Sort::Job { zoo::job_name(workload) } else { workload.name.clone() }
    }

    async fn merge(&self, workload: &Workload, patch: Value) {
        let api = self.api(workload.sort, &workload.namespace);
        may_fail(api.patch(&Self::name_of(workload), &PatchParams::default(), &Patch::Merge(patch)).await);
    }

    /// Asks for another template, now and then one that never becomes ready.
    async fn roll_out(&mut self, workload: &mut Workload, broken: u64) {
        workload.version += 1;
        let pods = if self.dice.percent(broken) { Pods::Broken } else { zoo::good(&mut self.dice) };
        let template = zoo::template(&workload.name, workload.version, pods);
        self.merge(workload, json!({ "spec": { "template": template } })).await;
    }

    async fn scale(&mut self, workload: &Workload, below: u64) {
        let replicas = self.dice.below(below);
        self.merge(workload, json!({ "spec": { "replicas": replicas } })).await;
    }

    async fn pods(&self, workload: &Workload) -> Vec<Pod> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &workload.namespace);
        let mut pods =
            api.list(&ListParams::default().labels(&format!("app={}", workload.name))).await.unwrap().items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        pods
    }

    async fn some_pod(&mut self, workload: &Workload) -> Option<Pod> {
        let pods = self.pods(workload).await;
        self.dice.pick(&pods).cloned()
    }

    async fn delete_a_pod(&mut self, workload: &Workload) {
        let Some(pod) = self.some_pod(workload).await else { return };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &workload.namespace);
        self.by_hand.lock().insert(pod.uid().unwrap_or_default());
        may_fail(api.delete(&pod.name_any(), &DeleteParams::default()).await);
    }

    /// Tries to evict a few pods at once; the budget says how many go.
    async fn evict(&mut self, workload: &Workload) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &workload.namespace);
        for pod in self.pods(workload).await.iter().take(1 + usize::try_from(self.dice.below(4)).unwrap()) {
            match may_fail(api.evict(&pod.name_any(), &EvictParams::default()).await) {
                Some(_) => self.done.evicted += 1,
                None => self.done.not_evicted += 1,
            }
        }
    }

    /// Asks for another size of a pod that runs.
    async fn resize(&mut self, workload: &Workload) {
        let Some(pod) = self.some_pod(workload).await else { return };
        let cpu = format!("{}m", 5 + self.dice.below(40));
        let container = json!({ "name": "main", "resources": { "requests": { "cpu": cpu } } });
        let patch = Patch::Strategic(json!({ "spec": { "containers": [container] } }));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &workload.namespace);
        may_fail(api.patch_resize(&pod.name_any(), &PatchParams::default(), &patch).await);
    }

    /// Deletes a workload, and asks for it again.
    async fn make_anew(&mut self, workload: &mut Workload) {
        let api = self.api(workload.sort, &workload.namespace);
        let name = Self::name_of(workload);
        let old = may_fail(api.get(&name).await);
        let how = [PropagationPolicy::Background, PropagationPolicy::Foreground];
        let how =
            DeleteParams { propagation_policy: self.dice.pick(&how).cloned(), ..DeleteParams::default() };
        may_fail(api.delete(&name, &how).await);
        workload.version += 1;
        // A deployment that is deleted in the foreground stays until its pods are gone: it is made the next time.
        let object = match old {
            _ if workload.sort == Sort::Job => zoo::job(workload, &mut self.dice),
            None => zoo::deployment_again(workload, &mut self.dice),
            Some(old) => json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "spec": old.data["spec"],
                "metadata": { "name": name, "namespace": workload.namespace, "labels": old.metadata.labels },
            }),
        };
        self.make(&object).await;
    }

    async fn make_namespace(&self, name: &str) {
        self.make(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await;
    }

    async fn make(&self, object: &Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let kind = GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        may_fail(api.create(&PostParams::default(), &object).await);
    }
}
