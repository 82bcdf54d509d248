//! The kinds of `discovery.k8s.io`.

mod endpoint_slice;

pub(super) use endpoint_slice::EndpointSliceStrategy;
