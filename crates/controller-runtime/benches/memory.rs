//! What a pod costs that is watched: as kube-runtime's watcher hands it on, and as our reflector does.
//!
//! `cargo bench -p plumb-controller-runtime --bench memory`; the column of interest is `max alloc`, of [`PODS`] pods.

#![expect(clippy::expect_used, reason = "the text is a constant")]

use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::compact;
use serde_json::json;

#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

const PODS: usize = 1000;

fn main() {
    divan::main();
}

/// A running pod of a deployment with one container, as an API server sends it.
fn text() -> String {
    let time = "2026-01-01T00:00:00Z";
    let condition = |type_: &str| json!({ "type": type_, "status": "True", "lastTransitionTime": time });
    let resources = json!({ "requests": { "cpu": "100m", "memory": "64Mi" }, "limits": { "cpu": "100m", "memory": "64Mi" } });
    let managed = |manager: &str| {
        json!({ "manager": manager, "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": {
            "f:metadata": { "f:labels": { ".": {}, "f:app": {}, "f:pod-template-hash": {} }, "f:ownerReferences": {} },
            "f:spec": { "f:containers": { "k:{\"name\":\"web\"}": { ".": {}, "f:image": {}, "f:resources": { "f:limits": {}, "f:requests": {} } } } },
        } })
    };
    json!({
        "metadata": {
            "name": "web-5d4f8c7b9-abcde", "generateName": "web-5d4f8c7b9-", "namespace": "team", "uid": "6f0c1f5e-6a47-4ac6-9e6a-6f8a5a4d8b11",
            "resourceVersion": "123456", "creationTimestamp": time, "labels": { "app": "web", "pod-template-hash": "5d4f8c7b9" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8c7b9", "uid": "8c5a1c39-70f4-4b7e-9b7e-2e0c7bb2c7b0", "controller": true, "blockOwnerDeletion": true }],
            "managedFields": [managed("kube-controller-manager"), managed("kubelet")],
        },
        "spec": {
            "containers": [{ "name": "web", "image": "plumb/load", "resources": resources, "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File" }],
            "nodeName": "node-17", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
            "tolerations": [
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            ],
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.17", "podIP": "10.1.17.5", "startTime": time, "qosClass": "Guaranteed",
            "podIPs": [{ "ip": "10.1.17.5" }], "hostIPs": [{ "ip": "10.0.0.17" }],
            "conditions": [condition("PodScheduled"), condition("Initialized"), condition("ContainersReady"), condition("Ready"), condition("PodReadyToStartContainers")],
            "containerStatuses": [{ "name": "web", "image": "plumb/load", "imageID": "sha256:0", "ready": true, "started": true, "restartCount": 0, "containerID": "virtual://0", "state": { "running": { "startedAt": time } }, "resources": resources, "allocatedResources": { "cpu": "100m", "memory": "64Mi" } }],
        },
    })
    .to_string()
}

fn decoded(text: &str, then: impl Fn(Pod) -> Pod) -> Vec<Pod> {
    // An own reserve, so that the list itself costs the same.
    let mut pods = Vec::with_capacity(PODS);
    pods.extend((0..PODS).map(|_| then(serde_json::from_str(text).expect("a pod"))));
    pods
}

#[divan::bench(sample_count = 10)]
fn as_kube_runtime_watcher(bencher: divan::Bencher) {
    let text = text();
    bencher.bench(|| decoded(&text, |pod| pod));
}

#[divan::bench(sample_count = 10)]
fn compacted(bencher: divan::Bencher) {
    let text = text();
    bencher.bench(|| decoded(&text, compact));
}
