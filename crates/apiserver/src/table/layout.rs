//! Which columns a kind has.

use serde_json::{Value, json};

use super::column::{AGE, CREATED_AT, Column, NAME};
use super::view::View;
use super::{
    admissionregistration, apiregistration, apps, autoscaling, batch, certificates, coordination, core,
    discovery, events, flowcontrol, metrics, networking, nodes, pods, policy, rbac, resource, scheduling,
    services, storage, volumes,
};

/// The table of a kind.
pub(super) struct Layout {
    group: &'static str,
    kind: &'static str,
    pub(super) columns: &'static [Column],
    /// The cells of an object's row, as a list with one item for each column.
    pub(super) cells: fn(View<'_>) -> Value,
    /// What else the row says of the object.
    pub(super) conditions: Option<fn(View<'_>) -> Option<Value>>,
}

/// Every kind that shows more, or other, than name and age.
const LAYOUTS: &[&[Layout]] = &[
    pods::LAYOUTS,
    nodes::LAYOUTS,
    core::LAYOUTS,
    services::LAYOUTS,
    volumes::LAYOUTS,
    events::LAYOUTS,
    apps::LAYOUTS,
    batch::LAYOUTS,
    autoscaling::LAYOUTS,
    policy::LAYOUTS,
    networking::LAYOUTS,
    discovery::LAYOUTS,
    storage::LAYOUTS,
    coordination::LAYOUTS,
    scheduling::LAYOUTS,
    rbac::LAYOUTS,
    certificates::LAYOUTS,
    admissionregistration::LAYOUTS,
    apiregistration::LAYOUTS,
    flowcontrol::LAYOUTS,
    resource::LAYOUTS,
    metrics::LAYOUTS,
];

/// What a kind without a layout of its own shows.
static PLAIN: Layout = Layout::new("", "", &[NAME, AGE], |object| json!([object.name(), object.age()]));

impl Layout {
    pub(super) const fn new(
        group: &'static str,
        kind: &'static str,
        columns: &'static [Column],
        cells: fn(View<'_>) -> Value,
    ) -> Self {
        Self { group, kind, columns, cells, conditions: None }
    }

    /// The table of a kind whose objects are shown with the moment of their creation, not with their age.
    pub(super) const fn dated(group: &'static str, kind: &'static str) -> Self {
        Self::new(group, kind, &[NAME, CREATED_AT], |object| {
            json!([object.name(), object.text("/metadata/creationTimestamp")])
        })
    }

    pub(super) const fn with_conditions(mut self, conditions: fn(View<'_>) -> Option<Value>) -> Self {
        self.conditions = Some(conditions);
        self
    }

    /// The table of a kind.
    pub(super) fn of(group: &str, kind: &str) -> &'static Self {
        let mut all = LAYOUTS.iter().copied().flatten();
        all.find(|layout| layout.group == group && layout.kind == kind).unwrap_or(&PLAIN)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kinds::Kinds;

    #[test]
    fn every_layout_is_the_only_one_of_a_kind_that_is_served() {
        let kinds = Kinds::builtin();
        let mut served: BTreeSet<_> = kinds.iter().map(|row| (row.group(), row.kind())).collect();
        // It has no address of its own, but hangs below others.
        served.insert(("autoscaling", "Scale"));
        let mut seen = BTreeSet::new();
        for layout in LAYOUTS.iter().copied().flatten() {
            let kind = (layout.group, layout.kind);
            assert!(served.contains(&kind), "{kind:?}");
            assert!(seen.insert(kind), "{kind:?}");
        }
    }
}
