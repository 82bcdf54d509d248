//! `VolumeAttachments`.

use serde_json::json;

use crate::registry::{FieldPaths, Strategy};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};

/// The strategy of `VolumeAttachments`.
#[derive(Debug)]
pub(in crate::registry) struct VolumeAttachmentStrategy;

impl Strategy for VolumeAttachmentStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn status_reset_fields(&self) -> FieldPaths {
        &[&["spec"], &["metadata"]]
    }

    fn metadata_reset_on_status_update(&self) -> &'static [&'static str] {
        &["labels", "annotations", "finalizers", "ownerReferences", "managedFields"]
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
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
);
