//! Static pods: the node runs what is in a directory.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use super::cluster::{Cluster, complaint, up};
use super::nodes::machine::{pods, until};

fn manifest(memory: &str) -> String {
    let resources = json!({ "limits": { "memory": memory } });
    let container = json!({ "name": "c", "image": "plumb/load", "resources": resources });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "web" },
        "spec": { "terminationGracePeriodSeconds": 1, "containers": [container] },
    })
    .to_string()
}

/// Waits until the pod runs that stands for the manifest, and is another one than this.
async fn running(pods: &Api<Pod>, other_than: Option<&str>) -> Pod {
    until(pods, "web-plumb", "running", |pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running")
            && pod.metadata.uid.as_deref() != other_than
            && pod.metadata.deletion_timestamp.is_none()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_has_a_mirror_pod_for_as_long_as_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("manifests");
    fs::create_dir(&manifests).unwrap();
    let file = manifests.join("web.yaml");
    fs::write(&file, manifest("16Mi")).unwrap();
    let flags = ["--components", "apiserver,controllers,node", "--runtime", "virtual", "--pod-manifest-path"];
    let flags = [&flags[..], &[manifests.to_str().unwrap()]].concat();
    let data = folder.path().join("data");
    let cluster = Cluster::start_with(&data, &flags);
    let api = pods(&cluster).await;
    let first = running(&api, None).await;
    let annotations = first.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations["kubernetes.io/config.hash"], annotations["kubernetes.io/config.mirror"]);
    assert!(annotations.contains_key("kubernetes.io/config.seen"));
    let owner = &first.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Node", "plumb"));

    // One that is deleted comes back.
    api.delete("web-plumb", &DeleteParams::default()).await.unwrap();
    let second = running(&api, first.metadata.uid.as_deref()).await;
    // A manifest that changes replaces its pod.
    fs::write(&file, manifest("32Mi")).unwrap();
    let third = running(&api, second.metadata.uid.as_deref()).await;
    let memory =
        third.spec.as_ref().unwrap().containers[0].resources.as_ref().unwrap().limits.as_ref().unwrap();
    assert_eq!(memory["memory"].0, "32Mi");
    // A half-written one does not.
    fs::write(&file, "apiVersion: v1\nkind: P").unwrap();

    // The next agent finds the pod of the manifest.
    cluster.stop();
    fs::write(&file, manifest("32Mi")).unwrap();
    let cluster = Cluster::start_with(&data, &flags);
    let api = pods(&cluster).await;
    let found = running(&api, None).await;
    assert_eq!(found.metadata.uid, third.metadata.uid);

    fs::remove_file(&file).unwrap();
    let gone = async {
        while api.get_opt("web-plumb").await.unwrap().is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(plumb_testkit::TIMEOUT, gone).await.unwrap();
}

#[test]
fn a_directory_that_is_missing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = up(&folder.path().join("data"));
    command.args(["--runtime", "virtual", "--pod-manifest-path"]).arg(folder.path().join("missing"));
    let said = complaint(command);
    assert!(said.contains("--pod-manifest-path") && said.contains("missing"), "{said}");
}
