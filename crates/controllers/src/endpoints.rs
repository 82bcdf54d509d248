//! The endpoints of Services: what the controllers `endpointslice`, `endpoint` and `endpointslicemirroring` share.
//!
//! ```text
//!   pods ──┐                    ┌──▶ endpointslice: EndpointSlices of Services with a selector
//!          ├─▶ membership ──────┤
//!   Services ──┘                └──▶ endpoint: their Endpoints object
//!   Endpoints of Services without a selector ──▶ endpointslicemirroring: EndpointSlices
//! ```
//!
//! [`membership`] knows which pods each Service selects, so that the change of a pod costs as much as the Services that select
//! it, and no scan of a namespace.

pub(crate) mod go_hash;
pub mod membership;
pub(crate) mod pods;
pub(crate) mod trigger_time;
pub(crate) mod writer;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use plumb_controller_runtime::{Index, ObjectRef, Store};

/// The label with the name of the Service of an EndpointSlice.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the controller that maintains an EndpointSlice.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The label of endpoints of Services without a cluster IP.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
/// The annotation with the time of the change that a write is about, see KEP-3716 and the SLI of network programming.
pub(crate) const LAST_CHANGE_TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The annotation of Endpoints that once were locks of leader election.
pub(crate) const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";

/// The selector of a Service whose endpoints are its pods. `ExternalName` has none, and an empty selector selects nothing.
pub(crate) fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    service.spec.as_ref()?.selector.as_ref().filter(|selector| !selector.is_empty())
}

/// The type of a Service.
pub(crate) fn service_type(service: &Service) -> &str {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()).unwrap_or("ClusterIP")
}

/// Whether a Service has a cluster IP.
pub(crate) fn has_cluster_ip(service: &Service) -> bool {
    cluster_ip(service).is_some_and(|ip| ip != "None")
}

/// Whether a Service is headless: it wants no cluster IP. A Service whose cluster IP is not allocated yet is not.
pub(crate) fn is_headless(service: &Service) -> bool {
    cluster_ip(service) == Some("None")
}

/// The field `clusterIP`; none if it is empty.
pub(crate) fn cluster_ip(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.cluster_ip.as_deref().filter(|ip| !ip.is_empty())
}

/// The address types of the endpoints of a Service, which follow its IP families.
pub(crate) fn address_types(service: &Service) -> Vec<&'static str> {
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.as_deref()).unwrap_or_default();
    let mut types = Vec::new();
    for (family, type_) in [("IPv4", "IPv4"), ("IPv6", "IPv6")] {
        if families.iter().any(|own| own == family) {
            types.push(type_);
        }
    }
    if !types.is_empty() {
        return types;
    }
    // API servers before 1.20 set no families.
    match cluster_ip(service).and_then(|ip| ip.parse::<IpAddr>().ok()) {
        Some(IpAddr::V4(_)) => vec!["IPv4"],
        Some(IpAddr::V6(_)) => vec!["IPv6"],
        None => vec!["IPv4", "IPv6"],
    }
}

/// A label of an object.
pub(crate) fn label<'a>(labels: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    labels?.get(key).map(String::as_str)
}

/// The Service that an EndpointSlice names.
pub(crate) fn service_of(slice: &EndpointSlice) -> Option<ObjectRef> {
    let name = label(slice.metadata.labels.as_ref(), SERVICE_NAME).filter(|name| !name.is_empty())?;
    Some(ObjectRef::namespaced(slice.metadata.namespace.clone().unwrap_or_default(), name))
}

/// Whether a controller of this name maintains an EndpointSlice.
pub(crate) fn is_managed_by(slice: &EndpointSlice, controller: &str) -> bool {
    label(slice.metadata.labels.as_ref(), MANAGED_BY) == Some(controller)
}

/// `EndpointSlice`s by the Service that they name.
#[derive(Clone)]
pub(crate) struct SlicesByService(Index<EndpointSlice>);

impl SlicesByService {
    pub(crate) fn new(slices: &Arc<Store<EndpointSlice>>) -> Self {
        Self(slices.add_index(|slice: &EndpointSlice| service_of(slice).map(|service| service.to_string())))
    }

    /// All slices of a Service.
    pub(crate) fn get(&self, service: &ObjectRef) -> Vec<Arc<EndpointSlice>> {
        self.0.get(&service.to_string())
    }

    /// Those that a controller maintains and that are not terminating.
    pub(crate) fn managed_by(&self, service: &ObjectRef, controller: &str) -> Vec<Arc<EndpointSlice>> {
        let mut slices = self.get(service);
        slices
            .retain(|slice| is_managed_by(slice, controller) && slice.metadata.deletion_timestamp.is_none());
        slices
    }
}
