//! The kinds of `networking.k8s.io`.

mod ingress;
mod ingress_class;
mod ip_address;
mod network_policy;
mod service_cidr;

pub(super) use ingress::IngressStrategy;
pub(super) use ingress_class::IngressClassStrategy;
pub(super) use ip_address::IpAddressStrategy;
pub(super) use network_policy::NetworkPolicyStrategy;
pub(super) use service_cidr::ServiceCidrStrategy;
