//! An API server in this process with workloads and VPAs.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use plumb_client::Api;
use plumb_testkit::{TestCluster, object};
use plumb_vpa::install::install;
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};

/// A number from the environment, such as `PLUMB_BENCH_PODS`, for a run that is smaller than the real one.
pub(crate) fn size(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The middle of some measurements, and the one that 99 of 100 are not above.
pub(crate) fn p50_and_p99(mut of: Vec<Duration>) -> (Duration, Duration) {
    of.sort_unstable();
    let at = |percent: usize| of[(of.len() * percent / 100).min(of.len() - 1)];
    (at(50), at(99))
}

/// A cluster with the definitions of VPAs.
pub(crate) struct Bed {
    /// It lasts as long as this.
    pub(crate) cluster: TestCluster,
    pub(crate) client: Client,
}

impl Bed {
    pub(crate) async fn start() -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let cluster = TestCluster::start();
        let client = cluster.admin();
        install(&client).await.unwrap();
        Self { cluster, client }
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn vpas(&self) -> Api<VerticalPodAutoscaler> {
        Api::default_namespaced(self.client.clone())
    }

    /// A Deployment with a ReplicaSet of the same name, whose UID is returned.
    pub(crate) async fn workload(&self, name: &str, replicas: usize) -> String {
        let labels = json!({ "app": name });
        let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "app", "image": "i" }] } });
        let spec =
            json!({ "replicas": replicas, "selector": { "matchLabels": labels }, "template": template });
        let deployments: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let deployment = object(json!({ "metadata": { "name": name }, "spec": spec }));
        let deployment = deployments.create(&PostParams::default(), &deployment).await.unwrap();
        let owner = json!([{
            "apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": deployment.uid(), "controller": true,
        }]);
        let sets: Api<ReplicaSet> = Api::default_namespaced(self.client.clone());
        let set = object(
            json!({ "metadata": { "name": name, "labels": labels, "ownerReferences": owner }, "spec": spec }),
        );
        sets.create(&PostParams::default(), &set).await.unwrap().uid().unwrap()
    }

    /// A VPA of a workload.
    pub(crate) async fn vpa(&self, name: &str, spec: Value) {
        let mut spec = spec;
        spec["targetRef"] = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": name });
        let vpa = object(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": { "name": name }, "spec": spec,
        }));
        self.vpas().create(&PostParams::default(), &vpa).await.unwrap();
    }

    /// Recommends this CPU for the container `app`.
    pub(crate) async fn recommend(&self, vpa: &str, cpu: &str) {
        let amounts = json!({ "cpu": cpu, "memory": "64Mi" });
        let recommended = json!([{ "containerName": "app", "target": amounts, "lowerBound": amounts, "upperBound": amounts }]);
        let patch = json!({ "status": { "recommendation": { "containerRecommendations": recommended } } });
        self.vpas().patch_status(vpa, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// A pod of a workload.
    pub(crate) fn pod(workload: &str, uid: &str, name: &str, cpu: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "labels": { "app": workload },
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "uid": uid, "controller": true,
                }],
            },
            "spec": { "containers": [{
                "name": "app", "image": "plumb/load", "resources": { "requests": { "cpu": cpu, "memory": "64Mi" } },
            }] },
        })
    }
}
