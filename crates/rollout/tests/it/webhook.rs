//! The webhook on a real API server, which calls it over TLS.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use plumb_client::Api;
use plumb_controller_runtime::Clock;
use plumb_controller_runtime::metrics::Metrics;
use plumb_resize::rules::Rules;
use plumb_rollout::api::RolloutPolicy;
use plumb_rollout::api::cloneset::CloneSet;
use plumb_rollout::install::{install, install_cloneset};
use plumb_rollout::webhook::{self, HoldWebhook, NAME, SECRET};
use plumb_rollout::workloads::{IN_PLACE_ANNOTATION, RECORD_ANNOTATION};
use plumb_supervise::Supervisor;
use plumb_testkit::{TestCluster, eventually, in_time, object};
use plumb_webhook::Options;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

struct Fixture {
    _cluster: TestCluster,
    client: Client,
    webhook: JoinHandle<()>,
    supervisor: Supervisor,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.webhook.abort();
    }
}

impl Fixture {
    async fn start() -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let cluster = TestCluster::start();
        let client = cluster.admin();
        install(&client).await.unwrap();
        let supervisor = Supervisor::default();
        let webhook = HoldWebhook::new(webhook::Config {
            client: client.clone(),
            server: Options::on_loopback("kube-system", SECRET, webhook::registration),
            rules: Rules::v1_36(),
            clock: Clock::default(),
            supervisor: supervisor.clone(),
            metrics: Metrics::default(),
        });
        let mut registered = webhook.registered();
        let webhook = tokio::spawn(webhook.run());
        in_time(registered.wait_for(|registered| *registered)).await.unwrap();
        Self { _cluster: cluster, client, webhook, supervisor }
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::default_namespaced(self.client.clone())
    }

    async fn create(&self, name: &str, annotations: Value) {
        let deployment: Deployment = object(json!({
            "metadata": { "name": name, "annotations": annotations, "labels": { "tier": "web" } },
            "spec": {
                "replicas": 2,
                "selector": { "matchLabels": { "app": name } },
                "template": {
                    "metadata": { "labels": { "app": name } },
                    "spec": { "containers": [{
                        "name": "c", "image": "i", "resources": { "requests": { "cpu": "100m" } },
                    }] },
                },
            },
        }));
        self.deployments().create(&PostParams::default(), &deployment).await.unwrap();
    }

    async fn patch(&self, name: &str, patch: Value) -> Deployment {
        self.deployments().patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap()
    }

    async fn set_cpu(&self, name: &str, cpu: &str) -> Deployment {
        let container = json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } });
        self.patch(name, json!({ "spec": { "template": { "spec": { "containers": [container] } } } })).await
    }
}

fn is_held(deployment: &Deployment) -> bool {
    let is_paused = deployment.spec.as_ref().and_then(|spec| spec.paused) == Some(true);
    assert_eq!(is_paused, deployment.annotations().contains_key(RECORD_ANNOTATION), "{deployment:?}");
    is_paused
}

#[tokio::test]
async fn a_workload_that_opts_in_is_held_in_the_write_that_changes_its_resources() {
    let fixture = Fixture::start().await;
    fixture.create("out", json!({})).await;
    assert!(!is_held(&fixture.set_cpu("out", "200m").await), "it did not opt in");

    fixture.create("web", json!({ IN_PLACE_ANNOTATION: "true" })).await;
    assert!(!is_held(&fixture.patch("web", json!({ "spec": { "replicas": 3 } })).await));
    let image = json!({ "name": "c", "image": "other" });
    let image = json!({ "spec": { "template": { "spec": { "containers": [image] } } } });
    assert!(!is_held(&fixture.patch("web", image).await), "pods are recreated for an image");
    let held = fixture.set_cpu("web", "200m").await;
    assert!(is_held(&held));
    let resumed = fixture.patch("web", json!({ "spec": { "paused": false } })).await;
    assert!(is_held(&resumed), "a write that does not change the template does not release it");
    assert_eq!(fixture.supervisor.panics("rollout-webhook/review"), 0);
}

#[tokio::test]
async fn a_policy_opts_workloads_in_and_their_annotation_opts_them_out() {
    let fixture = Fixture::start().await;
    let policies: Api<RolloutPolicy> = Api::default_namespaced(fixture.client.clone());
    let policy: RolloutPolicy = object(json!({
        "apiVersion": "plumb.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": { "name": "all" },
        "spec": { "selector": { "matchLabels": { "tier": "web" } } },
    }));
    policies.create(&PostParams::default(), &policy).await.unwrap();
    let mut number = 0;
    // The webhook learns of the policy through its watch.
    eventually(async || {
        number += 1;
        let name = format!("web-{number}");
        fixture.create(&name, json!({})).await;
        is_held(&fixture.set_cpu(&name, "200m").await)
    })
    .await;
    fixture.create("out", json!({ IN_PLACE_ANNOTATION: "false" })).await;
    assert!(!is_held(&fixture.set_cpu("out", "200m").await));
}

#[tokio::test]
async fn without_the_webhook_workloads_are_updated_as_ever() {
    let fixture = Fixture::start().await;
    fixture.create("web", json!({ IN_PLACE_ANNOTATION: "true" })).await;
    fixture.webhook.abort();
    eventually(async || fixture.webhook.is_finished()).await;
    assert!(!is_held(&fixture.set_cpu("web", "200m").await));

    let configurations: Api<MutatingWebhookConfiguration> = Api::all(fixture.client.clone());
    assert!(!configurations.get(NAME).await.unwrap().webhooks.unwrap().is_empty());
    webhook::unregister(&fixture.client).await.unwrap();
    let left = configurations.get(NAME).await.unwrap();
    assert!(left.webhooks.iter().all(Vec::is_empty), "{left:?}");
    webhook::unregister(&fixture.client).await.unwrap();
}

#[tokio::test]
async fn a_cloneset_whose_pods_would_be_invalid_is_refused_with_the_field() {
    let fixture = Fixture::start().await;
    install_cloneset(&fixture.client).await.unwrap();
    let sets: Api<CloneSet> = Api::default_namespaced(fixture.client.clone());
    let with = |name: &str, resources: Value, port: u32| -> CloneSet {
        object(json!({
            "metadata": { "name": name },
            "spec": {
                "replicas": 1, "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{
                        "name": "c", "image": "one", "resources": resources, "ports": [{ "containerPort": port }],
                    }] },
                },
            },
        }))
    };
    let refused = async |name: &str, resources: Value, port: u32| match sets
        .create(&PostParams::default(), &with(name, resources, port))
        .await
    {
        Err(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("{name} is not refused: {other:?}"),
    };
    let (code, message) = refused("port", json!({}), 99_999).await;
    let field = "spec.template.spec.containers[0].ports[0].containerPort: Invalid value: 99999";
    assert!(code == 422 && message.contains(field), "{code} {message}");
    let above = json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } });
    let (code, message) = refused("limit", above, 80).await;
    assert!(
        code == 422 && message.contains("spec.template.spec.containers[0].resources.requests"),
        "{message}"
    );
    let (code, message) = refused("unit", json!({ "requests": { "memory": "64mb" } }), 80).await;
    assert!(code == 422 && message.contains("spec.template"), "{message}");

    let fits = json!({ "requests": { "cpu": "100m", "memory": "64Mi" } });
    sets.create(&PostParams::default(), &with("web", fits, 80)).await.unwrap();
    let template = |cpu: &str| {
        let container = json!({ "name": "c", "image": "one", "resources": { "requests": { "cpu": cpu } } });
        json!({ "spec": { "template": { "spec": { "containers": [container] } } } })
    };
    let patch = async |patch: Value| sets.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await;
    let error = patch(template("-1")).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 422), "{error:?}");
    patch(template("200m")).await.unwrap();
    assert_eq!(fixture.supervisor.panics("rollout-webhook/review"), 0);
}
