//! Usage over time, and resizes as marks.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plumb_apiserver::usage::{Amounts, NodeUsage, PodUsage, Span, UsageSource};
use plumb_resize::Quantity;
use plumb_testkit::{Options, TestCluster, eventually};
use serde_json::json;

use crate::fixture::{Running, create_node, create_pod, patch_status, running_container};

/// Every container uses 120m and 64Mi.
struct Same;

const USED: Amounts = Amounts { cpu: Quantity::from_milli(120), memory: Quantity::from_bytes(64 << 20) };

fn span() -> Span {
    Span { until: Timestamp::now(), length: Duration::from_secs(15) }
}

impl UsageSource for Same {
    fn node(&self, _: &str) -> Option<NodeUsage> {
        Some(NodeUsage { span: span(), used: USED })
    }

    fn pod(&self, _: &str, _: &str, _: &str) -> Option<PodUsage> {
        Some(PodUsage { span: span(), containers: vec![("app".to_owned(), USED)] })
    }
}

#[tokio::test]
async fn usage_is_shown_beside_requests_and_over_time_with_the_resizes() {
    let cluster = TestCluster::with(Options { usage: Some(Arc::new(Same)), ..Options::default() });
    create_node(&cluster.admin()).await;
    create_pod(&cluster, "web-0").await;
    let running = Running::start(cluster.admin(), None).await;
    eventually(async || {
        running.get("/pods?format=json").await.json()["pods"]["rows"][0]["cpuUsed"] == "120m"
    })
    .await;
    assert_eq!(running.get("/?format=json").await.json()["nodes"]["rows"][0]["memoryUsed"], "64Mi");
    let page = "/pods/default/web-0";
    eventually(async || running.get(page).await.body.contains("app cpu: 120m used now, at most 120m")).await;
    let container = running_container(&json!({ "cpu": "1", "memory": "256Mi" }));
    patch_status(&cluster, "web-0", json!({ "containerStatuses": [container] })).await;
    let mut resized = json!(null);
    eventually(async || {
        resized = running.get(&format!("{page}?format=json")).await.json()["usage"]["rows"][0].clone();
        !resized.is_null()
    })
    .await;
    assert_eq!(resized["from"], json!({ "request": "500m", "limit": null }));
    assert_eq!(resized["to"], json!({ "request": "1", "limit": null }));
}
