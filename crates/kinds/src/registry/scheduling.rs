//! The kinds of `scheduling.k8s.io`.

mod priority_class;

pub(super) use priority_class::PriorityClassStrategy;
