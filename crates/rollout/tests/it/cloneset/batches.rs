//! In-place updates in the order of container launch priorities.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use plumb_resize::announced;
use plumb_rollout::cloneset::keys;
use serde_json::{Value, json};

use super::cluster::{Answer, Cluster, in_place, is_normal, spec, template, uids};

/// A template with the container `c`, and `redis`, which has a higher priority.
fn two(images: [&str; 2], cpu: &str, policy: &Value) -> Value {
    let mut template = template(images[0], cpu);
    let containers = template["spec"]["containers"].as_array_mut().unwrap();
    containers[0]["resizePolicy"] = policy.clone();
    containers.push(json!({
        "name": "redis", "image": images[1], "env": [{ "name": "KRUISE_CONTAINER_PRIORITY", "value": "10" }],
    }));
    template
}

fn of_template(template: &Value) -> Value {
    json!({ "spec": { "template": template } })
}

fn container<'a>(pod: &'a Pod, name: &str) -> &'a Container {
    pod.spec.as_ref().unwrap().containers.iter().find(|container| container.name == name).unwrap()
}

fn status<'a>(pod: &'a Pod, name: &str) -> &'a ContainerStatus {
    let statuses = pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
    statuses.iter().find(|status| status.name == name).unwrap()
}

fn image<'a>(pod: &'a Pod, name: &str) -> &'a str {
    container(pod, name).image.as_deref().unwrap()
}

/// The containers of each batch that has begun, and the images of those that come later.
fn batches(pod: &Pod) -> (Vec<Value>, Value) {
    let text = pod.metadata.annotations.as_ref().unwrap().get(keys::UPDATE_STATE);
    let state: Value = text.map(|text| serde_json::from_str(text).unwrap()).unwrap_or_default();
    let batches = state["containerBatchesRecord"].as_array().into_iter().flatten();
    let batches = batches.map(|batch| batch["containers"].clone()).collect();
    (batches, state["nextContainerImages"].clone())
}

fn first(pods: &BTreeMap<String, Pod>) -> &Pod {
    pods.values().next().unwrap()
}

async fn start(policy: &Value) -> (Cluster, BTreeMap<String, Pod>) {
    let cluster = Cluster::start().await;
    let mut spec = spec(1, "one", "100m", in_place());
    spec["template"] = two(["one", "one"], "100m", policy);
    let before = cluster.settled(1, spec).await;
    (cluster, before)
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_are_updated_in_batches_by_their_priority() {
    let policy = |cpu: &str, memory: &str| {
        let of = |resource: &str, policy: &str| json!({ "resourceName": resource, "restartPolicy": policy });
        json!([of("cpu", cpu), of("memory", memory)])
    };
    let (restarts, not) = ("RestartContainer", "NotRequired");
    for (cpu, memory) in [(restarts, restarts), (not, restarts), (restarts, not), (not, not)] {
        let policy = policy(cpu, memory);
        let (cluster, before) = start(&policy).await;
        cluster.answer("*", Answer::Silence).await;
        cluster.merge(of_template(&two(["two", "two"], "150m", &policy))).await;
        let pods = cluster.until_pods(|pods| image(first(pods), "redis") == "two").await;
        let pod = first(&pods);
        assert_eq!(batches(pod), (vec![json!(["redis"])], json!({ "c": "two" })));
        let cpu_of = |pod: &Pod| {
            container(pod, "c").resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0.clone()
        };
        assert_eq!((image(pod, "c"), cpu_of(pod).as_str()), ("one", "100m"));
        cluster.answer("*", Answer::Apply).await;
        cluster.until_settled(1).await;
        let after = cluster.until_pods(|pods| pods.values().all(is_normal)).await;
        let pod = first(&after);
        assert_eq!(uids(&before), uids(&after));
        assert_eq!(batches(pod), (vec![json!(["redis"]), json!(["c"])], Value::Null));
        assert_eq!((image(pod, "c"), cpu_of(pod).as_str()), ("two", "150m"));
        assert_eq!(status(pod, "redis").restart_count, 1);
        assert!(!pod.metadata.annotations.as_ref().unwrap().contains_key(announced::ANNOTATION));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_container_fails_stops_the_next_one_until_it_is_ready_or_the_template_changes() {
    for changes in [false, true] {
        let (cluster, before) = start(&json!([])).await;
        cluster.answer("*", Answer::Crash).await;
        cluster.merge(of_template(&two(["two", "two"], "150m", &json!([])))).await;
        let has_failed = |pod: &Pod| status(pod, "redis").restart_count == 1 && !status(pod, "redis").ready;
        let pods = cluster.until_pods(|pods| has_failed(first(pods))).await;
        let name = pods.keys().next().unwrap();
        // The controller observes the pod once more.
        cluster.merge_pod(name, json!({ "metadata": { "annotations": { "test/touched": "yes" } } })).await;
        cluster.until_set(|status| status.updated_replicas == 1 && status.updated_ready_replicas == 0).await;
        let pods = cluster.until_pods(|_| true).await;
        let pod = first(&pods);
        assert_eq!(batches(pod), (vec![json!(["redis"])], json!({ "c": "two" })));
        assert_eq!((image(pod, "c"), status(pod, "c").restart_count), ("one", 0));
        let last = if changes { "three" } else { "two" };
        if changes {
            cluster.merge(of_template(&two(["three", "three"], "150m", &json!([])))).await;
        }
        cluster.answer("*", Answer::Apply).await;
        cluster.until_settled(1).await;
        let after = cluster.until_pods(|pods| pods.values().all(is_normal)).await;
        let pod = first(&after);
        assert_eq!((image(pod, "redis"), image(pod, "c")), (last, last));
        assert_eq!(batches(pod).0, [json!(["redis"]), json!(["c"])]);
        assert_eq!(uids(&before), uids(&after));
    }
}
