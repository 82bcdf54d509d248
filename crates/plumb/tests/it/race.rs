//! A resize and a new pod that need the same capacity, as in KEP-1287: the scheduler may bind a pod by an outdated
//! view of the node. The node decides, in the order of arrival, and is never over-committed.

use std::collections::BTreeMap;
use std::path::Path;

use futures::future::join;
use k8s_openapi::api::core::v1::{Binding, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use plumb_resize::Quantity;
use plumb_resize::resource::Resource;
use serde_json::json;

use super::cluster::Cluster;
use super::scheduler::{has, is_running, pod, resize, says, start, until};

/// What the node has of cpu, in thousandths.
const CAPACITY: i64 = 2000;
const DIALECTS: [&str; 2] = ["kep", "v1.36"];

/// A cluster with one node of two cores, on which a resize stays under way for a while.
async fn slowed(data: &Path, dialect: &str) -> (Cluster, Api<Pod>) {
    let delay = ["--runtime-delay", "UpdateContainerResources=2s"];
    let cluster = start(data, dialect, &delay);
    let pods = Api::default_namespaced(cluster.client().await);
    (cluster, pods)
}

/// A pod that is gone from the API only when it is gone from the node, so that its capacity is free then.
fn graceful(name: &str, cpu: &str) -> Pod {
    pod(name, cpu, json!({ "terminationGracePeriodSeconds": 1 }))
}

/// A pod that our scheduler leaves alone.
fn of_another_scheduler(name: &str, cpu: &str, memory: &str) -> Pod {
    let mut made = graceful(name, cpu);
    let spec = made.spec.as_mut().unwrap();
    spec.scheduler_name = Some("stale".to_owned());
    let resources = spec.containers[0].resources.as_mut().unwrap();
    for list in [&mut resources.requests, &mut resources.limits] {
        memory.clone_into(&mut list.as_mut().unwrap().get_mut("memory").unwrap().0);
    }
    made
}

async fn create(pods: &Api<Pod>, pod: &Pod) {
    pods.create(&PostParams::default(), pod).await.unwrap();
}

/// Binds a pod to the node, like a scheduler that finds enough capacity.
async fn bind(pods: &Api<Pod>, name: &str) {
    let binding: Binding = serde_json::from_value(json!({
        "metadata": { "name": name }, "target": { "apiVersion": "v1", "kind": "Node", "name": "plumb" },
    }))
    .unwrap();
    let done: Status =
        pods.create_subresource("binding", name, &PostParams::default(), &binding).await.unwrap();
    assert_eq!(done.status.as_deref(), Some("Success"));
}

/// Whether the node has rejected a pod for this reason.
fn rejected(reason: &'static str) -> impl Fn(Option<&Pod>) -> bool {
    move |pod| {
        let status = pod.and_then(|pod| pod.status.as_ref());
        status.is_some_and(|status| {
            status.phase.as_deref() == Some("Failed") && status.reason.as_deref() == Some(reason)
        })
    }
}

/// Whether a resize that the node has allocated is not actual yet.
fn is_under_way(pod: Option<&Pod>) -> bool {
    let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == "PodResizeInProgress" && one.status == "True")
}

/// The CPU of the running pods: the sum of the larger of allocated and actual of each.
async fn held(pods: &Api<Pod>) -> i64 {
    let all = pods.list(&ListParams::default()).await.unwrap().items;
    let running = all.iter().filter(|pod| is_running(Some(pod)));
    let statuses = running.filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref()).flatten();
    let milli = |amount: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| {
        amount.0.parse::<Quantity>().unwrap().saturating_milli()
    };
    let each = statuses.map(|status| {
        let allocated = status.allocated_resources.as_ref();
        let actual = status.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let cpu = [allocated, actual].into_iter().flatten().filter_map(|list| list.get(Resource::Cpu.name()));
        cpu.map(milli).max().unwrap_or(0)
    });
    each.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_bound_on_what_was_before_a_resize_is_rejected_and_nothing_is_overcommitted() {
    for dialect in DIALECTS {
        let folder = tempfile::tempdir().unwrap();
        let (cluster, pods) = slowed(&folder.path().join("data"), dialect).await;
        create(&pods, &graceful("grows", "500m")).await;
        until(&pods, "grows", is_running).await;
        create(&pods, &of_another_scheduler("late", "1", "64Mi")).await;
        create(&pods, &of_another_scheduler("large", "100m", "2Gi")).await;

        // Allocated, and not actual: by the actual resources, a core and a half is still free.
        resize(&pods, "grows", "1500m").await;
        until(&pods, "grows", is_under_way).await;
        bind(&pods, "late").await;
        bind(&pods, "large").await;
        until(&pods, "late", rejected("OutOfcpu")).await;
        until(&pods, "large", rejected("OutOfmemory")).await;
        let message = pods.get("late").await.unwrap().status.unwrap().message.unwrap();
        assert_eq!(
            message,
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000"
        );
        assert!(held(&pods).await <= CAPACITY);
        until(&pods, "grows", has("1500m")).await;

        // A rejected pod holds no resources: other pods get all that is free.
        create(&pods, &graceful("fits", "500m")).await;
        until(&pods, "fits", is_running).await;
        assert_eq!(held(&pods).await, CAPACITY);
        create(&pods, &graceful("more", "10m")).await;
        until(&pods, "more", says("PodScheduled", "0/1 nodes are available: 1 Insufficient cpu.")).await;
        assert!(cluster.stop().success());
    }
}

/// How a new pod fared, and the resize that it met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The pod was first; the resize waits for it to go.
    Runs,
    /// The resize was first, and the scheduler did not know.
    Rejected,
    /// The resize was first, and the scheduler knew.
    Waits,
}

fn outcome(newcomer: Option<&Pod>) -> Option<Outcome> {
    if is_running(newcomer) {
        Some(Outcome::Runs)
    } else if rejected("OutOfcpu")(newcomer) {
        Some(Outcome::Rejected)
    } else {
        let waits = says("PodScheduled", "0/1 nodes are available: 1 Insufficient cpu.")(newcomer);
        waits.then_some(Outcome::Waits)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_and_a_pod_that_meet_never_both_get_the_capacity() {
    const ROUNDS: usize = 16;
    for dialect in DIALECTS {
        let folder = tempfile::tempdir().unwrap();
        let cluster = start(&folder.path().join("data"), dialect, &[]);
        let pods: Api<Pod> = Api::default_namespaced(cluster.client().await);
        let mut seen = BTreeMap::<Outcome, usize>::new();
        for round in 0..ROUNDS {
            let (old, new) = (format!("old-{round}"), format!("new-{round}"));
            create(&pods, &graceful(&old, "500m")).await;
            until(&pods, &old, is_running).await;
            // The test binds half of the new pods without a check, the scheduler binds the others.
            let by_hand = round % 2 == 0;
            if by_hand {
                create(&pods, &of_another_scheduler(&new, "1", "64Mi")).await;
            }
            let growth = resize(&pods, &old, "1500m");
            let arrival = async {
                if by_hand {
                    bind(&pods, &new).await;
                } else {
                    create(&pods, &graceful(&new, "1")).await;
                }
            };
            // Either is the first to be sent, in turn.
            if round % 4 < 2 {
                join(growth, arrival).await;
            } else {
                join(arrival, growth).await;
            }
            until(&pods, &new, |pod| outcome(pod).is_some()).await;
            let became = outcome(pods.get_opt(&new).await.unwrap().as_ref()).unwrap();
            *seen.entry(became).or_default() += 1;
            match became {
                Outcome::Runs => until(&pods, &old, says("PodResizePending", "Deferred")).await,
                Outcome::Rejected | Outcome::Waits => until(&pods, &old, has("1500m")).await,
            }
            assert!(held(&pods).await <= CAPACITY, "{dialect}, round {round}: {became:?}");
            for name in [&new, &old] {
                pods.delete(name, &DeleteParams::default()).await.unwrap();
                until(&pods, name, |pod| pod.is_none()).await;
            }
        }
        println!("{dialect}: {seen:?}");
        // At the end no pod holds resources.
        create(&pods, &graceful("all", "2")).await;
        until(&pods, "all", is_running).await;
        assert!(cluster.stop().success());
    }
}
