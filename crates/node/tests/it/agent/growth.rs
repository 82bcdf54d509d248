//! CPU limits that grow while a container is throttled.

use kube::api::PostParams;
use plumb_resize::rules::Rules;
use plumb_testkit::object;
use serde_json::{Value, json};

use crate::it::cluster::NODE;
use crate::it::site::{Site, equal, one, status};

const ANNOTATION: &str = "plumb.dev/throttling-growth";

/// A pod that has opted in, whose container would use six tenths of a core.
async fn throttled(site: &Site, name: &str, bounds: &str, resources: Value) {
    let annotations = json!({ ANNOTATION: bounds, "virtual.plumb.dev/model": "cpu=600m memory=1Mi" });
    let spec = json!({ "nodeName": NODE, "containers": one(resources), "terminationGracePeriodSeconds": 1 });
    let pod = object(json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec }));
    site.pods().create(&PostParams::default(), &pod).await.unwrap();
}

#[tokio::test]
async fn a_throttled_container_gets_what_it_could_use_on_a_node_with_idle_cpu_and_runs_on() {
    let site = Site::start(Rules::kep()).await;
    throttled(&site, "a", "c=2", equal("200m", "64Mi")).await;
    let before = site.settled("a").await;
    let message = site.event("a", "ThrottlingGrowth").await;
    assert!(
        message.starts_with("CPU limit of container c was raised from 200m to 600m: it used "),
        "{message}"
    );
    let after = site.settled("a").await;
    assert_eq!(status(&after).resources.unwrap().limits.unwrap()["cpu"].0, "600m");
    assert_eq!(after.status.as_ref().unwrap().qos_class.as_deref(), Some("Guaranteed"));
    assert_eq!(status(&after).container_id, status(&before).container_id);
    assert_eq!(site.cpu_quota_of("a").await, Some(60_000));
}

#[tokio::test]
async fn the_request_of_a_burstable_container_stays_when_its_cpu_limit_grows_up_to_its_maximum() {
    let site = Site::start(Rules::kep()).await;
    let resources = json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "200m" } });
    throttled(&site, "a", "300m", resources).await;
    site.event("a", "ThrottlingGrowth").await;
    let resources = status(&site.settled("a").await).resources.unwrap();
    assert_eq!(resources.limits.unwrap()["cpu"].0, "300m");
    assert_eq!(resources.requests.unwrap()["cpu"].0, "100m");
}

#[tokio::test]
async fn a_cpu_limit_stays_on_a_busy_node_and_an_event_says_why() {
    let site = Site::start(Rules::kep()).await;
    site.pod("holder", one(equal("1800m", "64Mi"))).await;
    site.settled("holder").await;
    throttled(&site, "a", "c=2", equal("200m", "64Mi")).await;
    let expected = "CPU limit 200m of container c was not raised: the node has only 0 of idle CPU";
    assert_eq!(site.event("a", "ThrottlingGrowthFailed").await, expected);
    // What it waited for.
    site.delete("holder").await;
    site.event("a", "ThrottlingGrowth").await;
}

#[tokio::test]
async fn bounds_that_cannot_be_read_are_reported_and_nothing_grows() {
    let site = Site::start(Rules::kep()).await;
    throttled(&site, "a", "much", equal("200m", "64Mi")).await;
    let message = site.event("a", "ThrottlingGrowthFailed").await;
    assert!(
        message.starts_with("annotation plumb.dev/throttling-growth: invalid amount of cpu"),
        "{message}"
    );
}
