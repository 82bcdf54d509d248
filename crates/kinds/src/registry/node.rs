//! The kinds of `node.k8s.io`.

mod runtime_class;

pub(super) use runtime_class::RuntimeClassStrategy;
