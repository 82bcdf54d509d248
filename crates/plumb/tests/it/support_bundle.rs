//! `plumb support-bundle`, from outside.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::cluster::Cluster;

fn bundle(cluster: &Cluster, out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
    command.arg("support-bundle").arg("--out").arg(out);
    command.arg("--kubeconfig").arg(cluster.kubeconfig()).output().unwrap()
}

/// The files of an archive.
fn unpacked(path: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(path).unwrap()));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (entry.path().unwrap().display().to_string(), text)
    });
    entries.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_has_health_metrics_and_objects_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let parts = ["--components", "apiserver,controllers,node", "--runtime", "virtual"];
    let cluster = Cluster::start_with(&folder.path().join("data"), &parts);
    let client = cluster.client().await;
    let create = PostParams::default();
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "db"}, "stringData": {"password": "hunter2"}}))
    .unwrap();
    Api::default_namespaced(client.clone()).create(&create, &secret).await.unwrap();
    let settings: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "settings"}, "data": {"password": "hunter2"}}))
    .unwrap();
    Api::default_namespaced(client.clone()).create(&create, &settings).await.unwrap();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web", "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "with the password hunter2"}},
        "spec": {"nodeName": "plumb", "containers": [{
            "name": "app", "image": "plumb/load", "env": [{"name": "PASSWORD", "value": "hunter2"}]}]}}))
    .unwrap();
    Api::default_namespaced(client).create(&create, &pod).await.unwrap();

    let out = folder.path().join("bundle.tar.gz");
    let done = bundle(&cluster, &out);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);

    let files = unpacked(&out);
    assert!(files["about.txt"].starts_with(concat!("plumb ", env!("CARGO_PKG_VERSION"))), "{files:?}");
    assert!(files["server/readyz.txt"].contains("readyz check passed"), "{}", files["server/readyz.txt"]);
    assert!(files["server/metrics.txt"].contains("apiserver_request_total"));
    assert!(files["nodes/plumb/healthz.txt"].contains("check passed"), "{files:?}");
    let pods: Value = serde_json::from_str(&files["objects/pods.json"]).unwrap();
    assert_eq!(pods["items"][0]["metadata"]["name"], "web");
    for (path, text) in &files {
        assert!(!text.contains("hunter2"), "{path} has the password");
    }

    let again = bundle(&cluster, &out);
    assert_eq!(again.status.code(), Some(1), "an existing file is kept");
}
