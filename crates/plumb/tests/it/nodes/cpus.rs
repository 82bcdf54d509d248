//! Cpus that containers have for themselves, and what classes of pods weigh, as the kernel has it.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use super::machine::{
    Groups, Machine, condition, create, equal, id, is_settled, load, pod, pods, resize, soon, until,
};

const STATIC: [&str; 4] = ["--cpu-manager-policy", "static", "--reserved-cpus", "0"];

/// How many cpus this machine has, if it is enough to give one away.
fn last_cpu() -> Option<usize> {
    let count = std::thread::available_parallelism().unwrap().get();
    if count < 2 {
        plumb_testkit::skip(plumb_testkit::MACHINE, "this machine has one cpu");
        return None;
    }
    Some(count - 1)
}

async fn settled(pods: &Api<Pod>, name: &str) -> (Groups, String) {
    let pod = until(pods, name, "settled", is_settled).await;
    (Groups::of(&pod), id(&pod, "c"))
}

#[tokio::test]
async fn a_container_with_whole_cpus_is_alone_on_them_and_stays_there_over_restarts() {
    let (Some(machine), Some(last)) = (Machine::here(), last_cpu()) else { return };
    let cluster = machine.start(&STATIC);
    let api = pods(&cluster).await;
    let all = format!("0-{last}");
    let rest = match last {
        1 => "0".to_owned(),
        2 => "0,2".to_owned(),
        last => format!("0,2-{last}"),
    };
    create(&api, &pod("shares", json!([load("c", &[], json!({ "requests": { "cpu": "100m" } }))]))).await;
    let (shares, c) = settled(&api, "shares").await;
    assert_eq!(shares.cpus(&c), all);
    create(&api, &pod("whole", json!([load("c", &[], equal("1", "32Mi"))]))).await;
    let (whole, w) = settled(&api, "whole").await;
    assert_eq!(whole.cpus(&w), "1");
    soon("moved aside", || shares.cpus(&c) == rest).await;
    drop(cluster);

    let cluster = machine.start(&STATIC);
    let api = pods(&cluster).await;
    let (whole, again) = settled(&api, "whole").await;
    assert_eq!((again.as_str(), whole.cpus(&w).as_str()), (w.as_str(), "1"));
    assert_eq!(shares.cpus(&c), rest);
    resize(&api, "whole", json!([{ "name": "c", "resources": equal("500m", "32Mi") }])).await;
    let refused = until(&api, "whole", "refused", |pod| condition(pod, "PodResizePending").is_some()).await;
    let message = condition(&refused, "PodResizePending").unwrap();
    assert!(message.ends_with("the cpu of container \"c\" must be a whole number of cores"), "{message}");
    api.delete("whole", &DeleteParams::default()).await.unwrap();
    soon("shared again", || shares.cpus(&c) == all).await;
    drop(cluster);
    machine.clear();
}

#[tokio::test]
async fn the_burstable_class_weighs_the_requests_of_its_pods_and_best_effort_next_to_nothing() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let api = pods(&cluster).await;
    for (name, cpu) in [("a", "500m"), ("b", "250m")] {
        create(&api, &pod(name, json!([load("c", &[], json!({ "requests": { "cpu": cpu } }))]))).await;
    }
    let (class, _) = settled(&api, "a").await;
    settled(&api, "b").await;
    soon("weighed", || class.class_weighs("burstable", 750)).await;
    assert!(class.class_weighs("besteffort", 0));
    resize(&api, "b", json!([{ "name": "c", "resources": { "requests": { "cpu": "500m" } } }])).await;
    soon("weighed", || class.class_weighs("burstable", 1000)).await;
    for name in ["a", "b"] {
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
    soon("weighed", || class.class_weighs("burstable", 0)).await;
    drop(cluster);
    machine.clear();
}
