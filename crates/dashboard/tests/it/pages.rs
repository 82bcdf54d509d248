//! What the pages show.

use plumb_testkit::eventually;
use serde_json::{Value, json};

use crate::fixture::{HOSTILE, Running, cluster};

/// Every page, and texts that it has.
const PAGES: [(&str, &[&str]); 7] = [
    ("/", &["n1", "Deferred", "held by pod other", "NoPodsMatched", "Held"]),
    ("/pods", &["web-0", "web-1", "500m", "256Mi", "Deferred"]),
    ("/pods/default/web-1", &["deferred", "held by pod other", "ResizeWaits", "500m"]),
    ("/vpas", &["web", "InPlaceOrRecreate", "750m", "300Mi"]),
    ("/vpas/default/web", &["Deployment/web", "<svg", "750m", "NoPodsMatched"]),
    ("/rollouts", &["deployment/web", "Held"]),
    ("/rollouts/deployment/default/web", &["Held", "The workload has no pods"]),
];

/// Waits until the dashboard has read everything.
async fn read(running: &Running) {
    eventually(async || {
        let overview = running.get("/?format=json").await.json();
        overview["nodes"]["rows"].as_array().is_some_and(|nodes| nodes.len() == 1)
            && overview["resizes"]["rows"][0]["explanation"] == "held by pod other"
            && overview["vpas"]["rows"][0]["name"] == "web"
            && overview["rollouts"]["rows"][0]["phase"] == "Held"
    })
    .await;
}

#[tokio::test]
async fn every_page_shows_its_objects_and_escapes_what_others_have_written() {
    let cluster = cluster().await;
    let running = Running::start(cluster.admin(), None).await;
    read(&running).await;
    for (path, texts) in PAGES {
        let page = running.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        for text in texts {
            assert!(page.body.contains(text), "{path} lacks {text:?}: {}", page.body);
        }
        assert!(!page.body.contains(HOSTILE), "{path}: {}", page.body);
        // One script, which is a file of the dashboard.
        assert_eq!(page.body.matches("<script").count(), 1, "{path}");
        assert!(!page.body.contains("style="), "{path}: the policy allows no inline style");
        for tag in
            ["<main", "<h1>", "lang=\"en\"", "class=\"skip\"", "<caption>", "scope=\"col\"", "scope=\"row\""]
        {
            assert!(page.body.contains(tag), "{path} lacks {tag}");
        }
    }
    let hostile = running.get(&format!("/pods?q={}", "%3Cscript%3Ealert%281%29%3C%2Fscript%3E")).await;
    assert!(hostile.body.contains("&lt;script&gt;alert(1)"), "{}", hostile.body);
    assert_eq!(hostile.body.matches("<script").count(), 1);
    for path in
        ["/pods/default/missing", "/vpas/default/missing", "/rollouts/deployment/default/missing", "/other"]
    {
        assert_eq!(running.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn every_table_is_there_as_json_and_csv() {
    let cluster = cluster().await;
    let running = Running::start(cluster.admin(), None).await;
    read(&running).await;
    let node = running.get("/?format=json").await.json()["nodes"]["rows"][0].clone();
    for (key, value) in [
        ("name", json!("n1")),
        ("ready", json!("Ready")),
        ("pods", json!(2)),
        ("cpuCapacity", json!("4")),
        ("cpuAllocated", json!("1")),
        ("cpuAllocatedPercent", json!(25)),
        ("cpuDesired", json!("2500m")),
        ("cpuUsed", Value::Null),
        ("memoryAllocated", json!("512Mi")),
    ] {
        assert_eq!(node[key], value, "{key} of {node}");
    }
    let pods = running.get("/pods?format=csv&q=web-1").await;
    assert_eq!(pods.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
    let lines: Vec<&str> = pods.body.lines().collect();
    assert_eq!(lines.len(), 2, "{}", pods.body);
    assert!(
        lines[0].starts_with("name,namespace,node,state,cpuDesired,cpuAllocated,cpuUsed,"),
        "{}",
        lines[0]
    );
    assert!(lines[1].starts_with("web-1,default,n1,Running,2,500m,,256Mi,256Mi,,Deferred,"), "{}", lines[1]);
    let resizes = running.get("/?format=csv&table=resizes").await;
    assert!(resizes.body.contains("held by pod other"), "{}", resizes.body);
    let container =
        running.get("/pods/default/web-1?format=json").await.json()["containers"]["rows"][0].clone();
    let expected = json!({ "container": "app", "resource": "cpu", "desired": { "request": "2", "limit": null },
        "allocated": "500m", "actual": { "request": "500m", "limit": null }, "used": null });
    assert_eq!(container, expected);
    let vpa = running.get("/vpas/default/web?format=json").await.json()["recommendation"]["rows"][0].clone();
    let expected = json!({ "container": "app", "resource": "cpu", "target": "750m", "lower": "100m", "upper": "1",
        "uncapped": "750m", "minAllowed": null, "maxAllowed": "1" });
    assert_eq!(vpa, expected);
    assert_eq!(running.get("/?format=csv&table=other").await.status, 404);
    assert_eq!(running.get("/?format=other").await.status, 404);
}

#[tokio::test]
async fn pods_are_filtered_by_the_url() {
    let cluster = cluster().await;
    let running = Running::start(cluster.admin(), None).await;
    read(&running).await;
    for (path, expected) in [
        ("/pods", vec!["web-0", "web-1"]),
        ("/pods?q=WEB-0", vec!["web-0"]),
        ("/pods?q=deferred", vec!["web-1"]),
        ("/pods?namespace=default&q=n1", vec!["web-0", "web-1"]),
        ("/pods?namespace=other", vec![]),
        ("/pods?page=2", vec![]),
    ] {
        let separator = if path.contains('?') { '&' } else { '?' };
        let pods = running.get(&format!("{path}{separator}format=json")).await.json();
        let rows = pods["pods"]["rows"].as_array().unwrap().clone();
        let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
        assert_eq!(names, expected, "{path}");
    }
}
