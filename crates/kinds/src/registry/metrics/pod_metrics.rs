//! `PodMetrics`.

use plumb_resize::Quantity;
use serde_json::json;

use super::node_metrics::COLUMNS;
use crate::registry::{Storage, Strategy};
use plumb_apiserver::table::PrintColumns;

/// The strategy of `PodMetrics`.
#[derive(Debug)]
pub(in crate::registry) struct PodMetricsStrategy;

impl Strategy for PodMetricsStrategy {
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

static PRINT_COLUMNS: PrintColumns = PrintColumns::new(&COLUMNS, |object| {
    let used = |path: &str| {
        let each = object.items("/containers").filter_map(|one| one.text(path).parse::<Quantity>().ok());
        each.reduce(Quantity::saturating_add).unwrap_or(Quantity::ZERO).to_string()
    };
    json!([object.name(), used("/usage/cpu"), used("/usage/memory"), object.text("/window")])
});
