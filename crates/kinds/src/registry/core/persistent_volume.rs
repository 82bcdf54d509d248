//! `PersistentVolumes`.

use serde_json::{Value, json};

use crate::registry::{Context, Strategy};
use plumb_apiserver::error::ApiError;
use plumb_apiserver::object::moment;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::View;

/// The strategy of `PersistentVolumes`.
#[derive(Debug)]
pub(in crate::registry) struct PersistentVolumeStrategy;

impl Strategy for PersistentVolumeStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn prepare_for_create(&self, cx: Context<'_>, new: &mut Value) -> Result<Vec<String>, ApiError> {
        new["status"] = json!({ "phase": "Pending", "lastPhaseTransitionTime": moment(cx.now()) });
        Ok(Vec::new())
    }

    /// A change of the phase sets the time of the transition, unless the client has set it.
    fn prepare_for_status_update(
        &self,
        cx: Context<'_>,
        old: &Value,
        new: &mut Value,
    ) -> Result<(), ApiError> {
        const AT: &str = "lastPhaseTransitionTime";
        let is_set = !new["status"][AT].is_null() && new["status"][AT] != old["status"][AT];
        if old["status"]["phase"] != new["status"]["phase"] && !is_set {
            new["status"][AT] = json!(moment(cx.now()));
        }
        Ok(())
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::text("Capacity", "how much it holds"),
        Column::text("Access Modes", "in which ways it can be mounted"),
        Column::text("Reclaim Policy", "what happens to it when its claim is gone"),
        Column::text("Status", "whether it is free, claimed or released"),
        Column::text("Claim", "the claim that it is bound to"),
        Column::text("StorageClass", "the class that the volume is of"),
        Column::text("VolumeAttributesClass", "the class of the volume's changeable attributes"),
        Column::text("Reason", "why it is in its state"),
        AGE,
        Column::text("VolumeMode", "whether it is a file system or a block device").wide(),
    ],
    volume,
);

fn volume(volume: View<'_>) -> Value {
    let claim = volume.at("/spec/claimRef");
    let claim = claim.map(|claim| format!("{}/{}", claim.text("/namespace"), claim.text("/name")));
    json!([
        volume.name(),
        volume.text_or("/spec/capacity/storage", "0"),
        modes(&volume.texts("/spec/accessModes")),
        volume.text_or("/spec/persistentVolumeReclaimPolicy", "Retain"),
        phase(volume),
        claim.unwrap_or_default(),
        class(volume),
        attributes_class(volume),
        volume.text("/status/reason"),
        volume.age(),
        volume.text_or("/spec/volumeMode", "Filesystem"),
    ])
}

pub(super) fn phase(object: View<'_>) -> &str {
    if object.is_deleting() { "Terminating" } else { object.text_or("/status/phase", "Pending") }
}

/// The storage class. The beta annotation takes precedence over the field.
pub(super) fn class(object: View<'_>) -> &str {
    let annotated = object.entry("/metadata/annotations", "volume.beta.kubernetes.io/storage-class");
    annotated.unwrap_or_else(|| object.text("/spec/storageClassName"))
}

pub(super) fn attributes_class(object: View<'_>) -> &str {
    match object.at("/spec/volumeAttributesClassName") {
        Some(class) => class.text(""),
        None => "<unset>",
    }
}

/// Access modes in their short form, in upstream's order.
pub(super) fn modes(given: &[&str]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown = short.iter().filter(|(mode, _)| given.contains(mode)).map(|(_, short)| *short);
    shown.collect::<Vec<_>>().join(",")
}
