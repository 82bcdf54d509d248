//! What the schema table and its users cost: `cargo bench -p plumb-apischema`.

#![expect(clippy::expect_used, reason = "a measurement that cannot be set up is none")]

use divan::{Bencher, black_box};
use plumb_apischema::apply::{Ignored, OneVersion, Tracker};
use plumb_apischema::patch::{self, strategic};
use plumb_apischema::{Schema, json, openapi, protobuf};
use serde_json::{Value, json};

fn main() {
    // Reading the table is measured apart.
    let _ = Schema::builtin();
    divan::main();
}

/// A pod as a cluster has them: two containers, probes, volumes, status.
fn pod() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example/web:1.27", "args": ["--port", "8080"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10},
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent",
        })
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "8f6f3f6e-6a53-4d67-8f51-0b8f5a3e3f10",
            "resourceVersion": "4711", "creationTimestamp": "2026-03-01T10:00:00Z",
            "labels": {"app": "web", "tier": "front"}, "annotations": {"note": "x"}},
        "spec": {"nodeName": "n1", "restartPolicy": "Always", "containers": [container("web"), container("sidecar")],
            "volumes": [{"name": "scratch", "emptyDir": {}}], "serviceAccountName": "default",
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "startTime": "2026-03-01T10:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T10:00:05Z"}],
            "containerStatuses": [{"name": "web", "ready": true, "restartCount": 0, "image": "x", "imageID": "y",
                "resources": {"requests": {"cpu": "500m"}}, "allocatedResources": {"cpu": "500m"}}]},
    });
    let schema = Schema::builtin();
    let kind = schema.kind("", "v1", "Pod").expect("pods");
    json::canonical(schema, kind, pod).expect("a pod")
}

#[divan::bench]
fn load_the_table() -> Schema {
    Schema::load(include_str!("../data/kubernetes-1.36.schema")).expect("the table is sound")
}

#[divan::bench]
fn read_a_pod_from_protobuf(bencher: Bencher<'_, '_>) {
    let body = protobuf::encode(Schema::builtin(), &pod()).expect("a pod");
    bencher.bench(|| protobuf::decode(Schema::builtin(), black_box(&body), None));
}

#[divan::bench]
fn write_a_pod_as_protobuf(bencher: Bencher<'_, '_>) {
    let pod = pod();
    bencher.bench(|| protobuf::encode(Schema::builtin(), black_box(&pod)));
}

#[divan::bench]
fn read_a_pod_from_json(bencher: Bencher<'_, '_>) {
    let kind = Schema::builtin().kind("", "v1", "Pod").expect("pods");
    let body = pod().to_string();
    bencher.bench(|| json::decode(Schema::builtin(), kind, black_box(body.as_bytes())));
}

#[divan::bench]
fn read_a_pod_from_json_without_a_schema(bencher: Bencher<'_, '_>) {
    let body = pod().to_string();
    bencher.bench(|| serde_json::from_slice::<Value>(black_box(body.as_bytes())));
}

#[divan::bench]
fn canonicalise_a_pod(bencher: Bencher<'_, '_>) {
    let kind = Schema::builtin().kind("", "v1", "Pod").expect("pods");
    bencher.with_inputs(pod).bench_values(|pod| json::canonical(Schema::builtin(), kind, pod));
}

fn resize() -> Value {
    json!({"spec": {"containers": [{"name": "web", "resources":
        {"requests": {"cpu": "750m"}, "limits": {"cpu": "1500m"}}}]}})
}

#[divan::bench]
fn strategic_merge_of_a_resize(bencher: Bencher<'_, '_>) {
    let kind = Schema::builtin().kind("", "v1", "Pod").expect("pods");
    bencher
        .with_inputs(|| (pod(), resize()))
        .bench_values(|(pod, patch)| strategic::apply(Schema::builtin(), kind, pod, patch));
}

#[divan::bench]
fn json_patch_of_a_resize(bencher: Bencher<'_, '_>) {
    let patch = json!([{"op": "replace", "path": "/spec/containers/0/resources/limits/cpu", "value": "2"}]);
    bencher
        .with_inputs(|| (pod(), patch.clone()))
        .bench_values(|(pod, patch)| patch::json::apply(pod, patch));
}

#[divan::bench]
fn describe_the_core_in_openapi() -> Option<Value> {
    openapi::document(Schema::builtin(), "", "v1")
}

/// A pod of three containers with two managers, and the same with another amount of CPU.
fn tracked<T>(work: impl FnOnce(&Tracker<'_>, Value, Value) -> T) -> T {
    let kind = Schema::builtin().kind("", "v1", "Pod").expect("pods");
    let ignored = Ignored::fields(&[&["status"]]);
    let versions = OneVersion { kind, api_version: "v1", ignored: &ignored };
    let api_version = "v1";
    let now = "2026-03-01T10:00:00Z";
    let tracker = Tracker { versions: &versions, api_version, kind: "Pod", subresource: "", now };
    let mut old = pod();
    let mut third = old["spec"]["containers"][0].clone();
    third["name"] = json!("third");
    old["spec"]["containers"].as_array_mut().expect("containers").push(third);
    tracker.create(&mut old, "kubectl-create");
    let mut first = old.clone();
    first["spec"]["containers"][1]["resources"]["requests"]["cpu"] = json!("600m");
    tracker.update(&old, &mut first, "resizer");
    let mut new = first.clone();
    new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("700m");
    work(&tracker, first, new)
}

#[divan::bench]
fn track_a_changed_pod(bencher: Bencher<'_, '_>) {
    tracked(|tracker, old, new| {
        bencher.with_inputs(|| new.clone()).bench_values(|mut new| {
            tracker.update(&old, &mut new, "resizer");
            new
        });
    });
}

#[divan::bench]
fn track_an_unchanged_pod(bencher: Bencher<'_, '_>) {
    tracked(|tracker, old, _| {
        bencher.with_inputs(|| old.clone()).bench_values(|mut new| {
            tracker.update(&old, &mut new, "resizer");
            new
        });
    });
}

#[divan::bench]
fn track_a_new_pod(bencher: Bencher<'_, '_>) {
    tracked(|tracker, mut old, _| {
        old["metadata"].as_object_mut().expect("metadata").remove("managedFields");
        bencher.with_inputs(|| old.clone()).bench_values(|mut new| {
            tracker.create(&mut new, "resizer");
            new
        });
    });
}

#[divan::bench]
fn apply_to_a_pod(bencher: Bencher<'_, '_>) {
    tracked(|tracker, old, _| {
        let wanted = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0"}, "spec": {"containers": [
            {"name": "web", "resources": {"requests": {"cpu": "800m"}}}]}});
        bencher.bench(|| tracker.apply(black_box(&old), &wanted, "vpa", true).expect("applied"));
    });
}
