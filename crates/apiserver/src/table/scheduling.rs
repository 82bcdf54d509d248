//! Which pods go first.

use serde_json::json;

use super::column::{AGE, Column, NAME};
use super::layout::Layout;

pub(super) const LAYOUTS: &[Layout] = &[Layout::new(
    "scheduling.k8s.io",
    "PriorityClass",
    &[
        NAME,
        Column::integer("Value", "the priority of its pods; the higher goes first"),
        Column::boolean("Global-Default", "whether pods that name no class are of this one"),
        AGE,
        Column::text("PreemptionPolicy", "whether its pods may displace others"),
    ],
    |object| {
        json!([
            object.name(),
            object.number("/value"),
            object.flag("/globalDefault"),
            object.age(),
            object.text_or("/preemptionPolicy", "PreemptLowerPriority"),
        ])
    },
)];
