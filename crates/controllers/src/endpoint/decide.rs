//! The Endpoints that a Service has.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service, ServicePort,
};
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use plumb_controller_runtime::pods as pod_functions;

use super::NAME;
use super::subsets::{repack, truncate};
use crate::endpoints::{
    HEADLESS, address_types, cluster_ip, has_cluster_ip, is_headless, pods, trigger_time,
};

/// The label with the controller that maintains Endpoints.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The annotation of Endpoints that lack addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The largest number of addresses of Endpoints.
pub const MAX_ADDRESSES: usize = 1000;

/// A Service with a selector and all that its Endpoints depend on.
#[derive(Clone, Debug)]
pub struct State {
    /// The Service.
    pub service: Arc<Service>,
    /// The pods that it selects.
    pub pods: Vec<Arc<Pod>>,
    /// Its Endpoints.
    pub current: Option<Arc<Endpoints>>,
    /// The time of the change that this reconcile is about.
    pub trigger_time: Option<Timestamp>,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The Endpoints are missing.
    Create(Endpoints),
    /// They differ.
    Update(Endpoints),
}

/// The write that is needed, if one is.
pub fn decide(state: &State) -> Option<Action> {
    let service = &*state.service;
    let mut subsets = repack(&subsets_of(service, &state.pods));
    let over_capacity = truncate(&mut subsets, MAX_ADDRESSES);
    let labels = labels(service);
    if let Some(current) = &state.current {
        let has = current.subsets.as_deref().unwrap_or_default();
        let annotated = annotation(current, OVER_CAPACITY).is_some();
        // The order may be that of another release, whose hashes differ.
        let same = same_subsets(has, &subsets) || same_subsets(&repack(has), &subsets);
        if same && same_labels(current.metadata.labels.as_ref(), &labels) && annotated == over_capacity {
            return None;
        }
    }
    let mut endpoints = match &state.current {
        Some(current) => Endpoints::clone(current),
        None => Endpoints {
            metadata: ObjectMeta {
                name: service.metadata.name.clone(),
                namespace: service.metadata.namespace.clone(),
                ..ObjectMeta::default()
            },
            subsets: None,
        },
    };
    endpoints.subsets = Some(subsets).filter(|subsets| !subsets.is_empty());
    endpoints.metadata.labels = Some(labels);
    trigger_time::annotate(&mut endpoints.metadata.annotations, state.trigger_time);
    if over_capacity {
        let annotations = endpoints.metadata.annotations.get_or_insert_default();
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    } else if let Some(annotations) = &mut endpoints.metadata.annotations {
        annotations.remove(OVER_CAPACITY);
    }
    Some(if state.current.is_some() { Action::Update(endpoints) } else { Action::Create(endpoints) })
}

fn annotation<'a>(endpoints: &'a Endpoints, key: &str) -> Option<&'a String> {
    endpoints.metadata.annotations.as_ref()?.get(key)
}

/// One subset for each pod and port.
fn subsets_of(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSubset> {
    let spec = service.spec.clone().unwrap_or_default();
    let publish_not_ready = spec.publish_not_ready_addresses.unwrap_or_default();
    let ports = spec.ports.unwrap_or_default();
    let mut subsets = Vec::new();
    for pod in pods.iter().filter(|pod| pods::is_endpoint(pod, publish_not_ready)) {
        let Some(address) = address(service, pod) else { continue };
        let ready = publish_not_ready || pod_functions::is_ready(pod);
        let subset = |port: Option<EndpointPort>| {
            let (addresses, others) =
                if ready { (Some(vec![address.clone()]), None) } else { (None, Some(vec![address.clone()])) };
            EndpointSubset { addresses, not_ready_addresses: others, ports: port.map(|port| vec![port]) }
        };
        if ports.is_empty() && is_headless(service) {
            subsets.push(subset(None));
        }
        subsets.extend(ports.iter().filter_map(|port| Some(subset(Some(port_of(pod, port)?)))));
    }
    subsets
}

fn port_of(pod: &Pod, port: &ServicePort) -> Option<EndpointPort> {
    Some(EndpointPort {
        name: port.name.clone().filter(|name| !name.is_empty()),
        port: pods::target_port(pod, port)?,
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    })
}

/// The address of a pod in the first family of a Service: Endpoints have one family.
fn address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.as_deref()).unwrap_or_default();
    let is_ipv6 = match families.first() {
        Some(family) => family == "IPv6",
        None if cluster_ip(service).is_some() && !is_headless(service) => address_types(service) == ["IPv6"],
        None => pods::addresses(pod).next()?.is_ipv6(),
    };
    let ip = pods::addresses(pod).find(|ip| ip.is_ipv6() == is_ipv6)?;
    Some(EndpointAddress {
        ip: ip.to_string(),
        hostname: pods::hostname(pod, service).map(str::to_owned),
        node_name: Some(pod_functions::node_of(pod).unwrap_or_default().to_owned()),
        target_ref: Some(pods::target_ref(pod)),
    })
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    if has_cluster_ip(service) {
        labels.remove(HEADLESS);
    } else {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), NAME.to_owned());
    labels
}

/// Whether labels are as they should be. The label of headless Services is not compared, as upstream.
fn same_labels(has: Option<&BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) -> bool {
    let compared = |labels: Option<&BTreeMap<String, String>>| -> BTreeMap<String, String> {
        labels
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != HEADLESS)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    compared(has) == compared(Some(wanted))
}

/// Whether subsets are equal but for the versions of pods.
fn same_subsets(a: &[EndpointSubset], b: &[EndpointSubset]) -> bool {
    let normalized = |subsets: &[EndpointSubset]| -> Vec<EndpointSubset> {
        let mut subsets = subsets.to_vec();
        for subset in &mut subsets {
            for list in [&mut subset.addresses, &mut subset.not_ready_addresses] {
                if list.as_ref().is_some_and(Vec::is_empty) {
                    *list = None;
                }
                for target in list.iter_mut().flatten().filter_map(|address| address.target_ref.as_mut()) {
                    target.resource_version = None;
                }
            }
        }
        subsets
    };
    normalized(a) == normalized(b)
}
