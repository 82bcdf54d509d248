//! A cluster with an installation, a workload of every kind that a VPA may target, a running pod of each, and its VPA.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use plumb_apiserver::usage::{Amounts, NodeUsage, PodUsage, Span, UsageSource};
use plumb_client::Api;
use plumb_install::apply::Mode;
use plumb_testkit::{TestCluster, object};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};

use crate::apply::{all, installed};

/// The kinds, and whether their replicas are read through `/scale`.
pub(super) const KINDS: [(&str, &str); 8] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("v1", "ReplicationController"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("apps.kruise.io/v1alpha1", "CloneSet"),
];

pub(super) struct World {
    pub(super) cluster: TestCluster,
    pub(super) admin: Client,
}

/// A metrics API in which every container has the same usage.
struct Steady;

impl UsageSource for Steady {
    fn node(&self, _: &str) -> Option<NodeUsage> {
        None
    }

    fn pod(&self, _: &str, _: &str, _: &str) -> Option<PodUsage> {
        let used = Amounts { cpu: "100m".parse().ok()?, memory: "300Mi".parse().ok()? };
        let span = Span { until: Timestamp::now(), length: Duration::from_secs(1) };
        Some(PodUsage { span, containers: vec![("app".to_owned(), used)] })
    }
}

impl World {
    pub(super) async fn new() -> Self {
        let options =
            plumb_testkit::Options { usage: Some(Arc::new(Steady)), ..plumb_testkit::Options::default() };
        let cluster = TestCluster::with(options);
        let admin = cluster.admin();
        installed(&admin, &all(), Mode::default()).await.unwrap();
        let world = Self { cluster, admin };
        let allocatable = json!({ "cpu": "8", "memory": "32Gi", "pods": "110" });
        let node = json!({
            "metadata": { "name": "n", "labels": { "kubernetes.io/os": "linux" } },
            "status": { "allocatable": allocatable, "capacity": allocatable },
        });
        world.create("v1", "Node", node).await;
        world
    }

    /// An object in the namespace `default`, or of the cluster.
    pub(super) async fn create(&self, api_version: &str, kind: &str, mut json: Value) -> DynamicObject {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        (json["apiVersion"], json["kind"]) = (json!(api_version), json!(kind));
        let api: Api<DynamicObject> = match kind {
            "Node" => Api::all_with(self.admin.clone(), &resource),
            _ => Api::namespaced_with(self.admin.clone(), "default", &resource),
        };
        let created = api.create(&PostParams::default(), &object(json)).await;
        created.unwrap_or_else(|error| panic!("{kind}: {error}"))
    }

    /// A workload of a kind, two running pods of it, and its VPA; each is called as the kind.
    pub(super) async fn workload(&self, api_version: &str, kind: &str, mode: &str) {
        let name = kind.to_lowercase();
        let labels = json!({ "app": name });
        let template = json!({
            "metadata": { "labels": labels },
            "spec": { "containers": [{ "name": "app", "image": "i" }], "restartPolicy": if kind.ends_with("Job") || kind == "CronJob" { "Never" } else { "Always" } },
        });
        let selector = json!({ "matchLabels": labels });
        let spec = match kind {
            "ReplicationController" => json!({ "replicas": 2, "selector": labels, "template": template }),
            "Job" => json!({ "template": template }),
            "CronJob" => {
                json!({ "schedule": "0 0 1 1 *", "jobTemplate": { "metadata": { "labels": labels }, "spec": { "template": template } } })
            }
            "DaemonSet" => json!({ "selector": selector, "template": template }),
            "StatefulSet" => {
                json!({ "replicas": 2, "serviceName": "x", "selector": selector, "template": template })
            }
            _ => json!({ "replicas": 2, "selector": selector, "template": template }),
        };
        let mut owner =
            self.create(api_version, kind, json!({ "metadata": { "name": name }, "spec": spec })).await;
        let mut owner_version = (api_version, kind);
        // The object between the workload and its pods, such as a ReplicaSet.
        let between = match kind {
            "Deployment" => Some((
                "apps/v1",
                "ReplicaSet",
                json!({ "replicas": 2, "selector": selector, "template": template }),
            )),
            "CronJob" => Some(("batch/v1", "Job", json!({ "template": template }))),
            _ => None,
        };
        if let Some((api_version, kind_between, spec)) = between {
            let metadata = json!({
                "name": format!("{name}-1"), "labels": labels, "ownerReferences": [reference(owner_version, &owner)],
            });
            owner =
                self.create(api_version, kind_between, json!({ "metadata": metadata, "spec": spec })).await;
            owner_version = (api_version, kind_between);
        }
        for number in 0..2 {
            self.pod(&format!("{name}-{number}"), &name, &reference(owner_version, &owner)).await;
        }
        self.vpa(&name, api_version, kind, mode).await;
    }

    /// A VPA for the workload of a kind.
    pub(super) async fn vpa(&self, name: &str, api_version: &str, kind: &str, mode: &str) {
        let vpa: VerticalPodAutoscaler = object(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": name },
            "spec": {
                "targetRef": { "apiVersion": api_version, "kind": kind, "name": kind.to_lowercase() },
                "updatePolicy": { "updateMode": mode, "minReplicas": 1 },
            },
        }));
        let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(self.admin.clone());
        vpas.create(&PostParams::default(), &vpa).await.unwrap();
    }

    /// A VPA for the pods of the `DaemonSet` on some nodes.
    pub(super) async fn vpa_of_nodes(&self, name: &str) {
        self.vpa(name, "apps/v1", "DaemonSet", "Initial").await;
        let annotations = json!({ "plumb.dev/node-selector": "size=large" });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(self.admin.clone());
        vpas.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// A pod of the `DaemonSet` on a node that no component has observed.
    pub(super) async fn pod_on_unknown_node(&self, annotations: Value) {
        let pods: Api<Pod> = Api::default_namespaced(self.admin.clone());
        let one = pods.get("daemonset-0").await.unwrap();
        let owners = one.metadata.owner_references;
        let pod = json!({
            "metadata": { "generateName": "daemonset-", "labels": { "app": "daemonset" }, "ownerReferences": owners,
                          "annotations": annotations },
            "spec": { "nodeName": "unknown", "containers": [{
                "name": "app", "image": "i", "resources": { "requests": { "cpu": "300m" } },
            }] },
        });
        self.create("v1", "Pod", pod).await;
    }

    /// A running pod.
    pub(super) async fn pod(&self, name: &str, app: &str, owner: &Value) {
        let resources = json!({ "requests": { "cpu": "200m", "memory": "400Mi" } });
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": app }, "ownerReferences": [owner] },
            "spec": { "nodeName": "n", "containers": [{ "name": "app", "image": "i", "resources": resources }] },
        });
        self.create("v1", "Pod", pod).await;
        let now = Timestamp::now().to_string();
        let status = json!({ "status": {
            "phase": "Running", "startTime": now,
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": now }],
            "containerStatuses": [{
                "name": "app", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "started": true,
                "state": { "running": { "startedAt": now } },
                "allocatedResources": resources["requests"], "resources": resources,
            }],
        } });
        // Only the node reports the resources that a pod has.
        let node = self.cluster.client_as("system:node:n", ["system:nodes"]);
        let pods: Api<Pod> = Api::default_namespaced(node);
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// Creates another pod of a workload.
    pub(super) async fn another_pod(&self, kind: &str) {
        let name = kind.to_lowercase();
        let pods: Api<Pod> = Api::default_namespaced(self.admin.clone());
        let one = pods.get(&format!("{name}-0")).await.unwrap();
        let owner = json!(one.metadata.owner_references.unwrap_or_default()[0]);
        self.pod(&format!("{name}-another"), &name, &owner).await;
    }

    /// The Lease that the admission webhook renews.
    pub(super) async fn admission_lease(&self, namespace: &str, renewed: Timestamp) {
        let lease = object(json!({
            "metadata": { "name": "vpa-admission-controller" },
            "spec": { "renewTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(renewed) },
        }));
        let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
            Api::namespaced(self.admin.clone(), namespace);
        leases.create(&PostParams::default(), &lease).await.unwrap();
    }

    /// Recommends more than the pods of a workload have.
    pub(super) async fn recommend(&self, vpa: &str) {
        self.recommend_cpu(vpa, 500).await;
    }

    /// Recommends so many millicores.
    pub(super) async fn recommend_cpu(&self, vpa: &str, milli: u32) {
        let amounts = |milli: u32| json!({ "cpu": format!("{milli}m"), "memory": "400Mi" });
        let recommended = json!([{
            "containerName": "app",
            "target": amounts(milli), "lowerBound": amounts(milli - 50), "upperBound": amounts(milli + 50),
        }]);
        let patch = json!({ "status": { "recommendation": { "containerRecommendations": recommended } } });
        let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(self.admin.clone());
        vpas.patch_status(vpa, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

fn reference((api_version, kind): (&str, &str), owner: &DynamicObject) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": owner.name_any(), "uid": owner.uid(), "controller": true,
    })
}
