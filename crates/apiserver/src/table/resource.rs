//! Devices, and claims to them.

use serde_json::json;

use super::column::{AGE, Column, NAME};
use super::layout::Layout;
use super::view::View;

const GROUP: &str = "resource.k8s.io";

pub(super) const LAYOUTS: &[Layout] = &[
    Layout::new(
        GROUP,
        "ResourceClaim",
        &[NAME, Column::text("State", "whether the claim is met, and whether it is in use"), AGE],
        |object| json!([object.name(), state(object), object.age()]),
    ),
    Layout::new(
        GROUP,
        "ResourceSlice",
        &[
            NAME,
            Column::text("Node", "the node that has the devices"),
            Column::text("Driver", "the driver that knows them"),
            Column::text("Pool", "the pool that they are part of"),
            AGE,
        ],
        |object| {
            json!([
                object.name(),
                object.text("/spec/nodeName"),
                object.text("/spec/driver"),
                object.text("/spec/pool/name"),
                object.age(),
            ])
        },
    ),
];

fn state(claim: View<'_>) -> &'static str {
    let reserved = claim.count("/status/reservedFor") > 0;
    match (claim.is_deleting(), claim.has("/status/allocation")) {
        (false, false) => "pending",
        (true, false) => "deleted",
        (false, true) if reserved => "allocated,reserved",
        (false, true) => "allocated",
        (true, true) if reserved => "deleted,allocated,reserved",
        (true, true) => "deleted,allocated",
    }
}
