//! `CSIDrivers`.

use serde_json::{Value, json};

use crate::registry::Strategy;
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{AGE, Column, NAME};
use plumb_apiserver::table::view::{View, or};

/// The strategy of `CSIDrivers`.
#[derive(Debug)]
pub(in crate::registry) struct CsiDriverStrategy;

impl Strategy for CsiDriverStrategy {
    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }
}

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(
    &[
        NAME,
        Column::boolean("AttachRequired", "whether volumes are attached before they are mounted"),
        Column::boolean(
            "PodInfoOnMount",
            "whether the driver gets the name of the pod when it mounts a volume",
        ),
        Column::boolean("StorageCapacity", "whether the scheduler considers the free capacity of the driver"),
        Column::text("TokenRequests", "the audiences of the tokens of the pod that the driver gets"),
        Column::boolean("RequiresRepublish", "whether the driver is called again from time to time"),
        Column::text("Modes", "which lifecycles of volumes it knows"),
        AGE,
    ],
    csi_driver,
);

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
        // `Persistent` is the default mode.
        or(driver.texts("/spec/volumeLifecycleModes").join(","), "Persistent"),
        driver.age(),
    ])
}
