//! Measured usage of containers, in `metrics.k8s.io`.

use std::time::Duration;

use http::Request;
use kube::Client;
use plumb_resize::Quantity;
use serde_json::{Value, json};

use super::machine::{Machine, create, equal, is_settled, load, pod, pods, until};

/// Asks until what is measured is as it must become: figures are not watched, and what was not measured is not known
/// yet.
async fn until_measured(client: &Client, path: &str, holds: impl Fn(&Value) -> bool) {
    let path = format!("/apis/metrics.k8s.io/v1beta1{path}");
    let mut last = Value::Null;
    let wait = async {
        loop {
            let request = Request::get(&path).body(Vec::new()).unwrap();
            match client.request::<Value>(request).await {
                Ok(found) if holds(&found) => return,
                Ok(found) => last = found,
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => panic!("{path}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let came = tokio::time::timeout(plumb_testkit::TIMEOUT, wait).await;
    assert!(came.is_ok(), "{path} is still {last:#}");
}

fn amount(text: &str) -> Quantity {
    text.parse().unwrap()
}

fn used(found: &Value, container: &str, resource: &str) -> Quantity {
    let containers = found["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let one = containers.iter().find(|one| one["name"] == container);
    one.map_or(Quantity::ZERO, |one| amount(one["usage"][resource].as_str().unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usage_of_a_container_is_shown_by_kubectl_top() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&["--metric-resolution", "200ms"]);
    let (client, pods) = (cluster.client().await, pods(&cluster).await);
    let containers = json!([
        load("busy", &["--memory", "24Mi", "--cpu", "100m"], equal("200m", "64Mi")),
        load("idle", &[], equal("100m", "64Mi")),
    ]);
    create(&pods, &pod("p", containers)).await;
    until(&pods, "p", "settled", is_settled).await;
    until_measured(&client, "/namespaces/default/pods/p", |found| {
        let (busy, idle) =
            (|resource| used(found, "busy", resource), |resource| used(found, "idle", resource));
        busy("memory") >= amount("24Mi") && idle("memory") < amount("24Mi") && busy("cpu") > idle("cpu")
    })
    .await;
    // It is the whole machine.
    until_measured(&client, "/nodes/plumb", |node| {
        amount(node["usage"]["memory"].as_str().unwrap()) >= amount("24Mi")
    })
    .await;
    drop(cluster);
    machine.clear();
}
