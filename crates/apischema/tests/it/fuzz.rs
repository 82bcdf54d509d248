//! The fuzz targets of `fuzz/`, run for a moment and without a fuzzer.

#[path = "../../../../fuzz/holds/bodies.rs"]
mod bodies;
#[path = "../../../../fuzz/holds/mutations.rs"]
mod mutations;
#[path = "../../../../fuzz/holds/patches.rs"]
mod patches;

use plumb_apischema::{Schema, protobuf};
use serde_json::{Value, json};

const ITERATIONS: u64 = 3_000;

const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"null",
    b"-1",
    b"1e999",
    b"9223372036854775808",
    b"\"$patch\":\"delete\"",
    b"\"$patch\":\"replace\"",
    b"\"$retainKeys\":[\"name\"]",
    b"\"$setElementOrder/containers\":[{\"name\":\"b\"}]",
    b"\"$deleteFromPrimitiveList/finalizers\":[\"a\"]",
    b"{\"op\":\"copy\",\"from\":\"\",\"path\":\"/a\"}",
    b"{\"op\":\"move\",\"from\":\"/spec\",\"path\":\"/spec/containers/-\"}",
    b"\"\\ud800\"",
    b"\xff",
    b"\x12\xff\xff\xff\xff\x07",
    b"\x0a\x00",
    b"k8s\0",
];

fn objects() -> Vec<Value> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "p", "labels": { "a": "b" }, "finalizers": ["a"], "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": {
            "containers": [
                { "name": "a", "image": "x", "resources": { "limits": { "cpu": "1", "memory": "64Mi" } },
                  "ports": [{ "containerPort": 80, "protocol": "TCP" }],
                  "env": [{ "name": "E", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }] },
                { "name": "b", "livenessProbe": { "httpGet": { "port": "http" }, "periodSeconds": 3 } },
            ],
            "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": "1Gi" } }],
            "tolerations": [{ "key": "k", "operator": "Exists", "tolerationSeconds": 5 }],
        },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" },
        "data": { "k": "v" }, "binaryData": { "b": "aGk=" }, "immutable": true });
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
        "spec": { "replicas": 3, "selector": { "matchLabels": { "a": "b" } },
            "strategy": { "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": 1 } },
            "template": { "spec": pod["spec"] } } });
    vec![pod, map, deployment]
}

#[test]
fn fuzz_target_apischema_bodies() {
    let schema = Schema::builtin();
    let mut seeds: Vec<Vec<u8>> = objects().iter().map(|object| object.to_string().into_bytes()).collect();
    for object in objects() {
        let sealed = protobuf::encode(schema, &object).unwrap();
        let kind =
            schema.kind_of(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).unwrap();
        seeds.push(protobuf::encode_message(schema, kind, &object).unwrap());
        seeds.push(sealed);
    }
    mutations::run("apischema_bodies", &seeds, WORDS, ITERATIONS, |mutations| {
        let bytes = mutations.input();
        bodies::holds(mutations.byte(), &bytes);
    });
}

#[test]
fn fuzz_target_apischema_patches() {
    let mut seeds: Vec<Vec<u8>> = objects().iter().map(|object| object.to_string().into_bytes()).collect();
    seeds.push(
        json!([
            { "op": "test", "path": "/spec/containers/0/name", "value": "a" },
            { "op": "copy", "from": "/spec", "path": "/spec/x" },
            { "op": "move", "from": "/spec/containers/0", "path": "/spec/containers/1" },
            { "op": "remove", "path": "/metadata/labels/a~1b" },
        ])
        .to_string()
        .into_bytes(),
    );
    seeds.push(
        json!({ "spec": { "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }],
            "containers": [{ "name": "a", "$patch": "delete" }, { "name": "c", "image": "y" }],
            "volumes": [{ "name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": { "path": "/x" } }] } })
        .to_string()
        .into_bytes(),
    );
    mutations::run("apischema_patches", &seeds, WORDS, ITERATIONS, |mutations| {
        patches::holds(&mutations.input(), &mutations.input());
    });
}
