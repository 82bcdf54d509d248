//! Autoscalers in a cluster: what clients see.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use plumb_apiserver::usage::{Amounts, NodeUsage, PodUsage, Span, UsageSource};
use plumb_controller_runtime::Clock;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controllers::horizontal_pod_autoscaler::calculator::Initialization;
use plumb_controllers::horizontal_pod_autoscaler::{self, AutoscalerMetrics, Config, Settings};
use plumb_controllers::{Clients, GROUPS, WATCHER, user_of};
use plumb_resize::Quantity;
use plumb_supervise::Supervisor;
use plumb_testkit::{Features, Options, TestCluster, object, until, until_all};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cpu;
use crate::workloads::be_ready;

/// Every pod uses as many thousandths of a core; none is measured below zero.
#[derive(Clone, Default)]
struct Load(Arc<AtomicI64>);

impl UsageSource for Load {
    fn node(&self, _: &str) -> Option<NodeUsage> {
        None
    }

    fn pod(&self, _: &str, _: &str, _: &str) -> Option<PodUsage> {
        let milli = self.0.load(Ordering::SeqCst);
        let span = Span { until: jiff::Timestamp::now(), length: Duration::from_millis(1) };
        let used = Amounts { cpu: Quantity::from_milli(milli), memory: Quantity::from_bytes(1 << 20) };
        (milli >= 0).then(|| PodUsage { span, containers: vec![("c".to_owned(), used)] })
    }
}

/// A cluster whose autoscalers are reconciled many times a second, and whose pods are ready at once.
struct Cluster {
    client: Client,
    load: Load,
    metrics: Arc<AutoscalerMetrics>,
    _running: JoinSet<()>,
}

impl Cluster {
    fn start() -> Self {
        Self::with(Settings { sync_period: Duration::from_millis(100), ..Settings::default() })
    }

    fn with(settings: Settings) -> Self {
        let load = Load::default();
        let usage = Some(Arc::new(load.clone()) as Arc<dyn UsageSource>);
        let cluster = TestCluster::with(Options { usage, ..Options::default() });
        let writer = |name: &str| cluster.client_as(&user_of(name), GROUPS);
        let clock = Clock::default();
        let supervisor = Supervisor::default();
        let manager =
            plumb_controllers::workloads(clock.clone(), supervisor.clone(), Metrics::default(), writer);
        let clients = Clients {
            watch: cluster.client(WATCHER),
            write: writer(horizontal_pod_autoscaler::NAME),
            supervisor,
            metrics: Metrics::default(),
        };
        let metrics: Arc<AutoscalerMetrics> = Arc::default();
        let config = Config { settings, clock, metrics: metrics.clone() };
        let mut running = JoinSet::new();
        running.spawn(horizontal_pod_autoscaler::run(clients, manager.factory(), config));
        running.spawn(manager.run(cluster.client(WATCHER)));
        running.spawn(be_ready(cluster.admin()));
        Self { client: cluster.admin(), load, metrics, _running: running }
    }

    async fn create(&self, object: Value) {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.as_ref().unwrap();
        let gvk = GroupVersionKind::try_from(types).unwrap();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), "default", &ApiResource::from_gvk(&gvk));
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    fn autoscalers(&self) -> Api<HorizontalPodAutoscaler> {
        Api::default_namespaced(self.client.clone())
    }

    /// A deployment whose pods request 100m, and its autoscaler.
    async fn autoscaled(&self, name: &str, more: Value) {
        self.deployed(name).await;
        self.autoscaler(name, more).await;
    }

    /// A deployment whose pods request 100m.
    async fn deployed(&self, name: &str) {
        let container = json!({ "name": "c", "image": "x", "resources": { "requests": { "cpu": "100m" } } });
        // Usage is that of pods on nodes.
        let pod = json!({ "nodeName": "n1", "containers": [container] });
        let labels = json!({ "app": name });
        self.create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
            "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": pod } },
        }))
        .await;
    }

    /// The autoscaler of a deployment.
    async fn autoscaler(&self, name: &str, more: Value) {
        let mut spec = json!({
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
            "maxReplicas": 6,
        });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let kind = "HorizontalPodAutoscaler";
        self.create(json!({ "apiVersion": "autoscaling/v2", "kind": kind, "metadata": { "name": name }, "spec": spec }))
            .await;
    }

    async fn replicas(&self, name: &str, wanted: i32) {
        let deployments: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let replicas = |deployment: &Deployment| deployment.spec.as_ref().unwrap().replicas == Some(wanted);
        until(&deployments, name, replicas).await;
    }

    /// Waits until a deployment has as many ready pods.
    async fn ready(&self, name: &str, wanted: i32) {
        let deployments: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let is_ready = |deployment: &Deployment| {
            deployment.status.as_ref().is_some_and(|status| status.ready_replicas == Some(wanted))
        };
        until(&deployments, name, is_ready).await;
    }

    /// How many times autoscalers were reconciled with an action, without an error.
    fn reconciliations(&self, action: &str) -> Option<String> {
        let mut text = plumb_metrics::Text::default();
        self.metrics.render(&mut text);
        let name = "horizontal_pod_autoscaler_controller_reconciliations_total";
        let start = format!("{name}{{action=\"{action}\",error=\"none\"}} ");
        text.finish().lines().find_map(|line| line.strip_prefix(&start)).map(str::to_owned)
    }

    async fn event(&self, reason: &str, message: &str) {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let is_it = |event: &Event| {
            let source = event.source.as_ref().and_then(|source| source.component.as_deref());
            event.reason.as_deref() == Some(reason)
                && event.message.as_deref() == Some(message)
                && source == Some("horizontal-pod-autoscaler")
        };
        until_all(&events, |all| all.values().any(is_it)).await;
    }

    /// Defines a kind, which the group of a metrics API needs an approval for.
    async fn define(&self, group: &str, version: &str, plural: &str, kind: &str, more: Value) {
        let mut served = json!({
            "name": version, "served": true, "storage": true,
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
        });
        for (field, value) in more.as_object().unwrap() {
            served[field] = value.clone();
        }
        let definition: CustomResourceDefinition = object(json!({
            "metadata": {
                "name": format!("{plural}.{group}"),
                "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" },
            },
            "spec": {
                "group": group, "scope": "Namespaced", "versions": [served],
                "names": { "plural": plural, "kind": kind, "listKind": format!("{kind}List") },
            },
        }));
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        let is_established = |definition: &CustomResourceDefinition| {
            let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions
                .into_iter()
                .any(|condition| condition.type_ == "Established" && condition.status == "True")
        };
        until(&definitions, &format!("{plural}.{group}"), is_established).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_follow_the_load_of_the_pods() {
    let cluster = Cluster::start();
    cluster.load.0.store(200, Ordering::SeqCst);
    // It wants 80 % by default: 200 of 100 are three replicas, then eight, of which six may be.
    cluster.autoscaled("web", json!({})).await;
    cluster.replicas("web", 6).await;
    let message = "New size: 3; reason: cpu resource utilization (percentage of request) above target";
    cluster.event("SuccessfulRescale", message).await;
    let full = |autoscaler: &HorizontalPodAutoscaler| {
        let status = autoscaler.status.clone().unwrap_or_default();
        let current = status.current_metrics.iter().flatten().find_map(|metric| metric.resource.clone());
        let utilization = current.and_then(|current| current.current.average_utilization);
        (status.current_replicas, status.desired_replicas, utilization) == (Some(6), 6, Some(200))
            && status.last_scale_time.is_some()
            && status.conditions.iter().flatten().any(|one| one.reason.as_deref() == Some("TooManyReplicas"))
    };
    until(&cluster.autoscalers(), "web", full).await;

    // What is idle stays for five minutes, which a behavior may shorten.
    cluster.load.0.store(1, Ordering::SeqCst);
    let stabilized = |autoscaler: &HorizontalPodAutoscaler| {
        let conditions = autoscaler.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.reason.as_deref() == Some("ScaleDownStabilized"))
    };
    until(&cluster.autoscalers(), "web", stabilized).await;
    let window = json!({ "spec": { "behavior": { "scaleDown": { "stabilizationWindowSeconds": 0 } } } });
    cluster.autoscalers().patch("web", &PatchParams::default(), &Patch::Merge(window)).await.unwrap();
    cluster.replicas("web", 1).await;
    cluster.event("SuccessfulRescale", "New size: 1; reason: All metrics below target").await;
    let mut text = plumb_metrics::Text::default();
    cluster.metrics.render(&mut text);
    let text = text.finish();
    let has = |wanted: &str| text.lines().any(|line| line.starts_with(wanted));
    let name = "horizontal_pod_autoscaler_controller";
    assert!(has(&format!("{name}_desired_replicas{{namespace=\"default\",hpa_name=\"web\"}} 1")), "{text}");
    assert!(has(&format!("{name}_num_horizontal_pod_autoscalers 1")));
    assert!(has(&format!("{name}_reconciliations_total{{action=\"scale_down\",error=\"none\"}} 1")));
    assert!(has(&format!(
        "{name}_metric_computation_total{{action=\"scale_up\",error=\"none\",metric_type=\"Resource\"}}"
    )));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_sync_after_a_metric_changed_follows_it() {
    // Syncs come from the test alone: one with the autoscaler, and one with each change of its spec. The samples of pods
    // count at once, although their times have no fractions of a second.
    let initialization =
        Initialization { cpu_period: SignedDuration::ZERO, readiness_delay: SignedDuration::ZERO };
    let sync_period = Duration::from_hours(1);
    let cluster = Cluster::with(Settings { sync_period, initialization, ..Settings::default() });
    cluster.load.0.store(80, Ordering::SeqCst);
    cluster.deployed("web").await;
    cluster.ready("web", 1).await;
    cluster.autoscaler("web", json!({})).await;
    let utilization = |autoscaler: &HorizontalPodAutoscaler| {
        let metrics = autoscaler.status.as_ref()?.current_metrics.as_ref()?;
        metrics.first()?.resource.as_ref()?.current.average_utilization
    };
    until(&cluster.autoscalers(), "web", |autoscaler| utilization(autoscaler) == Some(80)).await;

    cluster.load.0.store(200, Ordering::SeqCst);
    let change = Patch::Merge(json!({ "spec": { "maxReplicas": 7 } }));
    cluster.autoscalers().patch("web", &PatchParams::default(), &change).await.unwrap();
    let follows = |autoscaler: &HorizontalPodAutoscaler| {
        utilization(autoscaler) == Some(200) && autoscaler.status.as_ref().unwrap().desired_replicas == 3
    };
    until(&cluster.autoscalers(), "web", follows).await;
    cluster.replicas("web", 3).await;
    assert_eq!(cluster.reconciliations("none").as_deref(), Some("1"));
    assert_eq!(cluster.reconciliations("scale_up").as_deref(), Some("1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tolerance_of_a_behavior_is_kept_and_used() {
    let cluster = Cluster::start();
    // It wants 80 %, and 84 are within the tolerance of a tenth that autoscalers have without one of their own.
    cluster.load.0.store(84, Ordering::SeqCst);
    cluster.autoscaled("web", json!({ "behavior": { "scaleUp": { "tolerance": "10m" } } })).await;
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client.clone());
    until(&deployments, "web", |deployment| deployment.spec.as_ref().unwrap().replicas >= Some(2)).await;
    let stored = cluster.autoscalers().get("web").await.unwrap();
    assert_eq!(tolerance(&stored).as_deref(), Some("10m"));
}

/// The tolerance of the rules for scaling up.
fn tolerance(autoscaler: &HorizontalPodAutoscaler) -> Option<String> {
    let rules = autoscaler.spec.behavior.as_ref()?.scale_up.as_ref()?;
    rules.tolerance.as_ref().map(|tolerance| tolerance.0.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tolerance_is_dropped_where_its_gate_is_off_unless_it_is_stored() {
    let on = TestCluster::start();
    let features = Features { configurable_tolerance: false, ..Features::default() };
    let off = TestCluster::with(Options { store: on.store().clone(), features, ..Options::default() });
    let [on, off] =
        [on, off].map(|cluster| Api::<HorizontalPodAutoscaler>::default_namespaced(cluster.admin()));
    let named = |name: &str| -> HorizontalPodAutoscaler {
        object(json!({
            "metadata": { "name": name },
            "spec": {
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name }, "maxReplicas": 3,
                "behavior": { "scaleUp": { "tolerance": "10m", "stabilizationWindowSeconds": 7 } },
            },
        }))
    };
    on.create(&PostParams::default(), &named("stored")).await.unwrap();
    let change = Patch::Merge(json!({ "spec": { "maxReplicas": 4 } }));
    let kept = off.patch("stored", &PatchParams::default(), &change).await.unwrap();
    assert_eq!(tolerance(&kept).as_deref(), Some("10m"));
    let new = off.create(&PostParams::default(), &named("new")).await.unwrap();
    assert_eq!(tolerance(&new), None);
    let rules = new.spec.behavior.unwrap().scale_up.unwrap();
    assert_eq!(rules.stabilization_window_seconds, Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_minimum_is_kept_although_no_metric_can_be_read() {
    let cluster = Cluster::start();
    cluster.load.0.store(-1, Ordering::SeqCst);
    cluster.autoscaled("web", json!({ "minReplicas": 3 })).await;
    cluster.replicas("web", 3).await;
    let message = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned \
                   from resource metrics API";
    cluster.event("FailedGetResourceMetric", message).await;

    // One that shares its pods with another does nothing any more.
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let spec = json!({ "scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5, "metrics": [cpu(50)] });
    cluster
        .create(json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "more" }, "spec": spec }))
        .await;
    let both = "pods by selector app=web are controlled by multiple HPAs: [default/more default/web]";
    cluster.event("AmbiguousSelector", both).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn external_and_custom_metrics_are_read_from_whatever_serves_them() {
    let cluster = Cluster::start();
    let queue = json!({ "type": "External", "external": {
        "metric": { "name": "queues", "selector": { "matchLabels": { "of": "web" } } },
        "target": { "type": "AverageValue", "averageValue": "10" },
    } });
    cluster.autoscaled("web", json!({ "metrics": [queue] })).await;
    let missing = "unable to get external metric default/queues/&LabelSelector{MatchLabels:map[string]string{of: web,},\
                   MatchExpressions:[]LabelSelectorRequirement{},}: unable to fetch metrics from external metrics API: \
                   the server could not find the requested resource (get queues.external.metrics.k8s.io)";
    cluster.event("FailedGetExternalMetric", missing).await;
    // Custom resources have the paths of the API of external metrics.
    let group = "external.metrics.k8s.io";
    cluster.define(group, "v1beta1", "queues", "ExternalMetricValue", json!({})).await;
    for (name, of, value) in [("one", "web", "25"), ("two", "web", "7500m"), ("other", "api", "999")] {
        let metadata = json!({ "name": name, "labels": { "of": of } });
        let kind = "ExternalMetricValue";
        let value = json!({ "apiVersion": format!("{group}/v1beta1"), "kind": kind, "metadata": metadata, "value": value });
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1beta1", kind), "queues");
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), "default", &resource);
        api.create(&PostParams::default(), &serde_json::from_value(value).unwrap()).await.unwrap();
    }
    cluster.replicas("web", 4).await;

    // So have they those of a metric of a namespace.
    let metric = json!({ "type": "Object", "object": {
        "describedObject": { "kind": "Namespace", "name": "default" }, "metric": { "name": "visitors" },
        "target": { "type": "Value", "value": "100" },
    } });
    let message = "unable to get metric visitors: Namespace on default default/unable to fetch metrics from custom \
                   metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
    cluster.autoscaled("shop", json!({ "metrics": [metric] })).await;
    cluster.event("FailedGetObjectMetric", message).await;
    let group = "custom.metrics.k8s.io";
    cluster.define(group, "v1beta2", "metrics", "MetricValueList", json!({})).await;
    let item = json!({
        "describedObject": { "kind": "Namespace", "name": "default" }, "metric": { "name": "visitors" },
        "timestamp": "2026-01-01T00:00:00Z", "value": "210",
    });
    let values = json!({ "apiVersion": format!("{group}/v1beta2"), "kind": "MetricValueList", "metadata": { "name": "visitors" }, "items": [item] });
    let kind = GroupVersionKind::gvk(group, "v1beta2", "MetricValueList");
    let resource = ApiResource::from_gvk_with_plural(&kind, "metrics");
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), "default", &resource);
    api.create(&PostParams::default(), &serde_json::from_value(values).unwrap()).await.unwrap();
    // 210 of 100 per ready pod are three replicas, then seven, of which six may be.
    cluster.replicas("shop", 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_has_a_scale_is_scaled() {
    let cluster = Cluster::start();
    let scale = json!({ "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector" });
    let subresources = json!({ "subresources": { "status": {}, "scale": scale } });
    cluster.define("example.com", "v1", "fleets", "Fleet", subresources).await;
    let fleet = json!({ "apiVersion": "example.com/v1", "kind": "Fleet", "metadata": { "name": "red" }, "spec": { "replicas": 1 } });
    cluster.create(fleet).await;
    let autoscaler = |kind: &str, version: &str, name: &str| {
        let target = json!({ "apiVersion": version, "kind": kind, "name": name });
        let spec = json!({ "scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4 });
        json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": name }, "spec": spec })
    };
    cluster.create(autoscaler("Fleet", "example.com/v1", "red")).await;
    let kind = GroupVersionKind::gvk("example.com", "v1", "Fleet");
    let fleets: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), "default", &ApiResource::from_gvk(&kind));
    plumb_testkit::eventually(async || fleets.get("red").await.unwrap().data["spec"]["replicas"] == json!(2))
        .await;
    cluster.event("SelectorRequired", "selector is required").await;

    // What has none, or is not there, is an event.
    cluster.create(autoscaler("Gone", "example.com/v1", "blue")).await;
    cluster.event("FailedGetScale", "no matches for kind \"Gone\" in group \"example.com\"").await;
    cluster.create(autoscaler("Job", "batch/v1", "green")).await;
    let message = "the server could not find the requested resource";
    cluster.event("FailedGetScale", message).await;
    cluster.create(autoscaler("Deployment", "apps/v1", "white")).await;
    cluster.event("FailedGetScale", "deployments.apps \"white\" not found").await;
}
