//! A tenant writes as many large objects as it may.

use http::Method;
use serde_json::{Value, json};

use crate::it::cluster::Cluster;
use crate::it::wire::{Connection, Speech, soon};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

fn maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// Creates config maps of 1 MB in a namespace until one is refused. Returns how many were accepted, and the refusal.
async fn fill(connection: &Connection, namespace: &str) -> (usize, u16, Value) {
    for count in 0..100 {
        let body =
            json!({ "metadata": { "name": format!("m{count}") }, "data": { "k": "v".repeat(1_000_000) } });
        let path = maps(namespace);
        let sent = connection.ask(Method::POST, &path, JSON, body.to_string());
        let (status, answer) = soon(sent).await.unwrap();
        if status != 201 {
            return (count, status, answer);
        }
    }
    panic!("all were accepted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_namespace_cannot_fill_the_store_and_a_full_store_takes_deletions() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let flags = [
        "--components",
        "apiserver",
        "--quota-backend-bytes",
        "20000000",
        "--namespace-quota-bytes",
        "8000000",
    ];
    let cluster = Cluster::start_with(&data, &flags);
    let connection = cluster.wire().connect(Speech::Http2).await;
    let ask = |method, path: String, media: &'static str, body: Value| {
        let connection = connection.clone();
        async move { soon(connection.ask(method, &path, media, body.to_string())).await.unwrap() }
    };
    for name in ["a", "b", "c"] {
        let namespace = json!({ "metadata": { "name": name } });
        assert_eq!(ask(Method::POST, "/api/v1/namespaces".into(), JSON, namespace).await.0, 201);
    }
    for name in ["n1", "n2"] {
        let node = json!({ "metadata": { "name": name } });
        assert_eq!(ask(Method::POST, "/api/v1/nodes".into(), JSON, node).await.0, 201);
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease = json!({ "metadata": { "name": "n1" }, "spec": { "holderIdentity": "n1" } });
    assert_eq!(ask(Method::POST, leases.into(), JSON, lease).await.0, 201);

    // The namespace is full, the store is not.
    let (count, status, refusal) = fill(&connection, "a").await;
    assert_eq!((count, status), (7, 403), "{refusal}");
    let message = refusal["message"].as_str().unwrap();
    assert!(message.starts_with("configmaps \"m7\" is forbidden: exceeded quota: "), "{message}");
    assert_eq!(ask(Method::GET, "/readyz".into(), "", Value::Null).await.0, 200);
    // Then the store is.
    assert_eq!(fill(&connection, "b").await.0, 7);
    let (_, status, refusal) = fill(&connection, "c").await;
    assert_eq!((status, refusal.get("reason")), (500, None), "{refusal}");
    let message = refusal["message"].as_str().unwrap();
    assert!(message.starts_with("etcdserver: mvcc: database space exceeded"), "{message}");

    // The alarm.
    let (status, ready) = ask(Method::GET, "/readyz".into(), "", Value::Null).await;
    assert_eq!(status, 500, "{ready}");
    assert!(ready.as_str().unwrap().contains("[-]store-quota failed"), "{ready}");
    let (status, live) = ask(Method::GET, "/livez?verbose".into(), "", Value::Null).await;
    assert_eq!(status, 200, "{live}");
    assert!(live.as_str().unwrap().contains("[!]store-quota failed"), "{live}");
    let (_, why) = ask(Method::GET, "/readyz/store-quota".into(), "", Value::Null).await;
    assert!(why.as_str().unwrap().contains("alarm NOSPACE"), "{why}");
    let (_, metrics) = ask(Method::GET, "/metrics".into(), "", Value::Null).await;
    assert!(metrics.as_str().unwrap().contains("plumb_store_quota_alarm 1"));
    assert!(!metrics.as_str().unwrap().contains("plumb_store_quota_rejections_total 0"));

    // Status, what makes no object larger, and after a restart too: deletions.
    let status = |bytes| {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "r".repeat(bytes) });
        json!({ "status": { "conditions": [ready] } })
    };
    assert_eq!(ask(Method::PATCH, "/api/v1/nodes/n1/status".into(), MERGE, status(500)).await.0, 200);
    // Not without end: what is left are an eighth of the quota and less than 1 MB.
    let (first, ..) = ask(Method::PATCH, "/api/v1/nodes/n1/status".into(), MERGE, status(2_900_000)).await;
    let (second, ..) = ask(Method::PATCH, "/api/v1/nodes/n2/status".into(), MERGE, status(2_900_000)).await;
    assert!([first, second].contains(&500), "{first} {second}");
    assert_eq!(ask(Method::PATCH, "/api/v1/nodes/n1/status".into(), MERGE, status(500)).await.0, 200);
    // A lease of a node is renewed, and apply creates no object in a system namespace either.
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
    let renewed = json!({ "spec": { "holderIdentity": "n1 again, for longer" } });
    assert_eq!(ask(Method::PATCH, lease.into(), MERGE, renewed).await.0, 200);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": { "k": "v".repeat(1_000_000) },
    });
    let path = format!("{}/m?fieldManager=tenant", maps("kube-system"));
    let (status, refusal) = ask(Method::PATCH, path, "application/apply-patch+yaml", map).await;
    assert_eq!(status, 500, "{refusal}");
    let smaller = json!({ "data": { "k": "v".repeat(1_000) } });
    assert_eq!(ask(Method::PATCH, format!("{}/m0", maps("a")), MERGE, smaller).await.0, 200);
    let larger = json!({ "data": { "k": "v".repeat(2_000_000) } });
    assert_ne!(ask(Method::PATCH, format!("{}/m1", maps("a")), MERGE, larger).await.0, 200);
    drop(connection);
    assert!(cluster.stop().success());
    let flags = [&flags[2..], &["--components", "apiserver,controllers"]].concat();
    let cluster = Cluster::start_with(&data, &flags);
    let connection = cluster.wire().connect(Speech::Http2).await;
    let removed = soon(connection.ask(Method::DELETE, &maps("b"), "", "")).await.unwrap();
    assert_eq!(removed.0, 200);
    assert_eq!(soon(connection.ask(Method::GET, "/readyz/store-quota", "", "")).await.unwrap().0, 200);
    assert_eq!(fill(&connection, "b").await.0, 7);
}
