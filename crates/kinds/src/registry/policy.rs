//! The kinds of `policy`.

mod pod_disruption_budget;

pub(super) use pod_disruption_budget::PodDisruptionBudgetStrategy;
