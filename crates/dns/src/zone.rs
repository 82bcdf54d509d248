//! The records of a cluster: a synchronous index that watches update.
//!
//! ```text
//!   Service ─────────┐                          ┌── SERVICE.NAMESPACE.svc.DOMAIN and its subdomains
//!   EndpointSlices ──┴──▶ entry of a Service ───┼── addresses of endpoints ──▶ their names (PTR)
//!                                               └── cluster IPs ──▶ the Service (PTR)
//! ```
//!
//! Services and slices can arrive in any order. A lookup hashes the two labels of the Service in wire format, so its cost does
//! not depend on the number of Services.

mod endpoints;
mod lookup;
mod service;

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service as ServiceObject;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;

use crate::name::Name;
use endpoints::Slice;
use service::{Kind, Service};

/// A type of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordType(pub u16);

#[allow(missing_docs, reason = "they are the names of the types")]
impl RecordType {
    pub const A: Self = Self(1);
    pub const NS: Self = Self(2);
    pub const CNAME: Self = Self(5);
    pub const SOA: Self = Self(6);
    pub const PTR: Self = Self(12);
    pub const MX: Self = Self(15);
    pub const TXT: Self = Self(16);
    pub const AAAA: Self = Self(28);
    pub const SRV: Self = Self(33);
    pub const OPT: Self = Self(41);
    pub const IXFR: Self = Self(251);
    pub const AXFR: Self = Self(252);
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The name is not a name of the cluster.
    Elsewhere,
    /// The zone has not synced yet.
    NotReady,
    /// The name does not exist. Contains the label at which the zone begins.
    NameError(usize),
    /// The name has no records of this type. Contains the label at which the zone begins.
    NoData(usize),
    /// A records.
    Addresses(Vec<Ipv4Addr>),
    /// SRV records. Their targets are in the domain of the Service, which is a suffix of the question.
    Services {
        /// The label at which the name of the Service begins.
        service: usize,
        /// The records.
        records: Vec<ServiceRecord>,
    },
    /// A CNAME record with another name.
    Alias(Name),
    /// PTR records.
    Pointers(Vec<Name>),
    /// The TXT record with the version of the specification.
    Version,
    /// The SOA record of the zone.
    Authority,
    /// The NS record of the zone, with the address of the server.
    NameServer(Ipv4Addr),
}

/// An SRV record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceRecord {
    /// The label of an endpoint in the Service; `None` for the Service itself.
    pub host: Option<Box<[u8]>>,
    /// The port.
    pub port: u16,
    /// The addresses of the target.
    pub addresses: Vec<Ipv4Addr>,
}

/// The labels of a Service's name and of its namespace, as in messages.
type Key = Arc<[u8]>;

/// A Service and its slices, as far as they are known.
#[derive(Debug, Default)]
struct Entry {
    service: Option<Service>,
    /// The slices by name.
    slices: BTreeMap<Box<str>, Slice>,
}

/// The records of a cluster.
#[derive(Debug)]
pub struct Zone {
    domain: Name,
    server: Ipv4Addr,
    entries: HashMap<Key, Entry>,
    /// The number of Services of each namespace.
    namespaces: HashMap<Box<[u8]>, usize>,
    by_cluster_ip: HashMap<Ipv4Addr, Vec<Key>>,
    /// The Services of endpoints by address, once for each time that a slice has the address.
    by_endpoint: HashMap<Ipv4Addr, Vec<Key>>,
    /// The entry of each slice, by the namespace and name of the slice.
    slice_entries: HashMap<(Box<str>, Box<str>), Key>,
    services_synced: bool,
    slices_synced: bool,
}

impl Zone {
    /// Creates an empty zone for a domain such as `cluster.local`, with the address of the server.
    pub fn new(domain: Name, server: Ipv4Addr) -> Self {
        Self {
            domain,
            server,
            entries: HashMap::new(),
            namespaces: HashMap::new(),
            by_cluster_ip: HashMap::new(),
            by_endpoint: HashMap::new(),
            slice_entries: HashMap::new(),
            services_synced: false,
            slices_synced: false,
        }
    }

    /// The domain.
    pub(crate) fn domain(&self) -> &Name {
        &self.domain
    }

    /// Whether all Services and slices were listed once.
    pub fn has_synced(&self) -> bool {
        self.services_synced && self.slices_synced
    }

    /// Replaces all Services.
    pub fn replace_services(&mut self, services: &[ServiceObject]) {
        for entry in self.entries.values_mut() {
            entry.service = None;
        }
        self.entries.retain(|_, entry| !entry.slices.is_empty());
        self.namespaces.clear();
        self.by_cluster_ip.clear();
        for service in services {
            self.apply_service(service);
        }
        self.services_synced = true;
    }

    /// Adds or changes a Service.
    pub fn apply_service(&mut self, object: &ServiceObject) {
        let namespace = object.namespace().unwrap_or_default();
        let Some(key) = key(&namespace, &object.name_any()) else { return };
        self.remove_service(&key);
        let service = Service::read(object);
        if let Kind::Cluster(addresses) = &service.kind {
            for address in addresses {
                self.by_cluster_ip.entry(*address).or_default().push(key.clone());
            }
        }
        *self.namespaces.entry(namespace_of(&key).into()).or_default() += 1;
        self.entries.entry(key).or_default().service = Some(service);
    }

    /// Removes a Service.
    pub fn delete_service(&mut self, namespace: &str, name: &str) {
        if let Some(key) = key(namespace, name) {
            self.remove_service(&key);
            self.remove_if_empty(&key);
        }
    }

    fn remove_service(&mut self, key: &Key) {
        let Some(service) = self.entries.get_mut(key).and_then(|entry| entry.service.take()) else { return };
        if let Kind::Cluster(addresses) = service.kind {
            for address in addresses {
                remove_one(&mut self.by_cluster_ip, address, key);
            }
        }
        if let Some(count) = self.namespaces.get_mut(namespace_of(key)) {
            *count -= 1;
            if *count == 0 {
                self.namespaces.remove(namespace_of(key));
            }
        }
    }

    /// Replaces all EndpointSlices.
    pub fn replace_slices(&mut self, slices: &[EndpointSlice]) {
        for entry in self.entries.values_mut() {
            entry.slices.clear();
        }
        self.entries.retain(|_, entry| entry.service.is_some());
        self.by_endpoint.clear();
        self.slice_entries.clear();
        for slice in slices {
            self.apply_slice(slice);
        }
        self.slices_synced = true;
    }

    /// Adds or changes an EndpointSlice.
    pub fn apply_slice(&mut self, object: &EndpointSlice) {
        let namespace = object.namespace().unwrap_or_default();
        let name = object.name_any();
        self.delete_slice(&namespace, &name);
        let Some(slice) = Slice::read(object) else { return };
        let service = object.labels().get(endpoints::SERVICE_NAME);
        let Some(key) = service.and_then(|service| key(&namespace, service)) else { return };
        for endpoint in &slice.endpoints {
            self.by_endpoint.entry(endpoint.address).or_default().push(key.clone());
        }
        self.entries.entry(key.clone()).or_default().slices.insert(name.clone().into(), slice);
        self.slice_entries.insert((namespace.into(), name.into()), key);
    }

    /// Removes an EndpointSlice.
    pub fn delete_slice(&mut self, namespace: &str, name: &str) {
        let Some(key) = self.slice_entries.remove(&(namespace.into(), name.into())) else { return };
        let Some(slice) = self.entries.get_mut(&key).and_then(|entry| entry.slices.remove(name)) else {
            return;
        };
        for endpoint in &slice.endpoints {
            remove_one(&mut self.by_endpoint, endpoint.address, &key);
        }
        self.remove_if_empty(&key);
    }

    fn remove_if_empty(&mut self, key: &Key) {
        if self.entries.get(key).is_some_and(|entry| entry.service.is_none() && entry.slices.is_empty()) {
            self.entries.remove(key);
        }
    }
}

/// The key of a Service. `None` if its name is not a label, which the API rejects.
fn key(namespace: &str, name: &str) -> Option<Key> {
    let labels = Name::from_labels([name.as_bytes(), namespace.as_bytes()], &[])?;
    Some(labels.wire().into())
}

/// The label of the namespace in a key.
fn namespace_of(key: &Key) -> &[u8] {
    let name = key.first().map_or(0, |length| usize::from(*length));
    key.get(name + 2..).unwrap_or_default()
}

fn remove_one(index: &mut HashMap<Ipv4Addr, Vec<Key>>, address: Ipv4Addr, key: &Key) {
    let Some(keys) = index.get_mut(&address) else { return };
    if let Some(at) = keys.iter().position(|known| known == key) {
        keys.remove(at);
    }
    if keys.is_empty() {
        index.remove(&address);
    }
}
