//! The service account of a pod, in a cluster with defaults.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

use super::cluster::Cluster;

const PLACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Makes a namespace and, at once, a pod in it.
async fn pod_of_a_new_namespace(client: &Client, namespace: &str) -> Pod {
    let post = PostParams::default();
    let place: Namespace = serde_json::from_value(json!({ "metadata": { "name": namespace } })).unwrap();
    Api::all(client.clone()).create(&post, &place).await.unwrap();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "web" }, "spec": { "containers": [{ "name": "main", "image": "plumb/load" }] },
    }))
    .unwrap();
    Api::namespaced(client.clone(), namespace).create(&post, &pod).await.unwrap()
}

#[tokio::test]
async fn a_pod_is_the_default_account_of_its_namespace_and_holds_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&folder.path().join("data"));
    let client = cluster.client().await;
    for namespace in ["one", "two", "three"] {
        let spec = pod_of_a_new_namespace(&client, namespace).await.spec.unwrap();
        assert_eq!(spec.service_account_name.as_deref(), Some("default"));
        let volumes = spec.volumes.unwrap();
        let [volume] = volumes.as_slice() else { panic!("{volumes:?}") };
        let sources = volume.projected.as_ref().unwrap().sources.as_ref().unwrap();
        assert_eq!(sources[0].service_account_token.as_ref().unwrap().path, "token");
        assert_eq!(sources[1].config_map.as_ref().unwrap().name, "kube-root-ca.crt");
        let mounts = spec.containers[0].volume_mounts.as_ref().unwrap();
        assert_eq!((&mounts[0].name, mounts[0].mount_path.as_str()), (&volume.name, PLACE));
    }
}

#[tokio::test]
async fn without_the_service_account_controller_a_pod_needs_no_account() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start_alone(&folder.path().join("data"));
    let spec = pod_of_a_new_namespace(&cluster.client().await, "one").await.spec.unwrap();
    assert_eq!((spec.service_account_name, spec.volumes), (None, None));
}
