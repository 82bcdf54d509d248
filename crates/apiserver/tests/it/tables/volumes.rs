//! Print columns of volumes, claims and storage classes.

use serde_json::{Value, json};

use super::{case, shows};

#[tokio::test]
async fn volumes_and_claims_have_their_print_columns() {
    let volumes = "/api/v1/persistentvolumes";
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let volume = |name: &str, more: Value| {
        let mut spec = json!({
            "capacity": { "storage": "1024Mi" }, "accessModes": ["ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"],
            "hostPath": { "path": "/v" },
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let claim = |name: &str, more: Value| {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "metadata": { "name": name }, "spec": spec })
    };
    let mut old = claim("old", json!({}));
    old["metadata"]["annotations"] = json!({ "volume.beta.kubernetes.io/storage-class": "ancient" });
    let cases = [
        case(
            volumes,
            volume("free", json!({ "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "fast" })),
            json!([
                "free",
                "1Gi",
                "RWO,ROX,RWX",
                "Delete",
                "Available",
                "",
                "fast",
                "<unset>",
                "",
                "0s",
                "Filesystem",
            ]),
        )
        .status(json!({ "phase": "Available" })),
        case(
            volumes,
            volume(
                "bound",
                json!({
                    "claimRef": { "namespace": "default", "name": "bound" }, "volumeMode": "Block",
                    "accessModes": ["ReadWriteOncePod"],
                }),
            ),
            json!([
                "bound",
                "1Gi",
                "RWOP",
                "Retain",
                "Failed",
                "default/bound",
                "",
                "<unset>",
                "Broken",
                "0s",
                "Block",
            ]),
        )
        .status(json!({ "phase": "Failed", "reason": "Broken" })),
        case(
            volumes,
            volume("goes", json!({})),
            json!([
                "goes",
                "1Gi",
                "RWO,ROX,RWX",
                "Retain",
                "Terminating",
                "",
                "",
                "<unset>",
                "",
                "0s",
                "Filesystem",
            ]),
        )
        .deleted(),
        case(
            claims,
            claim("new", json!({ "storageClassName": "fast", "volumeAttributesClassName": "gold" })),
            json!(["new", "Pending", "", "", "", "fast", "gold", "0s", "Filesystem"]),
        ),
        case(
            claims,
            claim("bound", json!({ "volumeName": "bound", "volumeMode": "Block" })),
            json!(["bound", "Bound", "bound", "2Gi", "RWO", "", "<unset>", "0s", "Block"]),
        )
        .status(json!({
            "phase": "Bound", "capacity": { "storage": "2Gi" }, "accessModes": ["ReadWriteOnce"],
        })),
        case(claims, old, json!(["old", "Pending", "", "", "", "ancient", "<unset>", "0s", "Filesystem"])),
        case(
            claims,
            claim("goes", json!({ "volumeName": "v" })),
            json!(["goes", "Terminating", "v", "0", "", "", "<unset>", "0s", "Filesystem"]),
        )
        .deleted(),
    ];
    let kinds = [
        (
            "/persistentvolumes",
            "Name | Capacity | Access Modes | Reclaim Policy | Status | Claim | StorageClass | \
             VolumeAttributesClass | Reason | Age | (VolumeMode)",
        ),
        (
            "/persistentvolumeclaims",
            "Name | Status | Volume | Capacity | Access Modes | StorageClass | VolumeAttributesClass | Age | \
             (VolumeMode)",
        ),
    ];
    shows(&kinds, &cases).await;
}

#[tokio::test]
async fn storage_classes_and_drivers_have_their_print_columns() {
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let drivers = "/apis/storage.k8s.io/v1/csidrivers";
    let attachment = json!({ "metadata": { "name": "a" }, "spec": {
        "attacher": "x.io", "nodeName": "n1", "source": { "persistentVolumeName": "v" },
    }});
    let cases = [
        case(
            classes,
            json!({ "metadata": { "name": "plain" }, "provisioner": "x.io/p" }),
            json!(["plain", "x.io/p", "Delete", "Immediate", false, "0s"]),
        ),
        case(
            classes,
            json!({
                "metadata": { "name": "fast", "annotations": {
                    "storageclass.kubernetes.io/is-default-class": "true",
                }},
                "provisioner": "x.io/p", "reclaimPolicy": "Retain", "allowVolumeExpansion": true,
                "volumeBindingMode": "WaitForFirstConsumer",
            }),
            json!(["fast (default)", "x.io/p", "Retain", "WaitForFirstConsumer", true, "0s"]),
        ),
        case(
            drivers,
            json!({ "metadata": { "name": "plain.x.io" }, "spec": {} }),
            json!(["plain.x.io", true, false, false, "<unset>", false, "Persistent", "0s"]),
        ),
        case(
            drivers,
            json!({ "metadata": { "name": "full.x.io" }, "spec": {
                "attachRequired": false, "podInfoOnMount": true, "storageCapacity": true,
                "requiresRepublish": true, "tokenRequests": [{ "audience": "a" }, { "audience": "b" }],
                "volumeLifecycleModes": ["Persistent", "Ephemeral"],
            }}),
            json!(["full.x.io", false, true, true, "a,b", true, "Persistent,Ephemeral", "0s"]),
        ),
        case(
            "/apis/storage.k8s.io/v1/csinodes",
            json!({ "metadata": { "name": "n1" }, "spec": { "drivers": [{ "name": "x.io", "nodeID": "1" }] } }),
            json!(["n1", 1, "0s"]),
        ),
        case(
            "/apis/storage.k8s.io/v1/volumeattachments",
            attachment,
            json!(["a", "x.io", "v", "n1", true, "0s"]),
        )
        .status(json!({ "attached": true })),
        case(
            "/apis/storage.k8s.io/v1/volumeattributesclasses",
            json!({ "metadata": { "name": "gold" }, "driverName": "x.io", "parameters": { "iops": "9" } }),
            json!(["gold", "x.io", "0s"]),
        ),
        case(
            "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities",
            json!({ "metadata": { "name": "capacity" }, "storageClassName": "fast", "capacity": "1Gi" }),
            json!(["capacity", "2026-01-02T03:04:05Z"]),
        ),
    ];
    let kinds = [
        (
            "/storageclasses",
            "Name | Provisioner | ReclaimPolicy | VolumeBindingMode | AllowVolumeExpansion | Age",
        ),
        (
            "/csidrivers",
            "Name | AttachRequired | PodInfoOnMount | StorageCapacity | TokenRequests | RequiresRepublish | \
             Modes | Age",
        ),
        ("/csinodes", "Name | Drivers | Age"),
        ("/volumeattachments", "Name | Attacher | PV | Node | Attached | Age"),
        ("/volumeattributesclasses", "Name | DriverName | Age"),
        ("/csistoragecapacities", "Name | Created At"),
    ];
    shows(&kinds, &cases).await;
}
