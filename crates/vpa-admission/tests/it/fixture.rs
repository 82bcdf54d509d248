//! A cluster whose API server calls the webhook over TLS, as any does.

use http::Request;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use plumb_client::Api;
use plumb_controller_runtime::{Clock, Informer};
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, in_time, object};
use plumb_vpa::install::install;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa_admission::metrics::AdmissionMetrics;
use plumb_vpa_admission::registration::registration;
use plumb_vpa_admission::status_lease::StatusLease;
use plumb_vpa_admission::vpa::Gates;
use plumb_vpa_admission::{Admission, Environment, Options};
use plumb_vpa_api::VerticalPodAutoscaler;
use plumb_webhook::Registration;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A cluster with the definitions of VPAs.
pub(crate) struct Fixture {
    pub(crate) cluster: TestCluster,
    pub(crate) client: Client,
}

/// A webhook that runs. It ends when this is dropped.
pub(crate) struct Running {
    pub(crate) vpas: Informer<VerticalPodAutoscaler>,
    pub(crate) metrics: AdmissionMetrics,
    pub(crate) supervisor: Supervisor,
    pub(crate) port: u16,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

pub(crate) fn options() -> Options {
    // With the longest timeout there is: after it the API server creates a pod as it is.
    let register =
        |endpoint| Registration { timeout_seconds: 30, ..registration(endpoint, &Namespaces::All) };
    Options {
        server: plumb_webhook::Options::on_loopback("kube-system", "vpa-webhook-ca", register),
        status_lease: StatusLease::new("kube-system", "test"),
        max_allowed_cpu_boost: None,
        gates: Gates { startup_boost: true, in_place: true, per_vpa_config: true },
        node_selectors: false,
    }
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let cluster = TestCluster::start();
        let client = cluster.admin();
        install(&client).await.unwrap();
        Self { cluster, client }
    }

    /// Runs a webhook, and waits until the API server calls it.
    pub(crate) async fn webhook(&self, options: Options) -> Running {
        self.webhook_with(self.client.clone(), options).await
    }

    /// The same with a client of its own.
    pub(crate) async fn webhook_with(&self, client: Client, options: Options) -> Running {
        let vpas: Informer<VerticalPodAutoscaler> = Informer::default();
        let (metrics, supervisor) = (AdmissionMetrics::default(), Supervisor::default());
        let environment = Environment {
            client: client.clone(),
            vpas: vpas.clone(),
            supervisor: supervisor.clone(),
            metrics: plumb_controller_runtime::metrics::Metrics::default(),
            admission_metrics: metrics.clone(),
            clock: Clock::default(),
        };
        let admission = Admission::new(options, environment);
        let (mut listening, mut registered) = (admission.listening(), admission.registered());
        let informer = vpas.supervised(Api::all(client), &supervisor);
        let tasks = vec![tokio::spawn(informer), tokio::spawn(admission.run())];
        in_time(registered.wait_for(|registered| *registered)).await.unwrap();
        let port = listening.wait_for(Option::is_some).await.unwrap().unwrap().port();
        Running { vpas, metrics, supervisor, port, tasks }
    }

    /// A Deployment with a ReplicaSet, whose pods tests create.
    pub(crate) async fn workload(&self, name: &str) {
        let labels = json!({ "app": name });
        let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        let spec = json!({ "selector": { "matchLabels": labels }, "template": template });
        let deployment: Deployment = object(json!({ "metadata": { "name": name }, "spec": spec }));
        let deployments: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let deployment = deployments.create(&PostParams::default(), &deployment).await.unwrap();
        let owner = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": name, "controller": true,
                            "uid": deployment.metadata.uid });
        let metadata = json!({ "name": format!("{name}-1"), "labels": labels, "ownerReferences": [owner] });
        let replica_set: ReplicaSet = object(json!({ "metadata": metadata, "spec": spec }));
        let replica_sets: Api<ReplicaSet> = Api::default_namespaced(self.client.clone());
        replica_sets.create(&PostParams::default(), &replica_set).await.unwrap();
    }

    /// Creates a VPA for a workload of the same name, and waits until a webhook knows its recommendation.
    pub(crate) async fn vpa(
        &self,
        running: &Running,
        name: &str,
        spec: Value,
        recommendations: Value,
    ) -> VerticalPodAutoscaler {
        let stored = self.create_vpa(name, name, spec).await.unwrap();
        let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(self.client.clone());
        let status =
            json!({ "status": { "recommendation": { "containerRecommendations": recommendations } } });
        vpas.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        let vpa = vpas.get(name).await.unwrap();
        let version = vpa.metadata.resource_version.clone();
        let known = plumb_controller_runtime::ObjectRef::of(&stored);
        plumb_testkit::eventually(async || {
            running.vpas.get(&known).is_some_and(|vpa| vpa.metadata.resource_version == version)
        })
        .await;
        vpa
    }

    pub(crate) async fn create_vpa(
        &self,
        name: &str,
        target: &str,
        spec: Value,
    ) -> Result<VerticalPodAutoscaler, kube::Error> {
        let body = vpa_body(name, target, spec);
        let path = "/apis/autoscaling.k8s.io/v1/namespaces/default/verticalpodautoscalers";
        let request = Request::post(path).header("content-type", "application/json");
        self.client.request(request.body(serde_json::to_vec(&body).unwrap()).unwrap()).await
    }

    /// Creates a pod of a workload.
    pub(crate) async fn pod(&self, workload: &str, containers: &Value) -> Result<Pod, kube::Error> {
        let replica_sets: Api<ReplicaSet> = Api::default_namespaced(self.client.clone());
        let owner = replica_sets.get(&format!("{workload}-1")).await.unwrap();
        let owner = plumb_controller_runtime::controller_reference(&owner);
        let pod: Pod = object(json!({
            "metadata": { "generateName": format!("{workload}-1-"), "labels": { "app": workload }, "ownerReferences": [owner] },
            "spec": { "containers": containers },
        }));
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        pods.create(&PostParams::default(), &pod).await
    }
}

pub(crate) fn vpa_body(name: &str, target: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["targetRef"] = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": target });
    json!({ "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": { "name": name }, "spec": spec })
}

/// `cpu request/cpu limit/memory request` of each container.
pub(crate) fn resources(pod: &Pod) -> Vec<String> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let shown = |container: &k8s_openapi::api::core::v1::Container| {
        let resources = container.resources.clone().unwrap_or_default();
        let amount = |list: &Option<std::collections::BTreeMap<String, _>>, name: &str| {
            let list: &Option<
                std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
            > = list;
            list.as_ref()
                .and_then(|list| list.get(name))
                .map_or("-".to_owned(), |quantity| quantity.0.clone())
        };
        let (requests, limits) = (resources.requests, resources.limits);
        format!("{}/{}/{}", amount(&requests, "cpu"), amount(&limits, "cpu"), amount(&requests, "memory"))
    };
    containers.map(shown).collect()
}

pub(crate) fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// A container.
pub(crate) fn container(name: &str, resources: &Value) -> Value {
    json!({ "name": name, "image": "i", "resources": resources })
}
