//! Memory limits that grow before a container is killed.

use k8s_openapi::api::core::v1::{Event, Pod, ResourceQuota};
use kube::Api;
use kube::api::{ListParams, PostParams};
use plumb_conformance::Figure;
use plumb_resize::Quantity;
use serde_json::{Value, json};

use super::machine::{Groups, Machine, create, equal, id, is_settled, load, pod, pods, soon, until};
use crate::it::cluster::Cluster;

const MIB: i64 = 1 << 20;
const ANNOTATION: &str = "plumb.dev/memory-pressure-growth";

/// A machine whose containers can be held at their limits: cgroup v1.
fn machine() -> Option<Machine> {
    let machine = Machine::here()?;
    if std::path::Path::new("/sys/fs/cgroup/memory/memory.oom_control").exists() {
        return Some(machine);
    }
    plumb_testkit::skip(plumb_testkit::CONTAINERS, "memory limits grow on cgroup v1 only");
    None
}

/// A pod that has opted in.
fn growing(name: &str, maximum: &str, containers: Value) -> Pod {
    let mut pod = pod(name, containers);
    pod.metadata.annotations = Some([(ANNOTATION.to_owned(), maximum.to_owned())].into());
    pod
}

/// A container of 64 MiB that allocates more at once.
fn ramp(name: &str, peak: &str) -> Value {
    let args = ["--memory", "10Mi", "--memory-peak", peak, "--shape", "ramp", "--period", "3s", "--quiet"];
    load(name, &args, equal("100m", "64Mi"))
}

fn status(pod: &Pod, container: &str) -> (i32, bool) {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let found = statuses.and_then(|all| all.iter().find(|status| status.name == container));
    found.map_or((0, false), |status| (status.restart_count, status.ready))
}

fn limit(pod: &Pod, container: &str) -> String {
    let spec = pod.spec.as_ref().unwrap();
    let found = spec.containers.iter().find(|found| found.name == container).unwrap();
    found.resources.as_ref().unwrap().limits.as_ref().unwrap()["memory"].0.clone()
}

/// Waits for an event of a pod; returns its message.
async fn event(cluster: &Cluster, pod: &str, reason: &str, contains: &str) -> String {
    let events: Api<Event> = Api::namespaced(cluster.client().await, "default");
    let fields = ListParams::default().fields(&format!("involvedObject.name={pod},reason={reason}"));
    let find = async {
        loop {
            let found = events.list(&fields).await.unwrap().items;
            let messages = found.into_iter().filter_map(|event| event.message);
            if let Some(message) = messages.into_iter().find(|message| message.contains(contains)) {
                return message;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(plumb_testkit::TIMEOUT, find).await;
    found.unwrap_or_else(|_| panic!("no event {reason} of {pod} says {contains:?}"))
}

#[tokio::test]
async fn ramps_in_two_containers_at_once_grow_to_what_they_need_and_none_is_killed() {
    let Some(machine) = machine() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    let containers = json!([ramp("a", "400Mi"), ramp("b", "200Mi")]);
    create(&pods, &growing("ramps", "a=1Gi,b=1Gi", containers)).await;
    let started = until(&pods, "ramps", "running", |pod| status(pod, "a").1 && status(pod, "b").1).await;
    let groups = Groups::of(&started);
    let used =
        |container: &str| groups.number(&id(&started, container), Figure::MemoryUsage).unwrap_or_default();
    soon("grown", || used("a") > 400 * MIB && used("b") > 200 * MIB).await;
    let grown = until(&pods, "ramps", "settled", is_settled).await;
    assert_eq!((status(&grown, "a"), status(&grown, "b")), ((0, true), (0, true)), "neither was killed");
    assert_eq!((id(&grown, "a"), id(&grown, "b")), (id(&started, "a"), id(&started, "b")));
    assert_eq!(grown.status.unwrap().qos_class.as_deref(), Some("Guaranteed"));
    let message =
        event(&cluster, "ramps", "MemoryPressureGrowth", "container a was raised from 64Mi to ").await;
    assert!(message.contains("held"), "{message}");
    drop(cluster);
    machine.clear();
}

#[tokio::test]
async fn a_leak_without_end_is_killed_at_its_maximum_and_an_event_says_so() {
    let Some(machine) = machine() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    // Not in whole pages, as the kernel has it.
    let args = ["--memory", "10Mi", "--memory-peak", "4Gi", "--shape", "ramp", "--period", "3s", "--quiet"];
    create(&pods, &growing("leak", "150M", json!([load("c", &args, equal("100m", "70M"))]))).await;
    event(&cluster, "leak", "OOMKilling", "is its maximum for growth under pressure").await;
    let killed = until(&pods, "leak", "restarted", |pod| status(pod, "c").0 > 0).await;
    assert_eq!(limit(&killed, "c").parse::<Quantity>().unwrap().units(), Ok(150_000_000));
    drop(cluster);
    machine.clear();
}

#[tokio::test]
async fn a_container_whose_growth_a_quota_refuses_is_killed_and_an_event_says_why() {
    let Some(machine) = machine() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.client().await, "default");
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "limits.memory": "64Mi" } } });
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    create(&pods, &growing("poor", "1Gi", json!([ramp("c", "400Mi")]))).await;
    event(&cluster, "poor", "MemoryPressureGrowthFailed", "exceeded quota: q").await;
    let killed = until(&pods, "poor", "restarted", |pod| status(pod, "c").0 > 0).await;
    assert_eq!(limit(&killed, "c"), "64Mi");
    drop(cluster);
    machine.clear();
}

#[tokio::test]
async fn a_container_on_a_full_node_is_killed_and_an_event_names_who_holds_the_memory() {
    let Some(machine) = machine() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    // All of the node's 64 GiB but 64 MiB.
    create(&pods, &pod("holder", json!([load("c", &["--memory", "1Mi"], equal("100m", "65472Mi"))]))).await;
    until(&pods, "holder", "running", is_settled).await;
    create(&pods, &growing("late", "1Gi", json!([ramp("c", "400Mi")]))).await;
    let expected =
        "the node has no memory left; most is held by default/holder (65472Mi), default/late (64Mi)";
    event(&cluster, "late", "MemoryPressureGrowthFailed", expected).await;
    until(&pods, "late", "restarted", |pod| status(pod, "c").0 > 0).await;
    drop(cluster);
    machine.clear();
}
