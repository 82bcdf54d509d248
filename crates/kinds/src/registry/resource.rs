//! The kinds of `resource.k8s.io`.

mod device_class;
mod resource_claim;
mod resource_claim_template;
mod resource_slice;

pub(super) use device_class::DeviceClassStrategy;
pub(super) use resource_claim::ResourceClaimStrategy;
pub(super) use resource_claim_template::ResourceClaimTemplateStrategy;
pub(super) use resource_slice::ResourceSliceStrategy;
