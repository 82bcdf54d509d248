//! Print columns that workloads share.

use plumb_apiserver::table::column::Column;
use plumb_apiserver::table::view::View;

/// The JSON pointer to the containers of a workload's pod template.
pub(super) const CONTAINERS_OF_TEMPLATE: &str = "/spec/template/spec/containers";
/// The label selector of a workload.
pub(super) const SELECTOR: Column = Column::text("Selector", "the labels of the pods it looks after");
/// The ready and the desired replicas of a workload.
pub(super) const READY: Column =
    Column::text("Ready", "how many pods are ready, of how many there are to be");

/// The cell of [`READY`].
pub(super) fn ready(object: View<'_>) -> String {
    format!("{}/{}", object.number("/status/readyReplicas"), object.number_or("/spec/replicas", 1))
}
