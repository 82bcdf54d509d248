//! Nodes, quotas and HPAs, which count only if that is asked for.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use plumb_recommender::Options;
use plumb_recommender::input::environment::{EnvironmentOptions, largest, left_by_quotas, scaled_by};
use plumb_resize::resource::{PerResource, Resource};
use plumb_testkit::{object, until};
use plumb_vpa_api::ConditionType;
use serde_json::{Value, json};

use super::bed::{Bed, Setup, message};

fn node(name: &str, cpu: &str, memory: &str) -> Node {
    object(json!({
        "metadata": { "name": name },
        "status": { "allocatable": { "cpu": cpu, "memory": memory }, "capacity": { "cpu": cpu, "memory": memory } },
    }))
}

fn texts(amounts: PerResource<Option<plumb_resize::Quantity>>) -> String {
    let text = |resource| amounts[resource].map_or("-".to_owned(), |amount| amount.to_string());
    format!("{}/{}", text(Resource::Cpu), text(Resource::Memory))
}

#[test]
fn the_largest_node_is_the_largest_that_pods_can_be_scheduled_to() {
    let mut cordoned = node("c", "64", "1Ti");
    cordoned.spec.get_or_insert_default().unschedulable = Some(true);
    let nodes = [node("a", "8", "16Gi"), node("b", "4", "64Gi"), cordoned].map(Arc::new);
    assert_eq!(texts(largest(&nodes).unwrap()), "8/64Gi");
    assert_eq!(largest(&[]), None);
}

#[test]
fn a_quota_is_divided_among_the_pods_of_a_vpa_after_the_others_have_theirs() {
    let quota = |spec: Value, used: Value| -> Arc<ResourceQuota> {
        Arc::new(object(json!({ "metadata": { "name": "q" }, "spec": spec, "status": { "used": used } })))
    };
    let pod: Arc<Pod> = Arc::new(object(json!({ "metadata": { "name": "p" }, "spec": { "containers": [
        { "name": "a", "resources": { "requests": { "cpu": "500m", "memory": "1Gi" } } },
        { "name": "b", "resources": { "requests": { "cpu": "500m" } } },
    ] } })));
    let in_phase = |phase: &str| {
        let mut pod = Pod::clone(&pod);
        pod.status.get_or_insert_default().phase = Some(phase.to_owned());
        Arc::new(pod)
    };
    let own = [pod.clone(), in_phase("Running"), in_phase("Succeeded"), in_phase("Failed")];
    let hard = json!({ "requests.cpu": "10", "memory": "8Gi" });
    let whole = quota(json!({ "hard": hard }), json!({ "requests.cpu": "4", "memory": "4Gi" }));
    // Others use 2 cores and 2Gi, so 8 cores and 6Gi are left for the two pods that have not ended.
    assert_eq!(texts(left_by_quotas(std::slice::from_ref(&whole), &own)), "4/3Gi");
    let tighter = quota(json!({ "hard": { "cpu": "4" } }), json!({ "cpu": "4" }));
    assert_eq!(texts(left_by_quotas(&[whole, tighter], &own)), "1/3Gi");
    let scoped = quota(json!({ "hard": { "cpu": "1" }, "scopes": ["Terminating"] }), json!({}));
    assert_eq!(texts(left_by_quotas(&[scoped], &own)), "-/-");
}

#[test]
fn an_hpa_scales_on_the_resources_that_its_metrics_name() {
    let hpa = |metrics: Value| -> DynamicObject {
        object(json!({
            "metadata": { "name": "web", "namespace": "default" },
            "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "metrics": metrics },
        }))
    };
    let cpu = json!({ "type": "Resource", "resource": { "name": "cpu" } });
    let memory =
        json!({ "type": "ContainerResource", "containerResource": { "name": "memory", "container": "app" } });
    let other = json!({ "type": "External", "external": { "metric": { "name": "queue" } } });
    let resources =
        |metrics| scaled_by(&hpa(metrics)).map(|(target, resources)| (target.to_string(), resources));
    let web = "Deployment default/web".to_owned();
    assert_eq!(resources(json!([cpu, other, cpu])), Some((web.clone(), vec![Resource::Cpu])));
    assert_eq!(resources(json!([memory, cpu])), Some((web, vec![Resource::Memory, Resource::Cpu])));
    assert_eq!(resources(json!([other])), None);
    assert_eq!(resources(Value::Null), None);
}

async fn with_small_surroundings() -> Bed {
    let bed = Bed::with_web().await;
    bed.uses("web-1", "app", 3_000, 3_000_000_000);
    let nodes: Api<Node> = Api::all(bed.client.clone());
    nodes.create(&PostParams::default(), &node("n", "2", "8Gi")).await.unwrap();
    let status = json!({ "status": { "allocatable": { "cpu": "2", "memory": "8Gi" } } });
    nodes.patch_status("n", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let quotas: Api<ResourceQuota> = Api::default_namespaced(bed.client.clone());
    let quota =
        object(json!({ "metadata": { "name": "q" }, "spec": { "hard": { "requests.memory": "2Gi" } } }));
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    bed
}

#[tokio::test]
async fn nodes_and_quotas_cap_recommendations_if_the_flags_are_set() {
    let bed = with_small_surroundings().await;
    let mut running = bed.recommender().await;
    running.once().await;
    let uncapped = bed.targets("web").await["app"].clone();
    assert_eq!(uncapped, "3481m/3481230109");
    let environment =
        EnvironmentOptions { cap_by_largest_node: true, cap_by_quota: true, ..EnvironmentOptions::default() };
    let options = Options { environment, ..Options::default() };
    let mut running = bed.recommender_with(Setup { options, ..Setup::default() }).await;
    running.once().await;
    // The selector, and so the pods that share the quota, is known from now on.
    running.minute(&bed).await;
    assert_eq!(bed.targets("web").await["app"], "2/2Gi");
}

#[tokio::test]
async fn resources_that_an_hpa_scales_on_are_not_recommended_and_the_vpa_reports_it() {
    let bed = Bed::with_web().await;
    // The API server of this test has no HPAs: a resource of another group stands in for them.
    let crd: CustomResourceDefinition = object(json!({
        "metadata": { "name": "horizontalpodautoscalers.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "horizontalpodautoscalers", "kind": "HorizontalPodAutoscaler" },
            "versions": [{ "name": "v2", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            } } }],
        },
    }));
    let crds: Api<CustomResourceDefinition> = Api::all(bed.client.clone());
    crds.create(&PostParams::default(), &crd).await.unwrap();
    until(&crds, "horizontalpodautoscalers.example.com", |crd: &CustomResourceDefinition| {
        let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|of| of.type_ == "Established" && of.status == "True"))
    })
    .await;
    let resource = ApiResource {
        group: "example.com".to_owned(),
        version: "v2".to_owned(),
        api_version: "example.com/v2".to_owned(),
        kind: "HorizontalPodAutoscaler".to_owned(),
        plural: "horizontalpodautoscalers".to_owned(),
    };
    let hpas: Api<DynamicObject> = Api::default_namespaced_with(bed.client.clone(), &resource);
    let hpa = object(json!({
        "apiVersion": "example.com/v2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "scale-web" },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "metrics": [{ "type": "Resource", "resource": { "name": "cpu" } }],
        },
    }));
    hpas.create(&PostParams::default(), &hpa).await.unwrap();
    let environment = EnvironmentOptions { yield_to_hpa: true, ..EnvironmentOptions::default() };
    let intercept = |uri: &mut http::Uri| {
        if uri.path().contains("/apis/autoscaling/v2/") {
            *uri = uri.to_string().replace("/apis/autoscaling/v2/", "/apis/example.com/v2/").parse().unwrap();
        }
    };
    let options = Options { environment, ..Options::default() };
    let setup = Setup { options, intercept: Arc::new(intercept), ..Setup::default() };
    let mut running = bed.recommender_with(setup).await;
    running.once().await;
    let vpa = bed.get("web").await;
    assert_eq!(bed.targets("web").await["app"], "-/250Mi");
    assert_eq!(
        message(&vpa, &ConditionType::ConfigUnsupported),
        "HorizontalPodAutoscaler scale-web scales the same target on cpu, which is not recommended therefore"
    );
}
