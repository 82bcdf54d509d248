//! `NodeMetrics`.

use serde_json::json;

use crate::registry::{Storage, Strategy};
use plumb_apiserver::table::PrintColumns;
use plumb_apiserver::table::column::{Column, NAME};

/// The strategy of `NodeMetrics`.
#[derive(Debug)]
pub(in crate::registry) struct NodeMetricsStrategy;

impl Strategy for NodeMetricsStrategy {
    fn storage(&self) -> Storage {
        Storage::Metrics
    }

    /// `metrics.k8s.io` has no stable version.
    fn is_served_unstable(&self) -> bool {
        true
    }

    fn print_columns(&self) -> &'static PrintColumns {
        &PRINT_COLUMNS
    }
}

/// The columns of both kinds of metrics.
pub(super) const COLUMNS: [Column; 4] = [
    NAME,
    Column::text("cpu", "the cores that are used").of("quantity"),
    Column::text("memory", "the memory that is used").of("quantity"),
    Column::text("Window", "how long that was measured for").of("duration"),
];

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(&COLUMNS, |object| {
    json!([object.name(), object.text("/usage/cpu"), object.text("/usage/memory"), object.text("/window")])
});
