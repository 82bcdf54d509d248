//! The objects that the matrix is about: bindings, and a pod on a node with all that the node needs for it.

use serde_json::{Value, json};

/// The namespace that the bindings, the pod and what it needs are in.
pub(super) const NAMESPACE: &str = "matrix-one";
/// Another one.
pub(super) const OTHER_NAMESPACE: &str = "matrix-two";
/// The node that asks. Everything that it may read has its name, too.
pub(super) const NODE: &str = "matrix-node";
/// The name of what it has nothing to do with.
pub(super) const OTHER: &str = "matrix-other";
/// The roles that users of the same name are bound to in [`NAMESPACE`].
pub(super) const ROLES: [&str; 3] = ["admin", "edit", "view"];

/// The paths and bodies of what has to be created, in order.
pub fn objects() -> Vec<(String, Value)> {
    let rbac = "rbac.authorization.k8s.io";
    let named = |name: &str| json!({ "metadata": { "name": name } });
    let with = |name: &str, field: &str, value: Value| {
        let mut object = named(name);
        object[field] = value;
        object
    };
    let mut all: Vec<(String, Value)> = Vec::new();
    for namespace in [NAMESPACE, OTHER_NAMESPACE] {
        all.push(("/api/v1/namespaces".to_owned(), named(namespace)));
    }
    for role in ROLES {
        let mut binding =
            with(role, "roleRef", json!({ "apiGroup": rbac, "kind": "ClusterRole", "name": role }));
        binding["subjects"] = json!([{ "apiGroup": rbac, "kind": "User", "name": role }]);
        all.push((format!("/apis/{rbac}/v1/namespaces/{NAMESPACE}/rolebindings"), binding));
    }
    for name in [NODE, OTHER] {
        all.push(("/api/v1/nodes".to_owned(), named(name)));
        all.push((
            "/apis/storage.k8s.io/v1/csinodes".to_owned(),
            with(name, "spec", json!({ "drivers": [] })),
        ));
        let slice = json!({
            "driver": "driver.example.com", "nodeName": name, "devices": [],
            "pool": { "name": name, "generation": 1, "resourceSliceCount": 1 },
        });
        all.push(("/apis/resource.k8s.io/v1/resourceslices".to_owned(), with(name, "spec", slice)));
        let volume = json!({
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "claimRef": { "namespace": NAMESPACE, "name": name },
            "csi": {
                "driver": "driver.example.com", "volumeHandle": name,
                "nodePublishSecretRef": { "namespace": OTHER_NAMESPACE, "name": name },
            },
        });
        all.push(("/api/v1/persistentvolumes".to_owned(), with(name, "spec", volume)));
        let attachment = json!({
            "attacher": "driver.example.com", "nodeName": name, "source": { "persistentVolumeName": name },
        });
        let mut attachment = with(name, "spec", attachment);
        // The node of its pods is not there, so that an attach and detach controller deletes it at once: it stays, as one that is
        // being detached.
        attachment["metadata"]["finalizers"] = json!(["example.com/detaching"]);
        all.push(("/apis/storage.k8s.io/v1/volumeattachments".to_owned(), attachment));
        let inside = |plural: &str| format!("/api/v1/namespaces/{NAMESPACE}/{plural}");
        for plural in ["serviceaccounts", "secrets", "configmaps"] {
            all.push((inside(plural), named(name)));
        }
        let claim = json!({
            "accessModes": ["ReadWriteOnce"], "volumeName": name, "storageClassName": "",
            "resources": { "requests": { "storage": "1Gi" } },
        });
        all.push((inside("persistentvolumeclaims"), with(name, "spec", claim)));
        let devices = with(name, "spec", json!({ "devices": {} }));
        all.push((format!("/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"), devices));
        all.push((inside("pods"), with(name, "spec", pod_spec(name))));
    }
    all
}

/// A pod on the node of a name, which needs everything else of that name.
fn pod_spec(name: &str) -> Value {
    json!({
        "nodeName": name, "serviceAccountName": name,
        "containers": [{ "name": "main", "image": "localhost/pause:1" }],
        "resourceClaims": [{ "name": "devices", "resourceClaimName": name }],
        "volumes": [
            { "name": "secret", "secret": { "secretName": name } },
            { "name": "config", "configMap": { "name": name } },
            { "name": "claim", "persistentVolumeClaim": { "claimName": name } },
        ],
    })
}
