//! Workloads and their in-place rollouts.

use plumb_controller_runtime::ObjectRef;

use super::amounts::Cells;
use super::observed::Observed;
use super::table::{Key, Row, Table};
use crate::rollout::{Kind, Summary};
use crate::status::listing::Form;

/// A row for each workload.
pub(super) fn table(observed: &Observed, form: Form) -> Table {
    let titles =
        [("WORKLOAD", 0), ("ROLLOUT", 0), ("DONE", 0), ("PODS", 1), ("UPDATED", 1), ("AVAILABLE", 1)];
    let namespace = form.with_namespace.then_some(("NAMESPACE", 2));
    let titles = namespace.into_iter().chain(titles).map(|(title, rank)| (title.to_owned(), rank));
    let rows = observed.rollouts.iter().map(|((object, kind), rollout)| row(object, *kind, rollout, form));
    Table::new(titles, rows.collect())
}

fn row(object: &ObjectRef, kind: Kind, rollout: &Summary, form: Form) -> Row {
    let mut cells = Cells::default();
    if form.with_namespace {
        cells.text(&object.namespace);
    }
    cells.text(&rollout.workload);
    cells.text(&rollout.state);
    cells.text(rollout.done.map_or_else(|| "-".to_owned(), |(done, all)| format!("{done}/{all}")));
    for count in [rollout.pods.desired, rollout.pods.updated, rollout.pods.available] {
        cells.count(Some(count));
    }
    let why = if rollout.state == "-" { "" } else { rollout.text.lines().next().unwrap_or_default() };
    Row {
        key: Key { object: object.clone(), part: part(kind) },
        cells: cells.cells,
        order: cells.order,
        why: why.to_owned(),
    }
}

/// The kind of a workload as the part of a key.
pub(super) fn part(kind: Kind) -> String {
    let resource = kind.resource();
    format!("{}.{}", resource.plural, resource.group)
}

/// The details of a workload.
pub(super) fn details(observed: &Observed, key: &Key) -> Option<String> {
    let mut rollouts = observed.rollouts.iter();
    let ((_, _), rollout) =
        rollouts.find(|((object, kind), _)| *object == key.object && part(*kind) == key.part)?;
    let pods = rollout.pods;
    let counts =
        format!("{} pods desired, {} updated, {} available", pods.desired, pods.updated, pods.available);
    Some(format!("{counts}\n\n{}", rollout.text))
}
