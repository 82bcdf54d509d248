//! The metadata of the slices of a Service.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use kube::api::ObjectMeta;
use plumb_controller_runtime::controller_reference;

use super::MANAGER;
use crate::endpoints::{HEADLESS, MANAGED_BY, SERVICE_NAME, has_cluster_ip};

type Labels = BTreeMap<String, String>;

/// An empty slice of a Service.
pub(super) fn new_slice(service: &Service, address_type: &str, ports: Vec<EndpointPort>) -> EndpointSlice {
    let name = service.metadata.name.as_deref().unwrap_or_default();
    EndpointSlice {
        address_type: address_type.to_owned(),
        endpoints: Some(Vec::new()),
        metadata: ObjectMeta {
            // The name of a Service has at most 63 characters, so that the prefix is always a valid one.
            generate_name: Some(format!("{name}-")),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels(None, service).0),
            owner_references: Some(vec![controller_reference(service)]),
            ..ObjectMeta::default()
        },
        ports: Some(ports),
    }
}

/// The labels of a slice, which are those of its Service and three of the controller, and whether it has other ones. A change
/// of the controller's own labels alone is none, as upstream.
pub(super) fn labels(current: Option<&Labels>, service: &Service) -> (Labels, bool) {
    let is_own = |key: &str| [SERVICE_NAME, MANAGED_BY, HEADLESS].contains(&key);
    let without_own = |labels: Option<&Labels>| -> Labels {
        let all = labels.into_iter().flatten().filter(|(key, _)| !is_own(key));
        all.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let mut wanted = without_own(service.metadata.labels.as_ref());
    let changed = without_own(current) != wanted;
    if !has_cluster_ip(service) {
        wanted.insert(HEADLESS.to_owned(), String::new());
    }
    wanted.insert(SERVICE_NAME.to_owned(), service.metadata.name.clone().unwrap_or_default());
    wanted.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    (wanted, changed)
}

/// Whether a slice is owned by a Service, and not by a former one of the same name.
pub(super) fn is_owned_by(slice: &EndpointSlice, service: &Service) -> bool {
    let owners = slice.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| {
        owner.kind == "Service"
            && owner.api_version == "v1"
            && Some(&owner.uid) == service.metadata.uid.as_ref()
    })
}
