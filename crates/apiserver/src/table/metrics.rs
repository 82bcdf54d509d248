//! What is used, as metrics-server shows it.

use plumb_resize::Quantity;
use serde_json::json;

use super::column::{Column, NAME};
use super::layout::Layout;

const GROUP: &str = "metrics.k8s.io";
const COLUMNS: [Column; 4] = [
    NAME,
    Column::text("cpu", "the cores that are used").of("quantity"),
    Column::text("memory", "the memory that is used").of("quantity"),
    Column::text("Window", "how long that was measured for").of("duration"),
];

pub(super) const LAYOUTS: &[Layout] = &[
    Layout::new(GROUP, "NodeMetrics", &COLUMNS, |object| {
        json!([
            object.name(),
            object.text("/usage/cpu"),
            object.text("/usage/memory"),
            object.text("/window")
        ])
    }),
    Layout::new(GROUP, "PodMetrics", &COLUMNS, |object| {
        let used = |path: &str| {
            let each = object.items("/containers").filter_map(|one| one.text(path).parse::<Quantity>().ok());
            each.reduce(Quantity::saturating_add).unwrap_or(Quantity::ZERO).to_string()
        };
        json!([object.name(), used("/usage/cpu"), used("/usage/memory"), object.text("/window")])
    }),
];
