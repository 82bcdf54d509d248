//! Pods that use more of the disk than their limits allow.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::machine::{Machine, create, pods, until};
use super::programs::{pod, script};

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

#[tokio::test]
async fn pods_that_exceed_limits_of_their_local_storage_are_evicted_and_others_run_on() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let pods = pods(&cluster).await;
    let volume = json!([{ "name": "v", "emptyDir": { "sizeLimit": "1Mi" } }]);
    let mount = [json!({ "name": "v", "mountPath": "/v" })];
    let limits = json!({ "limits": { "ephemeral-storage": "1Mi" } });
    let write = |kib: u32, file: &str| format!("head -c {kib}k /dev/zero > {file}; sleep 3600");
    for (name, kib) in [("in-volume", 3000), ("within", 100)] {
        let containers = json!([script("c", &write(kib, "/v/file"), &mount)]);
        create(&pods, &pod(name, json!({ "containers": containers, "volumes": volume }))).await;
    }
    for (name, script_of) in [
        ("in-layer", write(3000, "/file")),
        ("in-log", "head -c 3000k /dev/zero | tr '\\0' 'a' | fold; sleep 3600".to_owned()),
    ] {
        let mut container = script("c", &script_of, &[]);
        container["resources"] = limits.clone();
        create(&pods, &pod(name, json!({ "containers": [container] }))).await;
    }
    let of_pod = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
    for (name, message) in [
        ("in-volume", "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "),
        ("in-layer", of_pod),
        ("in-log", of_pod),
    ] {
        let failed = until(&pods, name, "evicted", |pod| phase(pod) == Some("Failed")).await;
        let status = failed.status.unwrap();
        assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("Evicted"), Some(message)));
    }
    assert_eq!(phase(&pods.get("within").await.unwrap()), Some("Running"));
    drop(cluster);
    machine.clear();
}
