//! Where volumes come from.

use serde_json::{Value, json};

use super::column::{AGE, Column, NAME};
use super::layout::Layout;
use super::view::{View, or};

const GROUP: &str = "storage.k8s.io";

pub(super) const LAYOUTS: &[Layout] = &[
    Layout::new(
        GROUP,
        "StorageClass",
        &[
            NAME,
            Column::text("Provisioner", "who makes volumes of this class"),
            Column::text("ReclaimPolicy", "what happens to them when their claims are gone"),
            Column::text("VolumeBindingMode", "when they are made and bound"),
            Column::text("AllowVolumeExpansion", "whether they can grow"),
            AGE,
        ],
        storage_class,
    ),
    Layout::new(
        GROUP,
        "VolumeAttributesClass",
        &[NAME, Column::text("DriverName", "the driver that knows the attributes"), AGE],
        |object| json!([object.name(), object.text("/driverName"), object.age()]),
    ),
    Layout::new(
        GROUP,
        "VolumeAttachment",
        &[
            NAME,
            Column::text("Attacher", "the driver that attaches").of_names(),
            Column::text("PV", "the volume"),
            Column::text("Node", "the node that it is to be attached to"),
            Column::boolean("Attached", "whether it is attached"),
            AGE,
        ],
        |object| {
            json!([
                object.name(),
                object.text("/spec/attacher"),
                object.text("/spec/source/persistentVolumeName"),
                object.text("/spec/nodeName"),
                object.flag("/status/attached"),
                object.age(),
            ])
        },
    ),
    Layout::new(
        GROUP,
        "CSIDriver",
        &[
            NAME,
            Column::boolean("AttachRequired", "whether volumes are attached before they are mounted"),
            Column::boolean("PodInfoOnMount", "whether the driver is told which pod mounts"),
            Column::boolean("StorageCapacity", "whether the scheduler looks at the driver's free room"),
            Column::text("TokenRequests", "for whom the driver is given tokens of the pod"),
            Column::boolean("RequiresRepublish", "whether the driver is called again from time to time"),
            Column::text("Modes", "which lifecycles of volumes it knows"),
            AGE,
        ],
        csi_driver,
    ),
    Layout::new(
        GROUP,
        "CSINode",
        &[NAME, Column::integer("Drivers", "how many drivers the node has"), AGE],
        |object| json!([object.name(), object.count("/spec/drivers"), object.age()]),
    ),
    Layout::dated(GROUP, "CSIStorageCapacity"),
];

fn storage_class(class: View<'_>) -> Value {
    let annotated = |key| class.entry("/metadata/annotations", key) == Some("true");
    let is_default = annotated("storageclass.kubernetes.io/is-default-class")
        || annotated("storageclass.beta.kubernetes.io/is-default-class");
    json!([
        format!("{}{}", class.name(), if is_default { " (default)" } else { "" }),
        class.text("/provisioner"),
        class.text_or("/reclaimPolicy", "Delete"),
        class.text_or("/volumeBindingMode", "Immediate"),
        class.flag("/allowVolumeExpansion"),
        class.age(),
    ])
}

fn csi_driver(driver: View<'_>) -> Value {
    let audiences: Vec<&str> = match driver.at("/spec/tokenRequests") {
        Some(requests) => requests.items("").map(|one| one.text("/audience")).collect(),
        None => vec!["<unset>"],
    };
    json!([
        driver.name(),
        !driver.has("/spec/attachRequired") || driver.flag("/spec/attachRequired"),
        driver.flag("/spec/podInfoOnMount"),
        driver.flag("/spec/storageCapacity"),
        audiences.join(","),
        driver.flag("/spec/requiresRepublish"),
        // A driver that names no mode knows the one that all know.
        or(driver.texts("/spec/volumeLifecycleModes").join(","), "Persistent"),
        driver.age(),
    ])
}
