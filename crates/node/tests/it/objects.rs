//! Objects that pods refer to, as a node may read them.

use plumb_node::objects::{Objects, ReadError, Reference};
use plumb_testkit::in_time;
use serde_json::json;

use super::cluster::Cluster;

/// A cluster with settings that a pod of the node names.
async fn with_settings() -> (Cluster, Objects, Reference) {
    let cluster = Cluster::start();
    cluster.config_map("settings", json!({ "mode": "old" })).await;
    cluster.pod(json!({
        "containers": [{ "name": "c", "image": "i", "envFrom": [{ "configMapRef": { "name": "settings" } }] }],
    })).await;
    let objects = Objects::new(cluster.node());
    let settings = Reference::config_map("default", "settings");
    (cluster, objects, settings)
}

#[tokio::test]
async fn an_object_is_read_as_it_is_now() {
    let (cluster, objects, settings) = with_settings().await;
    assert_eq!(objects.read(&settings).await.unwrap().get("mode"), Some(&b"old"[..]));
    cluster.config_map("settings", json!({ "mode": "new" })).await;
    assert_eq!(objects.read(&settings).await.unwrap().get("mode"), Some(&b"new"[..]));
}

#[tokio::test]
async fn a_missing_object_is_reported_with_the_kubelets_message() {
    let cluster = Cluster::start();
    cluster
        .pod(json!({
            "containers": [{ "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "gone" } }] }],
        }))
        .await;
    let objects = Objects::new(cluster.node());
    let missing = objects.read(&Reference::secret("default", "gone")).await.unwrap_err();
    assert!(matches!(missing, ReadError::NotFound { .. }));
    assert_eq!(missing.to_string(), r#"secret "gone" not found"#);
}

#[tokio::test]
async fn one_watch_serves_all_followers_and_ends_with_the_last() {
    let (cluster, objects, settings) = with_settings().await;
    let (mut one, mut other) = (objects.subscribe(&settings), objects.subscribe(&settings));
    assert_eq!(objects.watched(), std::slice::from_ref(&settings));
    in_time(async { tokio::join!(one.changed(), other.changed()) }).await;
    cluster.config_map("settings", json!({ "mode": "new" })).await;
    in_time(async { tokio::join!(one.changed(), other.changed()) }).await;

    cluster.set_away(true);
    assert_eq!(objects.read(&settings).await.unwrap().get("mode"), Some(&b"new"[..]), "from the cache");
    drop(one);
    assert_eq!(objects.watched().len(), 1);
    drop(other);
    assert!(objects.watched().is_empty());
    assert!(objects.read(&settings).await.is_err());
}
