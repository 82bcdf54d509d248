//! The kinds of `coordination.k8s.io`.

mod lease;

pub(super) use lease::LeaseStrategy;
