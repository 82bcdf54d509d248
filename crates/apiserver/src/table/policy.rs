//! What pods may be put through.

use serde_json::json;

use super::column::{AGE, Column, NAME};
use super::layout::Layout;

pub(super) const LAYOUTS: &[Layout] = &[Layout::new(
    "policy",
    "PodDisruptionBudget",
    &[
        NAME,
        Column::text("Min Available", "how many pods must stay available"),
        Column::text("Max Unavailable", "how many pods may be unavailable"),
        Column::integer("Allowed Disruptions", "how many pods may be disrupted now"),
        AGE,
    ],
    |object| {
        let bound = |path| object.number_or_text(path).unwrap_or_else(|| "N/A".to_owned());
        json!([
            object.name(),
            bound("/spec/minAvailable"),
            bound("/spec/maxUnavailable"),
            object.number("/status/disruptionsAllowed"),
            object.age(),
        ])
    },
)];
