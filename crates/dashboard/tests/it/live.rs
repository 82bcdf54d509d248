//! Live updates.

use plumb_testkit::TestCluster;

use crate::fixture::{Running, create_node, create_pod, defer_resize};

#[tokio::test]
async fn a_page_gets_the_sections_that_a_resize_changes() {
    let cluster = TestCluster::start();
    create_node(&cluster.admin()).await;
    create_pod(&cluster, "web-0").await;
    let running = Running::start(cluster.admin(), None).await;
    let mut list = running.updates("/pods?format=live").await;
    let mut overview = running.updates("/?format=live").await;
    let head = list.until("web-0").await;
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains("event: fragment"), "{head}");
    assert!(!head.contains("Deferred"), "{head}");
    overview.until("All resizes are applied").await;
    defer_resize(&cluster, "web-0").await;
    list.until("Deferred").await;
    overview.until("held by pod other").await;
}

#[tokio::test]
async fn a_page_that_has_a_section_does_not_get_it_until_it_changes() {
    let cluster = TestCluster::start();
    create_node(&cluster.admin()).await;
    create_pod(&cluster, "web-0").await;
    let running = Running::start(cluster.admin(), None).await;
    running.updates("/pods?format=live").await.until("web-0").await;
    let page = running.get("/pods").await.body;
    let start = page.find("data-hash=\"").unwrap() + "data-hash=\"".len();
    let hash = page[start..].split('"').next().unwrap();
    let mut updates = running.updates(&format!("/pods?format=live&have={hash}")).await;
    updates.until("retry:").await;
    create_pod(&cluster, "web-1").await;
    let text = updates.until("web-1").await;
    let first = text.find("event: fragment").unwrap();
    let first = &text[first..];
    assert!(
        first.contains("web-1") && !first.contains(hash),
        "the first section is the changed one: {first}"
    );
}
