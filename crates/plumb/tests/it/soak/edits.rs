//! Random edits of the workloads of a soak, as far as the class of a workload allows.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::super::dice::Dice;
use super::cluster::{Cluster, ZONE, ZONES};
use super::observed_pods::DeletedByEditor;
use super::workloads::{self, ELASTIC, GUARDED, Kind, LIMITED, Pods, STEADY, UNTOUCHED, Workload};

/// Edits the cluster.
pub(super) struct Editor {
    client: Client,
    pub(super) dice: Dice,
    pub(super) workloads: Vec<Workload>,
    /// The number of the temporary namespace, and whether it exists.
    temporary: (u64, bool),
    /// The pods that it deletes itself.
    deleted_pods: DeletedByEditor,
    /// What it has done.
    pub(super) counts: EditCounts,
}

/// The number of edits by kind.
#[derive(Debug, Default)]
pub(super) struct EditCounts {
    edits: u64,
    evicted: u64,
    not_evicted: u64,
    restarts: u64,
}

fn resource(kind: Kind) -> ApiResource {
    let (group, kind) = match kind {
        Kind::Deployment => ("apps", "Deployment"),
        Kind::StatefulSet => ("apps", "StatefulSet"),
        Kind::DaemonSet => ("apps", "DaemonSet"),
        Kind::Job => ("batch", "Job"),
        Kind::CronJob => ("batch", "CronJob"),
    };
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

/// The result of an edit, which may fail because its object was deleted or changed meanwhile.
fn may_fail<T>(outcome: kube::Result<T>) -> Option<T> {
    match outcome {
        Ok(counts) => Some(counts),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 429) => None,
        Err(error) => panic!("an edit was rejected: {error}"),
    }
}

impl Editor {
    /// Creates so many workloads.
    pub(super) async fn start(
        client: Client,
        count: u64,
        deleted_by_editor: DeletedByEditor,
        mut dice: Dice,
    ) -> Self {
        let mut editor = Self {
            client,
            dice: Dice::new(0),
            workloads: Vec::new(),
            temporary: (0, false),
            deleted_pods: deleted_by_editor,
            counts: EditCounts::default(),
        };
        for namespace in workloads::namespaces() {
            editor.create_namespace(&namespace).await;
        }
        let hard =
            json!({ "pods": workloads::LIMITED_PODS.to_string(), "requests.cpu": workloads::LIMITED_CPU });
        editor
            .create(&json!({
                "apiVersion": "v1", "kind": "ResourceQuota", "spec": { "hard": hard },
                "metadata": { "name": "quota", "namespace": LIMITED },
            }))
            .await;
        for (workload, objects) in workloads::all(count, &mut dice) {
            for object in &objects {
                editor.create(object).await;
            }
            editor.workloads.push(workload);
        }
        editor.dice = dice;
        editor
    }

    /// Does a random edit.
    pub(super) async fn edit(&mut self, cluster: &mut Cluster) {
        self.counts.edits += 1;
        match self.dice.below(100) {
            0..3 => {
                self.counts.restarts += 1;
                self.restart_something(cluster).await;
            }
            3..5 => self.cordon(cluster).await,
            5..7 => self.toggle_temporary_namespace().await,
            _ => {
                let at = self.dice.below(u64::try_from(self.workloads.len()).unwrap());
                let at = usize::try_from(at).unwrap();
                let mut workload = self.workloads[at].clone();
                self.edit_workload(&mut workload).await;
                self.workloads[at] = workload;
            }
        }
    }

    async fn restart_something(&mut self, cluster: &mut Cluster) {
        match self.dice.below(4) {
            0 => cluster.restart_controllers().await,
            1 => cluster.restart_scheduler().await,
            _ => {
                let nodes = u64::try_from(cluster.node_count()).unwrap();
                let node = usize::try_from(self.dice.below(nodes)).unwrap();
                cluster.restart_agent(node).await;
            }
        }
    }

    /// Cordons or uncordons a node.
    async fn cordon(&mut self, cluster: &Cluster) {
        let nodes = u64::try_from(cluster.node_count()).unwrap();
        let name = format!("node-{}", self.dice.below(nodes));
        let cordoned = self.dice.percent(30);
        self.cordon_node(&name, cordoned).await;
    }

    async fn cordon_node(&self, name: &str, cordoned: bool) {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": cordoned } }));
        may_fail(nodes.patch(name, &PatchParams::default(), &patch).await);
    }

    /// Creates a temporary namespace with workloads of every kind, or deletes it.
    async fn toggle_temporary_namespace(&mut self) {
        let (number, exists) = self.temporary;
        let name = format!("{}{number}", workloads::TEMPORARY);
        if exists {
            self.temporary = (number + 1, false);
            let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client.clone());
            may_fail(namespaces.delete(&name, &DeleteParams::default()).await);
            return;
        }
        self.temporary = (number, true);
        self.create_namespace(&name).await;
        for (_, objects) in workloads::all(20, &mut self.dice) {
            for mut object in objects {
                if object["metadata"]["namespace"] != LIMITED && object["kind"] != "DaemonSet" {
                    object["metadata"]["namespace"] = json!(name);
                    // It is deleted with all its pods, whatever its class was.
                    object["metadata"]["labels"][workloads::CLASS] = json!(ELASTIC);
                    self.create(&object).await;
                }
            }
        }
    }

    async fn edit_workload(&mut self, workload: &mut Workload) {
        match (workload.kind, workload.class) {
            (Kind::Deployment, GUARDED) => self.evict(workload).await,
            (_, UNTOUCHED) => self.resize(workload).await,
            (Kind::Deployment | Kind::DaemonSet, STEADY) => self.roll_out(workload, 20).await,
            (Kind::Deployment, ELASTIC) => match self.dice.below(8) {
                0..3 => self.scale(workload, 11).await,
                3..5 => self.roll_out(workload, 10).await,
                5 => {
                    let paused = self.dice.percent(50);
                    self.merge(workload, json!({ "spec": { "paused": paused } })).await;
                }
                6 => self.delete_a_pod(workload).await,
                _ => self.recreate(workload).await,
            },
            (Kind::StatefulSet, _) => match self.dice.below(6) {
                0..3 => self.scale(workload, 6).await,
                3 => self.roll_out(workload, 0).await,
                4 => {
                    let partition = self.dice.below(4);
                    let strategy = json!({ "rollingUpdate": { "partition": partition } });
                    self.merge(workload, json!({ "spec": { "updateStrategy": strategy } })).await;
                }
                _ => self.delete_a_pod(workload).await,
            },
            (Kind::DaemonSet, _) => match self.dice.below(3) {
                0 => {
                    let selector = json!({ ZONE: self.dice.pick(&ZONES).unwrap() });
                    let template = json!({ "spec": { "nodeSelector": selector } });
                    self.merge(workload, json!({ "spec": { "template": template } })).await;
                }
                1 => self.roll_out(workload, 20).await,
                _ => self.delete_a_pod(workload).await,
            },
            (Kind::Job, _) => match self.dice.below(8) {
                0..2 => {
                    let parallelism = self.dice.below(5);
                    self.merge(workload, json!({ "spec": { "parallelism": parallelism } })).await;
                }
                2 => self.merge(workload, json!({ "spec": { "suspend": true } })).await,
                3 => self.merge(workload, json!({ "spec": { "suspend": false } })).await,
                4 => self.delete_a_pod(workload).await,
                _ => self.recreate(workload).await,
            },
            (Kind::CronJob, _) => {
                let suspend = self.dice.percent(20);
                self.merge(workload, json!({ "spec": { "suspend": suspend } })).await;
            }
            (Kind::Deployment, other) => panic!("a deployment of the class {other}"),
        }
    }

    /// Gives everything a desired state that can be reached.
    pub(super) async fn set_final_state(&mut self, cluster: &Cluster) {
        for node in 0..cluster.node_count() {
            self.cordon_node(&format!("node-{node}"), false).await;
        }
        if self.temporary.1 {
            self.toggle_temporary_namespace().await;
        }
        let mut workloads = std::mem::take(&mut self.workloads);
        for workload in &mut workloads {
            match (workload.kind, workload.class) {
                (Kind::Deployment, UNTOUCHED | GUARDED) | (Kind::StatefulSet, UNTOUCHED) => {}
                (Kind::Deployment, _) => {
                    self.roll_out(workload, 0).await;
                    let replicas = if workload.namespace == LIMITED { json!(1) } else { Value::Null };
                    let mut spec = json!({ "paused": false });
                    if !replicas.is_null() {
                        spec["replicas"] = replicas;
                    }
                    self.merge(workload, json!({ "spec": spec })).await;
                }
                (Kind::StatefulSet, _) => {
                    let strategy = json!({ "rollingUpdate": { "partition": 0 } });
                    self.merge(workload, json!({ "spec": { "updateStrategy": strategy } })).await;
                }
                (Kind::DaemonSet, _) => self.roll_out(workload, 0).await,
                (Kind::Job, _) => {
                    self.merge(workload, json!({ "spec": { "suspend": false, "parallelism": 3 } })).await;
                }
                (Kind::CronJob, _) => self.merge(workload, json!({ "spec": { "suspend": true } })).await,
            }
        }
        self.workloads = workloads;
    }

    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource(kind))
    }

    fn name_of(workload: &Workload) -> String {
        if workload.kind == Kind::Job { workloads::job_name(workload) } else { workload.name.clone() }
    }

    async fn merge(&self, workload: &Workload, patch: Value) {
        let api = self.api(workload.kind, &workload.namespace);
        may_fail(api.patch(&Self::name_of(workload), &PatchParams::default(), &Patch::Merge(patch)).await);
    }

    /// Changes the template, now and then to one whose pods never become ready.
    async fn roll_out(&mut self, workload: &mut Workload, broken: u64) {
        workload.version += 1;
        let pods =
            if self.dice.percent(broken) { Pods::Broken } else { workloads::becomes_ready(&mut self.dice) };
        let template = workloads::template(&workload.name, workload.version, pods);
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

    async fn random_pod(&mut self, workload: &Workload) -> Option<Pod> {
        let pods = self.pods(workload).await;
        self.dice.pick(&pods).cloned()
    }

    async fn delete_a_pod(&mut self, workload: &Workload) {
        let Some(pod) = self.random_pod(workload).await else { return };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &workload.namespace);
        self.deleted_pods.lock().insert(pod.uid().unwrap_or_default());
        may_fail(api.delete(&pod.name_any(), &DeleteParams::default()).await);
    }

    /// Tries to evict a few pods at once; the budget limits them.
    async fn evict(&mut self, workload: &Workload) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &workload.namespace);
        for pod in self.pods(workload).await.iter().take(1 + usize::try_from(self.dice.below(4)).unwrap()) {
            match may_fail(api.evict(&pod.name_any(), &EvictParams::default()).await) {
                Some(_) => self.counts.evicted += 1,
                None => self.counts.not_evicted += 1,
            }
        }
    }

    /// Resizes a running pod.
    async fn resize(&mut self, workload: &Workload) {
        let Some(pod) = self.random_pod(workload).await else { return };
        let cpu = format!("{}m", 5 + self.dice.below(40));
        let container = json!({ "name": "main", "resources": { "requests": { "cpu": cpu } } });
        let patch = Patch::Strategic(json!({ "spec": { "containers": [container] } }));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &workload.namespace);
        may_fail(api.patch_resize(&pod.name_any(), &PatchParams::default(), &patch).await);
    }

    /// Deletes a workload, and creates it again.
    async fn recreate(&mut self, workload: &mut Workload) {
        let api = self.api(workload.kind, &workload.namespace);
        let name = Self::name_of(workload);
        let old = may_fail(api.get(&name).await);
        let params = [PropagationPolicy::Background, PropagationPolicy::Foreground];
        let params =
            DeleteParams { propagation_policy: self.dice.pick(&params).cloned(), ..DeleteParams::default() };
        may_fail(api.delete(&name, &params).await);
        workload.version += 1;
        // A deployment that is deleted in the foreground exists until its pods are deleted: the next edit creates it.
        let object = match old {
            _ if workload.kind == Kind::Job => workloads::job(workload, &mut self.dice),
            None => workloads::deployment_again(workload, &mut self.dice),
            Some(old) => json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "spec": old.data["spec"],
                "metadata": { "name": name, "namespace": workload.namespace, "labels": old.metadata.labels },
            }),
        };
        self.create(&object).await;
    }

    async fn create_namespace(&self, name: &str) {
        self.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await;
    }

    async fn create(&self, object: &Value) {
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
