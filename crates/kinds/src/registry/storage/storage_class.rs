//! `StorageClasses`.

use serde_json::{Value, json};

use crate::registry::{MetadataChecks, Strategy};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;

/// The strategy of `StorageClasses`.
#[derive(Debug)]
pub(in crate::registry) struct StorageClassStrategy;

impl Strategy for StorageClassStrategy {
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::UpdateAndCreate
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Provisioner", "who makes volumes of this class"),
        Column::text("ReclaimPolicy", "what happens to them when their claims are gone"),
        Column::text("VolumeBindingMode", "when they are made and bound"),
        Column::text("AllowVolumeExpansion", "whether they can grow"),
        AGE,
    ],
    storage_class,
);

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
