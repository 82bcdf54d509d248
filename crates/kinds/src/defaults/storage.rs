//! Defaults of `StorageClasses` and `CSIDrivers`.

use serde_json::{Value, json};

use super::Object;
use super::plan::Fill::{Bool, Text};
use super::plan::Row;
use super::plan::Rule::{Do, Set};

const STORAGE: &str = "api/storage/v1";

pub(super) const ROWS: &[Row] = &[
    (
        STORAGE,
        "StorageClass",
        &[Set("reclaimPolicy", Text("Delete")), Set("volumeBindingMode", Text("Immediate"))],
    ),
    (
        STORAGE,
        "CSIDriverSpec",
        &[
            Set("attachRequired", Bool(true)),
            Set("podInfoOnMount", Bool(false)),
            Set("storageCapacity", Bool(false)),
            Set("fsGroupPolicy", Text("ReadWriteOnceWithFSType")),
            Do(lifecycle_modes),
            Set("requiresRepublish", Bool(false)),
            Set("seLinuxMount", Bool(false)),
        ],
    ),
];

fn lifecycle_modes(spec: &mut Object) {
    if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
}
